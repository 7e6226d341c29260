"""What must hold between steps, whatever the edition: judged on a snapshot alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from labengine.snapshot import NULL_BLOCK, Snapshot, map_key


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold, with the blocks that show it."""

    rule: str
    message: str
    block_ids: tuple[int, ...]


def check_invariants(snapshot: Snapshot) -> list[Violation]:
    """Every violation found; an empty list when all is well."""
    return [*_partition(snapshot), *_ref_counts(snapshot), *_prefix_map(snapshot)]


def _partition(snapshot: Snapshot) -> Iterator[Violation]:
    """Free and used partition the pool, and nobody is queued twice."""
    queued = Counter(snapshot.free_queue)
    for block in snapshot.blocks:
        times, block_id = queued[block.block_id], block.block_id
        if times > 1:
            yield Violation("partition", f"block {block_id} is in the free queue {times} times", (block_id,))
        elif times and block.ref_count:
            text = f"block {block_id} is in the free queue, and {block.ref_count} table entries count on it"
            yield Violation("partition", text, (block_id,))
        elif not times and not block.ref_count:
            yield Violation("partition", f"block {block_id} is neither free nor used: it leaked", (block_id,))


def _ref_counts(snapshot: Snapshot) -> Iterator[Violation]:
    """A block's ref_count is the number of table entries that point at it."""
    entries = Counter(
        i for r in snapshot.requests.values() for table in r.block_tables for i in table if i != NULL_BLOCK
    )
    for block in snapshot.blocks:
        if block.ref_count != entries[block.block_id]:
            text = f"block {block.block_id} has ref_count {block.ref_count} and {entries[block.block_id]} table entries"
            yield Violation("ref_count", text, (block.block_id,))


def _prefix_map(snapshot: Snapshot) -> Iterator[Violation]:
    """The map leads only to blocks that are known by that hash."""
    for key, block_ids in snapshot.prefix_map.items():
        for block_id in block_ids:
            grouped = snapshot.blocks[block_id].grouped_hashes
            if key not in {map_key(group, bytes.fromhex(block_hash)) for group, block_hash in grouped}:
                text = f"the map leads from {key[:10]} to block {block_id}, which does not have that hash"
                yield Violation("prefix_map", text, (block_id,))
