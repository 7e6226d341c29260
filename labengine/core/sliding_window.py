"""Sliding-window attention: a token attends to the last `window` tokens, itself included."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.request import Request


class SlidingWindowGroup(KVCacheGroup):
    """A hit needs only the blocks that the window of the first token after it reaches.

    With a window of 4 and 7 computed tokens, token 7 reads 4..7, and tokens 0..3 are skipped:

        0 1 2 3 4 5 6 | 7
        skipped [window ]

    Source: vLLM's SlidingWindowManager (0.32).
    """

    num_steps_in_flight = 1
    """Most steps planned but not booked: a request holds the blocks that each of them fills."""

    @cached_property
    def window(self) -> int:
        """Tokens that a token attends to."""
        assert self.spec.window is not None
        return self.spec.window

    @cached_property
    def num_blocks_for_hit(self) -> int:
        """Consecutive blocks before a hit's end that its next token may read: window - 1 tokens of KV."""
        return self._num_blocks(self.window - 1)

    @cached_property
    def caches_every_block(self) -> bool:  # type: ignore[override]
        """True if hits may end so often that every block is needed for one of the ends."""
        is_dense = self._config.retention_interval is None
        return is_dense and self._num_kept * self.block_size >= self.hit_unit

    @property
    def _num_kept(self) -> int:
        """Blocks before a hit's end that are cached for it, including one that is found and dropped."""
        return self.num_blocks_for_hit + self.drops_last_block

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """Return the number of tokens before the next token's window."""
        return max(0, num_computed_tokens - self.window + 1)

    def max_blocks_held(self, num_tokens: int) -> int:
        """Return the blocks of the window and of unbooked tokens, plus one, as the window may begin inside a block."""
        num_unbooked = self.num_steps_in_flight * self._config.max_num_batched_tokens
        held = self._num_blocks(self.window - 1 + num_unbooked) + 1
        return min(self._num_blocks(num_tokens), held)

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the last run of cached blocks that is long enough, else the run at the start."""
        first, run = self._last_run(request, max_tokens, siblings, num_dropped=0)
        return self._hits(first, run, siblings)

    def find_dropped_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        """Return the last run that is one block longer than a hit needs, without its last block."""
        first, run = self._last_run(request, max_tokens, siblings, num_dropped=1)
        length, every = first + len(run), self._aligned_every
        if len(run) <= self.num_blocks_for_hit:  # a run from the text's start: vLLM also aligns its end before the drop
            length -= length % every
        kept = max(0, length - 1)
        kept -= kept % every
        return self._hits(first, run[first + len(run) - kept :], siblings)

    def _last_run(
        self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup], num_dropped: int
    ) -> tuple[int, list[list[int]]]:
        """Return the index at which the last run of cached blocks begins, and the run, the last block first.

        The run is as long as a hit plus num_dropped blocks, or else begins with the text.
        """
        run: list[list[int]] = []  # one id per sibling
        for index in range(max_tokens // self.block_size - 1, -1, -1):
            found = self._cached_in_all(request, index, siblings)
            if found is None:
                run.clear()
            elif run or not (index + 1 - num_dropped) % self._aligned_every:
                run.append(found)
                if len(run) >= self.num_blocks_for_hit + num_dropped:
                    return index, run
        return 0, run

    def _cached_in_all(self, request: Request, index: int, siblings: Sequence[KVCacheGroup]) -> list[int] | None:
        found: list[int] = []
        for group in siblings:
            block_id = group.cached_block(request, index)
            if block_id is None:
                return None
            found.append(block_id)
        return found

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True for blocks before an end at which all groups can agree; hits need no others.

        With a retention interval such ends are rarer: its multiples, the end before the prompt's last token, where an
        equal prompt's hit ends, and the last end at which other groups had a longer hit than this one.
        """
        interval = self._config.retention_interval
        every = self.hit_unit if interval is None else interval
        shift = int(self.drops_last_block)  # the last block found lies after the hit's end
        if every and self._num_kept * self.block_size >= every:
            return True
        if (
            every
            and index >= shift
            and self._is_before_end(index, -(-(index + 1 - shift) * self.block_size // every) * every)
        ):
            return True
        if interval is None:
            return False
        ends = self.ends_of_prompt(request)
        if request.shared_prefix_boundary:
            ends = (*ends, request.shared_prefix_boundary)
        return any(self._is_before_end(index, end - end % self.hit_unit) for end in ends)

    def _is_before_end(self, index: int, end: int) -> bool:
        last = end // self.block_size + self.drops_last_block
        return last - self._num_kept <= index < last

    def _hits(self, first: int, run: list[list[int]], siblings: Sequence[KVCacheGroup]) -> GroupHit:
        null_blocks = [self._pool.null_block] * first
        return [[*null_blocks, *(found[number] for found in reversed(run))] for number in range(len(siblings))]
