"""Treatment of a block whose hash another block already has: late merge, or two copies."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.block import Block
from labengine.core.request import Request


class MergePolicy:
    """Treatment of a full block whose hash is already in the map. This base class overwrites: the last hasher wins.

    Source: nano-vLLM issue 219. The block served before may stay alive, and then no look-up finds it.
    """

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        """Return the equal block to put into the request's table instead; here None, so every copy stays."""
        return None

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Return this block alone: the last hasher wins the entry, even if other blocks hold the same content.

        An empty tuple would leave the map unchanged, without this block.
        """
        return (block_id,)

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """Compare the block's own tokens, as nano-vLLM does: a hash can collide, at look-up and at merging alike.

        link: the link of the request's hash chain that the block ends with.
        """
        return other.prefix is not None and other.prefix.token_ids == request.links[link]


class KeepDuplicates(MergePolicy):
    """Every block stays, and the map holds them all, oldest first; hashes are trusted. Source: vLLM's block pool."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Append the block to the mapped ones: the oldest is served first, and none is lost."""
        return mapped if block_id in mapped else (*mapped, block_id)

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """Trust the hash: with 256 bits no comparison is needed."""
        return True


class LateMerge(MergePolicy):
    """Point the request at the equal live block and free its own copy. Source: nano-vLLM PR 243."""

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        """Return the first live block of equal content: it stays, and this copy goes back to the pool."""
        for other in mapped:
            if other is not block and self.is_alive(other) and self.is_equal(other, request, link):
                return other
        return None

    def is_alive(self, other: Block) -> bool:
        """Return False for a free block, which is about to be given to another request."""
        return other.ref_count > 0


class LateMergeComparingPrefixes(LateMerge):
    """Late merge that compares complete prefixes: equal tokens after different prefixes have different KV."""

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """Compare the block's own tokens and all before them exactly, whatever the hash."""
        return other.prefix is not None and request.has_prefix(other.prefix, link)
