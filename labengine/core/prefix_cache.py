"""The prefix cache: the hash chain, the map from hash to block, and the policy for duplicates."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from labengine.core.block import Block, Key
from labengine.core.request import ExtraKeys, Request


class HashChain:
    """Hashes of full blocks, each over the block's tokens and everything before: hash = H(parent's hash, token ids).

    KV depends on all earlier tokens, so the hash must too; equal hashes then mean equal KV.
    """

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the parent hash of a first block; requests share blocks only under equal extra keys.

        It is not computed as `link` does: then a salt could spell the tokens of another request's block. Each key is
        hashed on its own first, so that no two lists of keys give the same bytes.
        """
        if not extra_keys:
            return b""
        parts = (hashlib.blake2b(text.encode(), digest_size=32).digest() for pair in extra_keys for text in pair)
        return hashlib.blake2b(b"".join(parts), digest_size=32).digest()

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return the hash of a block of token_ids that follows parent_hash."""
        return hashlib.sha256(parent_hash + array("q", token_ids).tobytes()).digest()


PrefixMap = dict[Key, tuple[int, ...]]
"""Block ids by (group, hash), the one served first. An entry may lead to a free block: a look-up still finds it.

Only the block pool changes it.
"""


class MergePolicy:
    """Treatment of a full block whose hash the map already holds. This base overwrites: the last hasher wins.

    Source: nano-vLLM issue 219; the block served before may stay alive, and then no look-up finds it.
    """

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        """Return the equal block to put into the request's table instead of this one; here None: every copy stays."""
        return None

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Return this block alone: the last hasher wins the entry, even if other blocks hold the same content.

        An empty tuple would leave the map unchanged: the block stays out of it.
        """
        return (block_id,)

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """Compare the block's own tokens, as nano-vLLM does: a hash can collide, at look-up and at merging alike.

        link: the link of the request's hash chain that the block ends with.
        """
        return other.prefix is not None and other.prefix.token_ids == request.links[link]


class KeepDuplicates(MergePolicy):
    """Every block stays and the map holds them all, oldest first; hashes are trusted. Source: vLLM's block pool."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Return the block behind those that are there: the oldest is served first, and none is lost."""
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
        """Return False for a free block: it is in the queue, about to be given to another request."""
        return other.ref_count > 0


class LateMergeComparingPrefixes(LateMerge):
    """Late merge that compares complete prefixes: equal tokens after different prefixes have different KV."""

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """Compare the block's own tokens and all before them exactly, whatever the hash."""
        return other.prefix is not None and request.has_prefix(other.prefix, link)
