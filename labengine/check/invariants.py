"""Invariants that hold between phases in every edition, judged block by block, key by key and request by request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from labengine.check.state import Entry, FoldState, RequestView, State
from labengine.check.tree_rules import FoldedTree, judge_tree
from labengine.core.block import Key
from labengine.events import PrefixHit
from labengine.record.fold import Fold
from labengine.record.snapshot import BlockState, GroupState, Snapshot, map_key
from labengine.record.violation import Violation as Violation
from labengine.record.wording import counted


def check_invariants(snapshot: Snapshot, *, merges: bool = False) -> list[Violation]:
    """Return every violation found in a snapshot.

    merges: True if the edition promises that no two live blocks keep the same content.
    """
    state = FoldState(Fold.of(snapshot))
    found = (
        *_queued_twice(snapshot),
        *judge_blocks(state, [*range(len(snapshot.blocks)), *state.unknown_block_ids()], merges=merges),
        *judge_keys(state, state.fold.prefix_map),
        *judge_requests(state, snapshot.requests),
        *judge_recorded_tree(state.fold),
    )
    return list(dict.fromkeys(found))


def judge_recorded_tree(fold: Fold) -> Iterator[Violation]:
    """Yield the violations of the rules `tree` and `locks` by the tree of a recording."""
    return (found.violation for found in judge_tree(FoldedTree(fold), fold.requests, sorted(fold.tree.nodes)))


def judge_contents(snapshot: Snapshot) -> Iterator[Violation]:
    """Yield keys under which two blocks hold different tokens: the part of the rule `named` that a snapshot shows.

    For editions that trust hashes. Blocks with several keys, such as the tail of a prompt, are left out.
    """
    first: dict[tuple[int, str], BlockState] = {}
    for block in snapshot.blocks:
        if len(block.grouped_hashes) != 1:
            continue
        [key] = block.grouped_hashes
        other = first.setdefault(key, block)
        if len(other.token_ids) == len(block.token_ids) and other.token_ids != block.token_ids:
            name = f"{key[0]}:{key[1]}"[:12]
            text = (
                f"{name} names two contents: the tokens of block {other.block_id} and those of block {block.block_id}"
            )
            yield Violation("named", text, (), (other.block_id, block.block_id))


def judge_blocks(state: State, block_ids: Iterable[int], *, merges: bool) -> Iterator[Violation]:
    """Yield violations of the rules on single blocks: reference counts, table entries, free or used."""
    for block_id in block_ids:
        if block_id == state.null_block:
            yield from _null_block(state, block_id)
            continue
        if not state.exists(block_id):
            yield from _no_block(state, block_id)
            continue
        entries, ref_count = state.entries(block_id), state.ref_count(block_id)
        num_references = len(entries) + state.pins(block_id)
        if ref_count != num_references or state.is_queued(block_id) != (not num_references):
            yield from _counts(state, block_id, entries, ref_count)
        if len(entries) > 1:
            yield from _one_entry(block_id, entries)
        if merges and ref_count:
            yield from _duplicates(state, block_id)


def judge_keys(state: State, keys: Iterable[Key]) -> Iterator[Violation]:
    """Yield map entries that lead to blocks not registered under that hash."""
    for key in keys:
        for block_id in state.mapped(key):
            if key not in state.keys(block_id):
                text = f"the map leads from {map_key(*key)[:12]} to block {block_id}, which does not have that hash"
                yield Violation("prefix_map", text, (), (block_id,))


def judge_requests(state: State, request_ids: Iterable[int]) -> Iterator[Violation]:
    """Yield requests without blocks that their next token attends to, and finished requests that hold blocks."""
    for request_id in request_ids:
        request = state.requests[request_id]
        if request.status == "finished":
            if not state.is_holding(request_id):
                yield from _held_after_the_end(state, request_id, request)
            continue
        for group, (table, spec) in enumerate(zip(request.block_tables, state.groups, strict=True)):
            if (spec.window is not None or spec.keeps_states) and request.status != "running":
                continue  # it may wait for the external tier, with its window already at the end of the load
            first, end = blocks_read(spec, request.num_computed_tokens, request.num_computed_tokens)
            if first < end and (end > len(table) or _lacks(spec, table, first, end, state.null_block)):
                yield _uncovered(state, request_id, group, first, end)


def blocks_read(spec: GroupState, position: int, end: int) -> tuple[int, int]:
    """Return the table entries [first, last) that hold tokens up to `end` and that a token at `position` attends to.

    In a state group only the last entry counts: the token continues from its state.
    """
    if spec.keeps_states:
        last = -(-end // spec.block_size)
        return max(0, last - 1), last
    first = 0 if spec.window is None else max(0, position - spec.window + 1)
    return (first // spec.block_size, -(-end // spec.block_size)) if first < end else (0, 0)


def judge_cover(hit: PrefixHit, groups: Sequence[GroupState], null_block: int) -> Violation | None:
    """`window`: return the violation of a hit that counts tokens without a block for their KV or state."""
    for group, (spec, block_ids) in enumerate(zip(groups, hit.block_ids, strict=False)):
        first, end = blocks_read(spec, hit.num_tokens, hit.num_tokens)
        read = block_ids[first:end]
        if len(read) < end - first or null_block in read:
            index = first + next((i for i, block_id in enumerate(read) if block_id == null_block), len(read))
            return _uncovered_by_hit(hit, group, spec, index, is_null=index < len(block_ids))
    return None


def _uncovered_by_hit(hit: PrefixHit, group: int, spec: GroupState, index: int, *, is_null: bool) -> Violation:
    start, end = index * spec.block_size, min((index + 1) * spec.block_size, hit.num_tokens)
    what = f"the state after {counted(end, 'token')}" if spec.keeps_states else f"tokens {start} to {end - 1}"
    lack = "a null entry" if is_null else "no entry"
    tokens = counted(hit.num_tokens, "token")
    text = f"request {hit.request_id} hits {tokens}, but its hit in group {group} has {lack} for {what}"
    return Violation("window", text, (hit.request_id,))


def _queued_twice(snapshot: Snapshot) -> Iterator[Violation]:
    for block_id, times in Counter(snapshot.free_queue).items():
        if times > 1:
            yield Violation("partition", f"block {block_id} is in the free queue {times} times", (), (block_id,))


def _no_block(state: State, block_id: int) -> Iterator[Violation]:
    holders = _requests_of(state.entries(block_id))
    if holders:
        yield Violation(
            "held", f"block {block_id} is not in the pool, but is in the tables of {_named(holders)}", holders
        )


def _null_block(state: State, block_id: int) -> Iterator[Violation]:
    if state.is_queued(block_id) or state.ref_count(block_id) or state.keys(block_id):
        text = f"block {block_id}, which only pads tables, is in the queue, in use or cached"
        yield Violation("partition", text, (), (block_id,))


def _counts(state: State, block_id: int, entries: Collection[Entry], ref_count: int) -> Iterator[Violation]:
    holders, is_queued = _requests_of(entries), state.is_queued(block_id)
    if is_queued and ref_count:
        text = f"block {block_id} is in the free queue, but its ref_count is {ref_count}"
        yield Violation("partition", text, holders, (block_id,))
    elif not is_queued and not ref_count:
        text = f"block {block_id} is neither free nor used: it leaked"
        yield Violation("partition", text, holders, (block_id,))
    num_pins = state.pins(block_id)
    if ref_count != len(entries) + num_pins:
        references = counted(len(entries), "reference")
        elsewhere = f" and {num_pins} elsewhere" if num_pins else ""
        text = f"block {block_id} has ref_count {ref_count}, but {references} in block tables{elsewhere}"
        yield Violation("ref_count", text, holders, (block_id,))
    if is_queued and entries:
        text = f"block {block_id} is free, but is in the tables of {_named(holders)}"
        yield Violation("held", text, holders, (block_id,))


def _one_entry(block_id: int, entries: Collection[Entry]) -> Iterator[Violation]:
    holders, groups = _requests_of(entries), sorted({group for _, group, _ in entries})
    if len(groups) > 1:
        text = f"block {block_id} is in the tables of groups {' and '.join(map(str, groups))}, of {_named(holders)}"
        yield Violation("one_entry", text, holders, (block_id,))
    elif len(holders) < len(entries):
        text = f"block {block_id} appears twice in one table of {_named(holders)}"
        yield Violation("one_entry", text, holders, (block_id,))


def _duplicates(state: State, block_id: int) -> Iterator[Violation]:
    for key in state.keys(block_id):
        for other in state.blocks_with(key):
            if other != block_id and state.ref_count(other) and key in state.keys(other):
                entries = [min(state.entries(i), default=None) for i in (block_id, other)]
                if None not in entries and _tokens_at(state, entries[0]) == _tokens_at(state, entries[1]):
                    pair = (min(block_id, other), max(block_id, other))
                    holders = _requests_of([*state.entries(block_id), *state.entries(other)])
                    text = f"blocks {pair[0]} and {pair[1]} are alive and hold the same content"
                    yield Violation("duplicate", text, holders, pair)


def _tokens_at(state: State, entry: Entry | None) -> Collection[int]:
    assert entry is not None
    request_id, group, index = entry
    return state.requests[request_id].token_ids[: (index + 1) * state.groups[group].block_size]


def _uncovered(state: State, request_id: int, group: int, first: int, end: int) -> Violation:
    table = state.requests[request_id].block_tables[group]
    index = next((i for i in range(first, min(end, len(table))) if table[i] == state.null_block), len(table))
    lack = "is null" if index < len(table) else "is missing"
    text = f"request {request_id} will read entry {index} of its table in group {group}, but it {lack}"
    return Violation("window", text, (request_id,))


def _lacks(spec: GroupState, table: Sequence[int], first: int, end: int, null_block: int) -> bool:
    """Return True if entries [first, end) lack a block; a state may be in a scratch block after them."""
    return set(table[first:]) == {null_block} if spec.keeps_states else null_block in table[first:end]


def _held_after_the_end(state: State, request_id: int, request: RequestView) -> Iterator[Violation]:
    held = {block_id for table in request.block_tables for block_id in table} - {state.null_block}
    if held:
        text = f"request {request_id} has finished but still holds {counted(len(held), 'block')}"
        yield Violation("held", text, (request_id,), tuple(sorted(held)))


def _requests_of(entries: Iterable[Entry]) -> tuple[int, ...]:
    return tuple(sorted({request_id for request_id, _, _ in entries}))


def _named(request_ids: Collection[int]) -> str:
    return f"request{'s' * (len(request_ids) != 1)} {', '.join(map(str, request_ids))}"
