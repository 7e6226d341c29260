"""Finding KV that was computed before: the hash chain, the map from hash to block, and what to do with duplicates."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence

from labengine.core.block import Block, Key
from labengine.core.journal import Journal


class HashChain:
    """Names a full block by its tokens and everything before them: hash = H(parent's hash, token ids).

    KV depends on all earlier tokens, so the name must too; equal hashes then mean equal KV.
    """

    def root(self, cache_salt: str | None) -> bytes:
        """The parent of a first block; requests share blocks only under equal salts.

        Not the function of `link`: with the same one, a salt could spell the tokens of somebody's block.
        """
        return b"" if cache_salt is None else hashlib.blake2b(cache_salt.encode(), digest_size=32).digest()

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """The hash of a block of token_ids that follows parent_hash."""
        return hashlib.sha256(parent_hash + array("q", token_ids).tobytes()).digest()


class PrefixMap:
    """Block ids by (group, hash), the one served first. An entry may lead to a free block: still an ordinary hit."""

    __slots__ = ("_ids", "_journal")

    def __init__(self, journal: Journal) -> None:
        self._ids: dict[Key, tuple[int, ...]] = {}
        self._journal = journal

    def get(self, key: Key) -> tuple[int, ...]:
        """The blocks registered under a key; empty for a miss."""
        return self._ids.get(key, ())

    def items(self) -> Iterator[tuple[Key, tuple[int, ...]]]:
        """All entries."""
        return iter(self._ids.items())

    def set(self, key: Key, block_ids: tuple[int, ...]) -> None:
        """Replace an entry; an empty one is removed."""
        self._journal.record(self._put, key, self._ids.get(key, ()))
        self._put(key, block_ids)

    def _put(self, key: Key, block_ids: tuple[int, ...]) -> None:
        if block_ids:
            self._ids[key] = block_ids
        else:
            self._ids.pop(key, None)


class MergePolicy:
    """What becomes of a full block whose hash the map already holds. This base overwrites: the last hasher wins.

    Source: nano-vLLM issue 219; the block served before may stay alive, and then nobody can find it.
    """

    def merge_target(
        self, mapped: Sequence[Block], block: Block, token_ids: Sequence[int], parent_hash: bytes
    ) -> Block | None:
        """The equal block that should take this one's place in its request's table, or None to keep this one."""
        return None

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        """The map's entry once block_id is registered too."""
        return (block_id,)

    def is_equal(self, other: Block, token_ids: Sequence[int], parent_hash: bytes) -> bool:
        """A hash can collide, at look-up and at merging alike: compare what it stands for."""
        return other.token_ids == tuple(token_ids)


class LateMerge(MergePolicy):
    """Point the request at the equal live block and free its own copy. Source: nano-vLLM PR 243."""

    def merge_target(
        self, mapped: Sequence[Block], block: Block, token_ids: Sequence[int], parent_hash: bytes
    ) -> Block | None:
        """The first live block of equal content."""
        for other in mapped:
            if other is not block and self.is_alive(other) and self.is_equal(other, token_ids, parent_hash):
                return other
        return None

    def is_alive(self, other: Block) -> bool:
        """A free block must not be merged into: it is in the queue, and about to be given to somebody else."""
        return other.ref_count > 0


class LateMergeComparingParents(LateMerge):
    """Late merge that also compares the parent: equal tokens after different prefixes have different KV."""

    def is_equal(self, other: Block, token_ids: Sequence[int], parent_hash: bytes) -> bool:
        """Own tokens and the chain before them."""
        return other.parent_hash == parent_hash and other.token_ids == tuple(token_ids)
