"""Rules on the slots that a step writes, judged before it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine.check.state import State
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.record.violation import Violation


def judge_plan(state: State, plan: StepPlan, *, registers_early: bool) -> Iterator[Violation]:
    """Yield violations in a plan's slots and writes. state: the state that the plan was made for.

    registers_early: True if the edition registers a block's content when allocating it. Other tables and the map may
    then name the block before this very step writes it.
    """
    sizes = [group.block_size for group in state.groups]
    for part in plan.scheduled:
        start, end = part.start, part.end
        for group, runs in enumerate(part.slot_runs):
            size = sizes[group]
            if state.groups[group].keeps_states:
                yield from _judge_state(state, part, group, size, registers_early)
                continue
            if not follows_slot_rule(runs, part.block_tables[group], start, end, size):
                yield _wrong_slot(part, group, size)
            for index, (block_id, _, _) in enumerate(runs, start // size):
                if not state.is_own(block_id):
                    yield from _judge_write(state, (part.request_id, group, index), block_id, registers_early)
    for load in plan.loads:
        yield from _judge_write(state, (load.request_id, load.group, load.index), load.block_id, registers_early)


def _judge_state(
    state: State, part: ScheduledRequest, group: int, size: int, registers_early: bool
) -> Iterator[Violation]:
    """Yield violations of a plan for a state: its place is the table entry of the last token, unshared.

    If rejected drafts left that entry without a block, the state is in the next entry that has one. With drafts, the
    state after each token is in a separate block; one at the end of an entry is in that entry. A checkpoint's state is
    in the entry before the last one.
    """
    runs, table, index = part.slot_runs[group], part.block_tables[group], (part.end - 1) // size
    block_ids = tuple(dict.fromkeys(block_id for block_id, _, _ in runs))
    if (wrong := _wrong_states(part, group, size, state.null_block)) is not None:
        end, entry = wrong
        what = f"request {part.request_id}, group {group}: its state after {end} tokens goes to {runs}"
        yield Violation("slot", f"{what}, not to {entry}", (part.request_id,), block_ids)
    for block_id in block_ids:
        if state.ref_count(block_id) != 1 or (state.is_full(block_id) and not registers_early):
            place = table.index(block_id) if block_id in table else index
            yield from _judge_write(state, (part.request_id, group, place), block_id, registers_early)


def _wrong_states(part: ScheduledRequest, group: int, size: int, null_block: int) -> tuple[int, str] | None:
    """Return the first misplaced state, as (its tokens, the right place); None if all places are right."""
    runs, table, index = part.slot_runs[group], part.block_tables[group], (part.end - 1) // size
    if not part.num_drafts:
        while index + 1 < len(table) and table[index] == null_block:
            index += 1
        entry = f"block {table[index]}" if index < len(table) else "its table, which ends before"
        if index >= len(table) or runs[-1:] != ((table[index], 0, 1),):
            return part.end, entry
        if part.checkpoint and runs[:-1] not in ((), ((table[index - 1], 0, 1),)):
            return part.checkpoint, f"block {table[index - 1]}, the previous entry"
        return None if len(runs) == 1 or part.checkpoint else (part.end, entry)
    blocks, allowed = [block_id for block_id, _, _ in runs], set(table[index:]) - {null_block}
    if len(blocks) != part.num_tokens or len({*blocks}) != len(blocks) or any(run[1:] != (0, 1) for run in runs):
        return part.end, f"{part.num_tokens} blocks, one for each of its tokens"
    for end, block_id in enumerate(blocks, part.start + 1):
        own = table[end // size - 1] if end % size == 0 else null_block
        if own not in (null_block, block_id):
            return end, f"block {own} of entry {end // size - 1}"
        if own == null_block and block_id not in allowed:
            return end, f"a block of its table from entry {index} onward"
    return None


def follows_slot_rule(runs: Sequence[SlotRun], table: Sequence[int], position: int, end: int, block_size: int) -> bool:
    """Return whether the runs assign to positions [position, end) the slots that the table gives them."""
    num_slots = len(table) * block_size
    for block_id, offset, length in runs:
        if position >= num_slots or block_id != table[position // block_size] or offset != position % block_size:
            return False
        position += length
    return position == end


def _wrong_slot(part: ScheduledRequest, group: int, block_size: int) -> Violation:
    runs, table = part.slot_runs[group], part.block_tables[group]
    slots = [block_id * block_size + offset + i for block_id, offset, length in runs for i in range(length)]
    what = f"writes {len(slots)} slots for {part.num_tokens} tokens"
    for position, slot in zip(range(part.start, part.end), slots, strict=False):
        entry = table[position // block_size] if position // block_size < len(table) else None
        right = None if entry is None else entry * block_size + position % block_size
        if slot != right:
            what = f"the KV of position {position} goes to slot {slot}, "
            what += "but its table ends before" if right is None else f"not to {right}"
            break
    text = f"request {part.request_id}, group {group}: {what}"
    return Violation("slot", text, (part.request_id,), tuple(dict.fromkeys(block_id for block_id, _, _ in runs)))


def _judge_write(
    state: State, entry: tuple[int, int, int], block_id: int, registers_early: bool
) -> Iterator[Violation]:
    request_id, group, _ = entry
    what = f"request {request_id}, group {group}, is about to write to block {block_id}"
    others = [other for other in state.entries(block_id) if other != entry]
    holders = tuple(sorted({request_id, *(other for other, _, _ in others)}))
    if block_id == state.null_block:
        yield Violation("write", f"{what}, which only pads tables", holders)
    elif not state.ref_count(block_id):
        yield Violation("write", f"{what}, which is free", holders, (block_id,))
    elif others and not (registers_early and all(_expects_the_same(state, entry, other) for other in others)):
        yield Violation("write", f"{what}, which other requests use", holders, (block_id,))
    if state.is_full(block_id) and not registers_early:
        yield Violation("write", f"{what}, which is full and cached", holders, (block_id,))


def _expects_the_same(state: State, entry: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Return whether two table entries stand for the same tokens and the same prefix. A state cannot be read early."""
    if state.groups[entry[1]].keeps_states:
        return False
    end = (entry[2] + 1) * state.groups[entry[1]].block_size
    one, two = (state.requests[request_id].token_ids[:end] for request_id in (entry[0], other[0]))
    return entry[1:] == other[1:] and one == two
