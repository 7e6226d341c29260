"""Finding KV that was computed before: the hash chain, the map from hash to block, and what to do with duplicates."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from labengine.core.block import Block, Key
from labengine.core.request import ExtraKeys, Request


class HashChain:
    """Names a full block by its tokens and everything before them: hash = H(parent's hash, token ids).

    KV depends on all earlier tokens, so the name must too; equal hashes then mean equal KV.
    """

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """The parent of a first block; requests share blocks only under equal extra keys.

        Not the function of `link`: with the same one, a salt could spell the tokens of somebody's block. Each key is
        hashed on its own first, so that no two lists of keys spell the same bytes.
        """
        if not extra_keys:
            return b""
        parts = (hashlib.blake2b(text.encode(), digest_size=32).digest() for pair in extra_keys for text in pair)
        return hashlib.blake2b(b"".join(parts), digest_size=32).digest()

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """The hash of a block of token_ids that follows parent_hash."""
        return hashlib.sha256(parent_hash + array("q", token_ids).tobytes()).digest()


PrefixMap = dict[Key, tuple[int, ...]]
"""Block ids by (group, hash), the one served first. An entry may lead to a free block: still an ordinary hit.

Only the block pool changes it.
"""


class MergePolicy:
    """What becomes of a full block whose hash the map already holds. This base overwrites: the last hasher wins.

    Source: nano-vLLM issue 219; the block served before may stay alive, and then nobody can find it.
    """

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        """The equal block that should take this one's place in its request's table; here None: every copy stays."""
        return None

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """The last hasher wins: from now on the entry leads to this block alone, whoever else holds the same.

        An empty tuple would leave the map as it is: the block stays out of it.
        """
        return (block_id,)

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """A hash can collide, at look-up and at merging alike: compare the block's own tokens, as nano-vLLM does.

        link: the link of the request's hash chain that the block ends with.
        """
        return other.prefix is not None and other.prefix.token_ids == request.links[link]


class KeepDuplicates(MergePolicy):
    """Every block stays, and the map holds them all, oldest first. Trusts the hash. Source: vLLM's block pool."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """Behind those that are there: the oldest is served first, and nobody is lost."""
        return mapped if block_id in mapped else (*mapped, block_id)

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """With 256 bits of hash, nobody has to look."""
        return True


class LateMerge(MergePolicy):
    """Point the request at the equal live block and free its own copy. Source: nano-vLLM PR 243."""

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        """The first live block of equal content: it is kept, and this copy of it goes back to the pool."""
        for other in mapped:
            if other is not block and self.is_alive(other) and self.is_equal(other, request, link):
                return other
        return None

    def is_alive(self, other: Block) -> bool:
        """A free block must not be merged into: it is in the queue, and about to be given to somebody else."""
        return other.ref_count > 0


class LateMergeComparingPrefixes(LateMerge):
    """Late merge that compares all a hash stands for: equal tokens after different prefixes have different KV."""

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        """The block's own tokens and all before them, exactly, whatever the hash says."""
        return other.prefix is not None and request.has_prefix(other.prefix, link)
