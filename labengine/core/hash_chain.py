"""Block hashes: a chain over a request's full blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import blake2b, sha256
from struct import Struct

from labengine.core.request import BlockKeys, ExtraKeys


class HashChain:
    """Hashes of full blocks, each over the block's tokens and everything before: hash = H(parent's hash, token ids).

    KV depends on all earlier tokens, so the hash must too. Equal hashes then mean equal KV.
    """

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the parent hash of a first block; requests share blocks only under equal extra keys.

        It is not computed like `link`, because a salt could then imitate the tokens of another request's block. Each
        key is first hashed separately, so that no two lists of keys give the same bytes.
        """
        return _digest(text for pair in extra_keys for text in pair) if extra_keys else b""

    def keyed(self, parent_hash: bytes, keys: BlockKeys) -> bytes:
        """Return the parent hash of a block with its own keys: those of the images that its tokens stand for."""
        return _digest((parent_hash.hex(), *(str(part) for key in keys for part in key)), b"block keys")

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return the hash of a block of token_ids that follows parent_hash."""
        return sha256(parent_hash + _packing(len(token_ids))(*token_ids)).digest()


@cache
def _packing(num_tokens: int) -> Callable[..., bytes]:
    """Return the function that packs so many token ids, 8 bytes each: three times as fast as an array."""
    return Struct(f"{num_tokens}q").pack


def _digest(texts: Iterable[str], kind: bytes = b"") -> bytes:
    """Return a digest that is unique to these texts and this kind."""
    parts = (blake2b(text.encode(), digest_size=32).digest() for text in texts)
    return blake2b(b"".join(parts), digest_size=32, person=kind).digest()
