"""vLLM's checkpoints: a chunk that ends a prefill also leaves a state at a position inside it, where it can be hit."""

from __future__ import annotations

from typing import Any, NamedTuple

from labengine.core.block import Key
from labengine.core.request import Request
from labengine.core.state_group import StateGroup
from labengine.events import BlockCached, FreeReason


class Checkpoint(NamedTuple):
    """A state that a request's newest chunk leaves at a position inside it."""

    num_tokens: int
    """Tokens that the state has seen."""
    entry: int
    """The table entry of its block, just before that of the state at the chunk's end. If null, it is not kept."""


class CheckpointGroup(StateGroup):
    """A group whose layers may leave a state inside a chunk. Otherwise a prefill's last chunk would be split in two.

    With blocks of 8 and hits at multiples of 4, a prompt of 21 tokens is computed in one step:

        21   [null, 7, 8]      block 8 holds the state after 21 tokens, block 7 that after 20, under the key of 20

    The entry of block 7 is normally for tokens 8 to 15: the state after 20 belongs to the next entry, which is taken. A
    hit of 20 tokens puts block 7 there. Source: MambaManager and Scheduler._mamba_block_aligned_split (vLLM 0.32).
    """

    has_checkpoints = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._checkpoints: dict[int, Checkpoint] = {}
        """Per request with a checkpoint in its newest chunk."""
        self._counted: Checkpoint | None = None
        """The checkpoint of the chunk whose blocks are being counted."""

    # -- chunks --------------------------------------------------------------------------------------------------------

    def stops(self, request: Request, start: int, end: int) -> list[int]:
        """Return no positions for a chunk that leaves its last hittable state inside it."""
        return [] if self.leaves_checkpoint(request, start, end) else super().stops(request, start, end)

    def leaves_checkpoint(self, request: Request, start: int, end: int) -> bool:
        """Return True if a chunk ends a prefill and can leave, inside it, the last state that an equal text can hit.

        All state groups of the model must be able to; the first one's alignment counts.
        """
        alignments = [group.checkpoint_alignment for group in self._config.groups if group.kind == "state"]
        if None in alignments or end < prefill_end(request):
            return False
        position = self.last_hit_end(prefill_end(request), self.hit_unit)
        return self.is_reachable(start, end, position, alignments[0])

    def is_reachable(self, start: int, end: int, position: int, alignment: int | None) -> bool:
        """Return True if a chunk of tokens [start, end) can leave the state after `position` tokens inside it."""
        return is_reachable(start, end, position, alignment, self._config.hash_block_size, self.block_size)

    def count_chunk(self, request: Request, start: int, end: int) -> Checkpoint | None:
        """Return the checkpoint of a chunk of tokens [start, end) whose blocks are counted next; None for none.

        With a retention interval of 0, only the chunk that ends the prefill has one.
        """
        position, entry = self.last_hit_end(end, self.hit_unit), self._num_blocks(end) - 2
        table, alignment = request.block_tables[self.index], self.spec.checkpoint_alignment
        is_wanted = self._config.retention_interval != 0 or end >= prefill_end(request)
        self._counted = None
        if is_wanted and self.is_reachable(start, end, position, alignment) and self._is_vacant(request, table, entry):
            self._counted = Checkpoint(position, entry)
        return self._counted

    def _is_vacant(self, request: Request, table: list[int], entry: int) -> bool:
        if entry >= len(table) or table[entry] == self._pool.null_block:
            return True
        return request.request_id in self._planned and entry >= len(table) - self.num_scratch

    def begin_chunk(self, request: Request, start: int, end: int) -> None:
        """Note the checkpoint of a request's next chunk, if any."""
        self._set_checkpoint(request, self.count_chunk(request, start, end))

    def _set_checkpoint(self, request: Request, checkpoint: Checkpoint | None) -> None:
        if self.checkpoint(request) != checkpoint:
            self._journal.put(self._checkpoints, request.request_id, checkpoint)

    def checkpoint(self, request: Request) -> Checkpoint | None:
        """Return the checkpoint of a request's newest chunk; None for a chunk without one."""
        return self._checkpoints.get(request.request_id)

    # -- counting ------------------------------------------------------------------------------------------------------

    def max_blocks_held(self, num_tokens: int) -> int:
        """Return one more block if chunks leave checkpoints."""
        held = super().max_blocks_held(num_tokens)
        most = self._num_blocks(num_tokens) + self.num_scratch
        return held if self.spec.checkpoint_alignment is None else min(held + 1, most)

    def num_own_blocks(self, num_hit: int, num_blocks: int) -> int:
        """Return one more state if the chunk has a checkpoint."""
        return min(1 + (self._counted is not None), num_blocks - num_hit)

    def first_written(self, request: Request, num_tokens: int) -> int:
        """Return the checkpoint's entry, if the chunk has one."""
        checkpoint = self.checkpoint(request)
        return super().first_written(request, num_tokens) if checkpoint is None else checkpoint.entry

    def slots(self, request: Request, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return the block of the running state, preceded by that of the checkpoint, if there is one."""
        runs, table = super().slots(request, start, end), request.block_tables[self.index]
        checkpoint = self.checkpoint(request)
        if checkpoint is None or table[checkpoint.entry] == self._pool.null_block:
            return runs
        return (table[checkpoint.entry], 0, 1), *runs

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the states."""
        super().free(request, reason)
        self._set_checkpoint(request, None)

    # -- cached content ------------------------------------------------------------------------------------------------

    def register(self, request: Request, num_tokens: int) -> None:
        """Register states, then replace the key of the checkpoint's block with that of the tokens its state saw."""
        super().register(request, num_tokens)
        if (checkpoint := self.checkpoint(request)) is not None:
            self.register_checkpoint(request, checkpoint)

    def register_checkpoint(self, request: Request, checkpoint: Checkpoint) -> Key | None:
        """Register a checkpoint that a request can hit: at a prompt's last hit, the interval, or a junction.

        Returns its key; None if it is already registered or should not be.
        """
        position, block_id = checkpoint.num_tokens, request.block_tables[self.index][checkpoint.entry]
        link = position // self._config.hash_block_size - 1
        is_kept = position == self.last_hit_end(request.num_prompt_tokens, self.hit_unit)
        is_kept |= position % self.block_size == 0 and self.is_kept_by_interval(position)
        is_kept |= position == request.shared_prefix_boundary
        if block_id == self._pool.null_block:
            return None
        block, key = self._pool.blocks[block_id], (self.index, request.block_hashes[link])
        if is_kept and key in block.keys:
            return None
        if block.keys:
            self._pool.evict(block, "replaced")
        if not is_kept:
            return None
        if position == (checkpoint.entry + 1) * self.block_size:
            self.register_block(request, checkpoint.entry)
            return key
        mapped = self._merge_policy.mapped_after(self._pool.prefix_map.get(key, ()), block_id)
        self._pool.register(block, key, block.token_ids, request.prefix_at(link), mapped)
        if BlockCached in self._hooks:
            event = BlockCached(
                block_id, request.request_id, self.index, checkpoint.entry, key[1], mapped, is_full=False
            )
            self._hooks.emit(event)
        return key


def prefill_end(request: Request) -> int:
    """Return where a request's prefill ends: with its prompt or, after a preemption, before its newest token."""
    return max(request.num_prompt_tokens, request.num_tokens - 1)


def is_reachable(start: int, end: int, position: int, alignment: int | None, link: int, block_size: int) -> bool:
    """Return True if a chunk of tokens [start, end) can leave the state after `position` tokens in a separate block.

    The chunk has to begin at the end of a link (of `link` tokens) and to be longer than one; the state that it begins
    with is in an entry before the one taken. alignment: see GroupSpec.checkpoint_alignment. Source: vLLM's
    is_mamba_prefill_checkpoint_valid (0.32).
    """
    return (
        alignment is not None
        and start % link == 0
        and -(-end // block_size) - 2 > (start - 1) // block_size
        and start + link <= position < end
        and (position - start) % alignment == 0
    )
