"""The pool as text, for terminals and for text/plain: letters are contents, brackets are life."""

from __future__ import annotations

from collections import Counter
from itertools import count

from labengine.events import ViolationFound
from labengine.record.fold_state import Key
from labengine.record.snapshot import BlockState, RequestState, Snapshot, map_key
from labengine.record.timeline import Timeline
from labengine.record.wording import counted, group_name, request_name
from labengine_widgets.pictures.lettering import numbers_in
from labengine_widgets.words.names import content_name

MAX_CARDS = 64
MAX_LINES = 12
WIDTH = 96


def block_map(snapshot: Snapshot, timeline: Timeline | None = None) -> str:
    """Return the snapshot in a few lines of about 100 columns at most: score, pool, block tables, map, free queue.

    [p] live and cached, (p) freed but cached, [~] live and not full, !p! lost: alive, and the map does not lead to it.
    timeline: the snapshot's recording; the letters are then those of its views.
    """
    letters = content_letters(snapshot, timeline)
    cell, doubled = _cells(snapshot, letters), doubled_blocks(snapshot)
    lines = [_score(snapshot, violation_count(snapshot, timeline)), "", *_pool(snapshot, cell, doubled), ""]
    lines += _tables(snapshot)
    lines += [_map(snapshot, letters), _queue(snapshot), "", _legend(cell)]
    return "\n".join([*lines, "!! in the tables of two groups: one overwrites the other"] if doubled else lines)


def content_letters(snapshot: Snapshot, timeline: Timeline | None = None) -> dict[str, str]:
    """Return a letter for each key of the prefix map; with a recording, in the order of its events, as in all views.

    A snapshot alone does not hold that order: letters then follow the tables, then the pool, beginning with p.
    """
    keys = _keys_in_order(snapshot)
    known = {} if timeline is None else numbers_in(timeline, keys)
    unknown = count(1 + max(known.values(), default=-1))  # older than the recording
    numbers = {key: known[key] if key in known else next(unknown) for key in keys}
    return {map_key(*key): content_name(number) for key, number in numbers.items()}


def _keys_in_order(snapshot: Snapshot) -> list[Key]:
    """Return each key of a block's content once: first the blocks of the tables, then those of the pool.

    Invalid ids, which a faulty part may leave in a table, are skipped.
    """
    tables = [table for r in snapshot.requests.values() for table in r.block_tables]
    blocks, null = snapshot.blocks, snapshot.null_block
    ids = range(len(blocks))
    ordered = [blocks[i] for table in tables for i in table if i in ids and i != null]
    named = [block.grouped_hashes[0] for block in [*ordered, *blocks] if block.grouped_hashes]
    return [(group, bytes.fromhex(block_hash)) for group, block_hash in dict.fromkeys(named)]


def content_letter(block: BlockState, letters: dict[str, str]) -> str:
    """Return the letter of a block's content; empty while the content is not registered."""
    if not block.grouped_hashes:
        return ""
    group, block_hash = block.grouped_hashes[0]
    return letters.get(map_key(group, bytes.fromhex(block_hash)), "?")


def doubled_blocks(snapshot: Snapshot) -> frozenset[int]:
    """Return the blocks in the tables of two groups, whose layers overwrite each other's KV (vLLM issue 43884)."""
    tables = [set(table) for r in snapshot.requests.values() for table in r.block_tables]
    by_group = [set().union(*tables[group :: len(snapshot.groups)]) for group in range(len(snapshot.groups))]
    times = Counter(block_id for ids in by_group for block_id in ids - {snapshot.null_block})
    return frozenset(block_id for block_id, number in times.items() if number > 1)


def kept_blocks(snapshot: Snapshot) -> frozenset[int]:
    """Return the blocks with content that no request uses: free ones, and those of the prefix tree without locks."""
    evictable = {block_id for node in snapshot.tree if not node.num_locks for block_id in node.block_ids}
    blocks = snapshot.blocks
    return frozenset(b.block_id for b in blocks if not b.ref_count or (b.block_id in evictable and not b.owners))


def block_sign(block: BlockState, letters: dict[str, str], lost: frozenset[int], kept: frozenset[int]) -> str:
    """Return one block as three or a few more characters."""
    letter = content_letter(block, letters)
    if block.block_id in lost:
        return f"!{letter}!"
    if block.block_id not in kept:
        return f"[{letter or '~'}]"
    return f"({letter})" if letter else " · "


def _cells(snapshot: Snapshot, letters: dict[str, str]) -> list[str]:
    lost, kept = frozenset(snapshot.lost_blocks), kept_blocks(snapshot)
    signs = [block_sign(block, letters, lost, kept) for block in snapshot.blocks]
    if snapshot.null_block >= 0:
        signs[snapshot.null_block] = "null"
    return signs


def violation_count(snapshot: Snapshot, timeline: Timeline | None) -> str:
    """Return how many violations were found up to the snapshot's step, as words; empty for none."""
    found = () if timeline is None else timeline.of_kind(ViolationFound)
    num = sum(one.step <= snapshot.step for one in found)
    return counted(num, "violation") if num else ""


def _score(snapshot: Snapshot, violations: str) -> str:
    apart = f", {snapshot.num_evictable_blocks} evictable" if snapshot.tree else ""
    return (
        f"step {snapshot.step} · {snapshot.num_used_blocks} of {len(snapshot.blocks)} blocks used{apart}"
        f" · {len(snapshot.prefix_map)} findable · {len(snapshot.lost_blocks)} lost{violations and f' · {violations}'}"
    )


def _pool(snapshot: Snapshot, cells: list[str], doubled: frozenset[int]) -> list[str]:
    if len(cells) > MAX_CARDS:
        return _small_pool(cells)
    cards = [
        f"{f'#{block.block_id}':>4} {sign}{f'x{block.ref_count}' if block.ref_count > 1 else '  '}"
        f"{'!!' if block.block_id in doubled else ''}"
        for block, sign in zip(snapshot.blocks, cells, strict=True)
    ]
    rows = ("".join(f"{card:12}" for card in cards[i : i + 8]) for i in range(0, len(cards), 8))
    return [f"{'' if i else 'pool':6}{row}".rstrip() for i, row in enumerate(rows)]


def _small_pool(cells: list[str]) -> list[str]:
    """Return a pool with one character per block, 64 in a line; of a very large pool, the first lines."""
    signs = "".join(map(_small_sign, cells))
    lines = [f"{f'#{i}':>6} {signs[i : i + 64]}" for i in range(0, len(signs), 64)]
    more = [f"       … and {len(cells) - 64 * MAX_LINES} more blocks"] if len(lines) > MAX_LINES else []
    return lines[:MAX_LINES] + more


def _small_sign(cell: str) -> str:
    if cell == "null":
        return "-"
    if cell[0] == "!":
        return "!"
    return cell[1].upper() if cell[0] == "(" else cell[1]


def _tables(snapshot: Snapshot) -> list[str]:
    open_requests = [item for item in snapshot.requests.items() if item[1].status != "finished"]
    num_finished, limit = len(snapshot.requests) - len(open_requests), max(2, MAX_LINES // max(1, len(snapshot.groups)))
    lines = [line for item in open_requests[:limit] for line in _table(*item, snapshot)]
    if len(open_requests) > limit:
        lines.append(f"      … and {len(open_requests) - limit} more requests")
    return lines + ([f"      {num_finished} finished"] if num_finished else [])


def _table(request_id: int, request: RequestState, snapshot: Snapshot) -> list[str]:
    """Return a line for the request, and with several groups one line for each."""
    tables = [" ".join("-" if i == snapshot.null_block else f"#{i}" for i in ids) for ids in request.block_tables]
    progress = f"{request.status}, {request.num_computed_tokens} of {len(request.token_ids)} tokens"
    text = f"{request_name(request_id):<6}{progress}"
    if not any(tables):
        return [_cut(f"{text}, no blocks")]
    if len(tables) == 1:
        return [_cut(f"{text} -> {tables[0]}")]
    names = [group_name(snapshot.groups, group) for group in range(len(tables))]
    width = max(map(len, names))
    return [_cut(text), *(_cut(f"      {name:<{width}} -> {ids}") for name, ids in zip(names, tables, strict=True))]


def _map(snapshot: Snapshot, letters: dict[str, str]) -> str:
    free = kept_blocks(snapshot)
    entries = [
        f"{letters.get(key, '?')}->" + ",".join(f"(#{i})" if i in free else f"#{i}" for i in ids)
        for key, ids in snapshot.prefix_map.items()
    ]
    return _cut("map   " + ("  ".join(entries) or "empty"))


def _queue(snapshot: Snapshot) -> str:
    ids = " ".join(f"#{i}" for i in snapshot.free_queue)
    return _cut(f"queue head {ids}" if ids else "queue empty")


def _legend(cells: list[str]) -> str:
    if len(cells) > MAX_CARDS:
        return "p live · P freed, cached · ~ not full · ! lost · · free"
    return "[p] live · (p) freed, still cached · [~] not full · !p! lost: alive, not findable · x2 ref count"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"
