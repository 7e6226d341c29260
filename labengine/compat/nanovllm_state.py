"""What scripts read of nano-vLLM's insides, live: llm.scheduler.block_manager.blocks[i].ref_count and its like."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from labengine.lab import Lab
from labengine.snapshot import Snapshot

NO_HASH = -1


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block as nano-vLLM shows it. hash is -1 until the block is full and hashed."""

    block_id: int
    ref_count: int
    hash: int
    token_ids: list[int]


class BlockManagerView:
    """The pool in nano-vLLM's words. It follows the lab; what it gives out stays as it was."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._moment = -1
        self._snapshot: Snapshot | None = None

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._lab.config.groups[0].block_size

    @property
    def blocks(self) -> list[BlockView]:
        """All blocks, by id."""
        return [
            BlockView(
                b.block_id, b.ref_count, _as_int(b.block_hashes[0]) if b.block_hashes else NO_HASH, [*b.token_ids]
            )
            for b in self._state().blocks
        ]

    @property
    def free_block_ids(self) -> deque[int]:
        """The next victim first."""
        return deque(self._state().free_queue)

    @property
    def used_block_ids(self) -> set[int]:
        """Blocks that some request holds."""
        return {block.block_id for block in self._state().blocks if block.ref_count}

    @property
    def hash_to_block_id(self) -> dict[int, int]:
        """The map; an entry may lead to a free block that still holds its content."""
        return {_as_int(key.partition(":")[2]): block_ids[0] for key, block_ids in self._state().prefix_map.items()}

    def _state(self) -> Snapshot:
        """Taken anew when something has happened since."""
        timeline = self._lab.timeline
        moment = -1 if timeline is None else timeline.end
        if self._snapshot is None or moment != self._moment or timeline is None:
            self._moment, self._snapshot = moment, self._lab.snapshot()
        return self._snapshot


class SchedulerView:
    """The scheduler as scripts know it."""

    def __init__(self, lab: Lab, is_finished: Callable[[], bool]) -> None:
        self.is_finished = is_finished
        self.block_manager = BlockManagerView(lab)
        self.max_num_seqs = lab.config.max_num_seqs
        self.max_num_batched_tokens = lab.config.max_num_batched_tokens


def _as_int(block_hash: str) -> int:
    """nano-vLLM's hashes are integers of 64 bits: the first of ours."""
    return int(block_hash[:16], 16)
