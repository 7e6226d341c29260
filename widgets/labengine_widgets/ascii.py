"""The pool as text, for terminals and for text/plain: letters are contents, brackets are life."""

from __future__ import annotations

from labengine.snapshot import NULL_BLOCK, BlockState, RequestState, Snapshot
from labengine_widgets.names import ContentIndex, content_name, request_name

MAX_CARDS = 64
MAX_LINES = 12
WIDTH = 96


def block_map(snapshot: Snapshot) -> str:
    """The snapshot in a few lines of at most about 100 columns: score, pool, block tables, hash map, free queue.

    [p] live and cached, (p) freed but cached, [~] live and not full, !p! lost: alive, and the map does not lead to it.
    """
    letters = content_letters(snapshot)
    cell = _cells(snapshot, letters)
    lines = [_score(snapshot), "", *_pool(snapshot, cell), ""]
    lines += _tables(snapshot)
    lines += [_map(snapshot, letters), _queue(snapshot), "", _legend(cell)]
    return "\n".join(lines)


def content_letters(snapshot: Snapshot) -> dict[str, str]:
    """A letter per registered hash, in the order of the tables and then of the map: what a reader meets first is p."""
    contents, letters = ContentIndex(), {}
    tables = [table for r in snapshot.requests.values() for table in r.block_tables]
    ordered = [snapshot.blocks[i] for table in tables for i in table if i != NULL_BLOCK]
    for block in [*ordered, *snapshot.blocks]:
        for block_hash in block.block_hashes[:1]:
            letters[block_hash] = content_name(contents.of_hash(block_hash))
    return letters


def block_sign(block: BlockState, letters: dict[str, str], lost: frozenset[int]) -> str:
    """One block in three characters or a few more."""
    letter = letters.get(block.block_hashes[0], "?") if block.block_hashes else ""
    if block.block_id in lost:
        return f"!{letter}!"
    if block.ref_count:
        return f"[{letter or '~'}]"
    return f"({letter})" if letter else " · "


def _cells(snapshot: Snapshot, letters: dict[str, str]) -> list[str]:
    lost = frozenset(snapshot.lost_blocks)
    return [block_sign(block, letters, lost) for block in snapshot.blocks]


def _score(snapshot: Snapshot) -> str:
    return (
        f"step {snapshot.step} · {snapshot.num_used_blocks} of {len(snapshot.blocks)} blocks used"
        f" · {len(snapshot.prefix_map)} findable · {len(snapshot.lost_blocks)} lost"
    )


def _pool(snapshot: Snapshot, cells: list[str]) -> list[str]:
    if len(cells) > MAX_CARDS:
        return _small_pool(cells)
    cards = [
        f"{f'#{block.block_id}':>4} {sign}{f'x{block.ref_count}' if block.ref_count > 1 else '  '}"
        for block, sign in zip(snapshot.blocks, cells, strict=True)
    ]
    rows = ("".join(f"{card:12}" for card in cards[i : i + 8]) for i in range(0, len(cards), 8))
    return [f"{'' if i else 'pool':6}{row}".rstrip() for i, row in enumerate(rows)]


def _small_pool(cells: list[str]) -> list[str]:
    """One character per block, 64 a line; the first lines of a pool that is larger still."""
    signs = "".join(map(_small_sign, cells))
    lines = [f"{f'#{i}':>6} {signs[i : i + 64]}" for i in range(0, len(signs), 64)]
    more = [f"       … and {len(cells) - 64 * MAX_LINES} blocks more"] if len(lines) > MAX_LINES else []
    return lines[:MAX_LINES] + more


def _small_sign(cell: str) -> str:
    if cell[0] == "!":
        return "!"
    return cell[1].upper() if cell[0] == "(" else cell[1]


def _tables(snapshot: Snapshot) -> list[str]:
    open_requests = [item for item in snapshot.requests.items() if item[1].status != "finished"]
    num_finished = len(snapshot.requests) - len(open_requests)
    lines = [_table(request_id, request) for request_id, request in open_requests[:MAX_LINES]]
    if len(open_requests) > MAX_LINES:
        lines.append(f"      … and {len(open_requests) - MAX_LINES} requests more")
    return lines + ([f"      {num_finished} finished"] if num_finished else [])


def _table(request_id: int, request: RequestState) -> str:
    names = (" ".join("-" if i == NULL_BLOCK else f"#{i}" for i in table) for table in request.block_tables)
    tables = " | ".join(names)
    progress = f"{request.status}, {request.num_computed_tokens} of {len(request.token_ids)} tokens"
    told = f"{request_name(request_id):<6}{progress}"
    return _cut(f"{told} -> {tables}" if tables.strip(" |") else f"{told}, no blocks")


def _map(snapshot: Snapshot, letters: dict[str, str]) -> str:
    free = {block.block_id for block in snapshot.blocks if not block.ref_count}
    entries = [
        f"{letters.get(key.split(':')[1], '?')}->" + ",".join(f"(#{i})" if i in free else f"#{i}" for i in ids)
        for key, ids in snapshot.prefix_map.items()
    ]
    return _cut("map   " + ("  ".join(entries) or "empty"))


def _queue(snapshot: Snapshot) -> str:
    ids = " ".join(f"#{i}" for i in snapshot.free_queue)
    return _cut(f"queue next {ids}" if ids else "queue empty")


def _legend(cells: list[str]) -> str:
    if len(cells) > MAX_CARDS:
        return "p live · P freed, cached · ~ not full · ! lost · · free"
    return "[p] live · (p) freed, still cached · [~] not full · !p! lost: alive, not findable · x2 ref count"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"
