"""Belady's bound: the hits of a pool that knows all future prompts."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from heapq import heappop, heappush

from labengine.prefix_doctor.traffic.prompt import Prompt

MOST_BLOCKS = 4_000_000
"""Blocks whose last use is remembered; a use after this many others counts as the first one. The bound is never below
the hits of an LRU pool of at most this size."""

_NONE = -1


class Bound:
    """The most blocks that prompts can hit in a pool of any size, whatever the pool evicts.

    The pool may keep any of its blocks, and any of the newest prompt's, and need not keep the newest prompt's. Keeping
    those with the nearest next use is then optimal (Belady 1966). A prefix is used whenever its continuation is, so the
    optimum keeps it at least as long, and each hit has its whole prefix. All blocks with the same next use are worth
    the same, so only their number is kept: a pair of prompts that share blocks takes 24 bytes.
    """

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most_blocks = most_blocks
        self._last_use: dict[Hashable, int] = {}
        self._newest = array("q")
        """Per prompt its newest pair; a pair names the one before it."""
        self._next_uses, self._counts, self._before = array("q"), array("q"), array("q")

    def add(self, blocks: Sequence[Hashable], num_countable: int) -> None:
        """Add the next prompt. blocks: its full blocks, those of its answer too; equal for equal prefixes.

        num_countable: of these, the ones that its look-up may hit.
        """
        number, last_use = len(self._newest), self._last_use
        shared = Counter[int]()
        for place, block in enumerate(blocks):
            before = last_use.pop(block, _NONE)
            if before != _NONE and place < num_countable:
                shared[before] += 1
            last_use[block] = number
        while len(last_use) > self._most_blocks:
            del last_use[next(iter(last_use))]
        self._newest.append(_NONE)
        for before, count in shared.items():
            self._add_pair(before, number, count)

    def _add_pair(self, prompt: int, next_use: int, count: int) -> None:
        self._before.append(self._newest[prompt])
        self._newest[prompt] = len(self._counts)
        self._next_uses.append(next_use)
        self._counts.append(count)

    def _uses_after(self, prompt: int) -> Iterator[tuple[int, int]]:
        """Yield (prompt that uses them next, number) of a prompt's blocks."""
        pair = self._newest[prompt]
        while pair != _NONE:
            yield self._next_uses[pair], self._counts[pair]
            pair = self._before[pair]

    def most_hits(self, num_blocks: int) -> int:
        """Return the most blocks that the prompts can hit in a pool of num_blocks."""
        kept, farthest = Counter[int](), list[int]()
        num_kept = num_hits = 0
        for prompt in range(len(self._newest)):
            found = kept.pop(prompt, 0)
            num_hits, num_kept = num_hits + found, num_kept - found
            for next_use, count in self._uses_after(prompt):
                if next_use not in kept:
                    heappush(farthest, -next_use)
                kept[next_use] += count
                num_kept += count
            if num_kept > num_blocks:
                _evict(kept, farthest, num_kept - num_blocks)
                num_kept = num_blocks
        return num_hits


def _evict(kept: Counter[int], farthest: list[int], num_blocks: int) -> None:
    while num_blocks:
        next_use = -farthest[0]
        gone = min(kept[next_use], num_blocks)
        kept[next_use] -= gone
        num_blocks -= gone
        if not kept[next_use]:
            del kept[next_use]
            heappop(farthest)


def blocks_of(prompt: Prompt, block_size: int) -> tuple[list[int], int]:
    """Return a prompt's full blocks, equal for equal prefixes under equal keys, and how many of them it may hit.

    The last token of a prompt is always computed, because the first token of the answer needs its logits.
    """
    tokens = [*prompt.token_ids, *prompt.answer]
    images = tuple((image[0], image[2]) for image in prompt.images)
    above = hash((prompt.extra_keys, images))
    blocks = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        above = hash((above, *tokens[start : start + block_size]))
        blocks.append(above)
    return blocks, 0 if prompt.skips_cache else (len(prompt.token_ids) - 1) // block_size
