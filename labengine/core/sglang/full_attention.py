"""SGLang's insertion, which splits at the end of the prompt, and its groups of frees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.matching import MatchedGroup
from labengine.core.radix.node import Node
from labengine.core.request import Request
from labengine.events import FreeReason


class SglangGroup(MatchedGroup):
    """Inserts the prompt a second time, and frees blocks in groups. Source: UnifiedRadixCache.checkpoint_into_tree."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._frees: list[Callable[[], object]] | None = None
        """What waits to be freed together, in order; None outside a group of frees."""

    def insert(self, request: Request, num_blocks: int) -> Node:
        """Insert the blocks, then the prompt again: a node ends with it, so generated tokens can be evicted alone."""
        node = super().insert(request, num_blocks)
        num_of_prompt = request.num_prompt_tokens // self.block_size
        if 0 < num_of_prompt < num_blocks:
            self.tree.insert(request, request.block_tables[self.index][:num_of_prompt])
        return node

    def merge_into(self, request: Request, node: Node, indices: Iterable[int]) -> None:
        """Replace the request's own blocks with the node's, and free them together."""
        with self.freed_together():
            super().merge_into(request, node, indices)

    def release(self, request: Request, block_ids: Sequence[int], indices: Sequence[int], reason: FreeReason) -> None:
        """Drop references; inside a group of frees, when it ends."""
        self.free_in_group(lambda: super(SglangGroup, self).release(request, block_ids, indices, reason))

    def free_in_group(self, free: Callable[[], object]) -> None:
        """Free something when the open group of frees ends; at once if none is open."""
        if self._frees is None:
            free()
        else:
            self._frees.append(free)

    @contextmanager
    def freed_together(self) -> Iterator[None]:
        """Collect what is freed inside, and queue it at the end in the order in which it was freed.

        A queue that grows at its head gets the last blocks first. Inside another group, this one has no effect.
        """
        if self._frees is not None:
            yield
            return
        frees: list[Callable[[], object]] = []
        self._journal.record((setattr, self, "_frees", None))
        self._frees = frees
        try:
            yield
        finally:
            self._frees = None
        is_paged = cast(RadixBlockPool, self._pool).freed_go_to == "head"
        for free in reversed(frees) if is_paged else frees:
            free()
