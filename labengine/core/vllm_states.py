"""vLLM's state groups: a state is registered when the step that computes it is scheduled, and can be hit after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine.core.block import Key
from labengine.core.request import Request
from labengine.core.state_group import StateGroup


class VllmStateGroup(StateGroup):
    """A request that hits a state of this very step has to wait, and all behind it: the copy would come too early.

    Source: MambaManager.cached_blocks_this_step (vLLM 0.32).
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.registered_in_step: set[Key] = set()
        """Keys of this step's states. A step that is rolled back leaves its own, until the next one is scheduled."""

    @property
    def chunk_unit(self) -> int:
        """The block size of the states, whatever that of the other groups."""
        return self.block_size

    def begin_step(self) -> None:
        """Forget the keys of the step before: its states are computed."""
        self.registered_in_step.clear()

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return more blocks than the pool has for a hit on a state of this step, as vLLM does."""
        if hit and not self.registered_in_step.isdisjoint(self._pool.blocks[hit[-1]].keys):
            return len(self._pool.blocks) + 1
        return super().num_blocks_to_admit(hit, num_computed_tokens, num_blocks)

    def register(self, request: Request, num_tokens: int) -> None:
        """Register states, and note their keys.

        The last state of a prompt that an equal one can hit counts as registered again by each chunk behind it, until
        its entry is dropped: so a request that hits it waits for two steps, if its owner's prompt ends in the second.
        """
        first = request.num_registered_blocks[self.index]
        super().register(request, num_tokens)
        table, last = request.block_tables[self.index], num_tokens // self.block_size
        indices = [*range(first, last)]
        link_size = self._config.hash_block_size
        if num_tokens == self.last_hit_end(request.num_prompt_tokens, link_size) and num_tokens % self.block_size == 0:
            self.register_boundary(request, last - 1)
            indices.append(last - 1)
        for index in indices:
            if 0 <= index < len(table) and table[index] != self._pool.null_block:
                self.registered_in_step.update(self._pool.blocks[table[index]].keys)

    def register_boundary(self, request: Request, index: int) -> None:
        """Register the last state of a prompt that can be hit, also where sparse retention would leave it out."""
        table = request.block_tables[self.index]
        if not 0 <= index < len(table) or table[index] == self._pool.null_block:
            return
        key = (self.index, self.block_hashes(request, index, index + 1)[0])
        if key not in self._pool.blocks[table[index]].keys:
            self.register_block(request, index)
