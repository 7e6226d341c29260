"""Names for cached content that no engine's hash function enters: 'g<group>:<tokens>:<digest of salt and tokens>'."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence


def prefix_label(token_ids: Sequence[int], salt: str | None) -> str:
    """'<tokens>:<digest>' of everything up to the end of a block."""
    text = f"{salt or ''}|{','.join(map(str, token_ids))}"
    return f"{len(token_ids)}:{hashlib.sha1(text.encode()).hexdigest()[:12]}"


def prefix_labels(token_ids: Sequence[int], salt: str | None, hash_block_size: int) -> Iterator[str]:
    """Of every full hashed block of a request."""
    for end in range(hash_block_size, len(token_ids) + 1, hash_block_size):
        yield prefix_label(token_ids[:end], salt)


def group_label(group: int, prefix: str) -> str:
    """The label of a prefix in one KV-cache group."""
    return f"g{group}:{prefix}"
