"""One physical block of KV slots, as the core sees it: its reference count and its known content."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.core.prefix import Prefix

Key = tuple[int, bytes]
"""(group, block hash): a key of the prefix map. The hash names the block's tokens and everything before them."""


@dataclass(slots=True)
class Block:
    """One block: ref_count table entries point to it; at 0 it is in the free queue. Content stays known until reuse."""

    block_id: int
    ref_count: int = 0
    keys: tuple[Key, ...] = ()
    """The hashes this block was registered under; the map may serve another block for them."""
    token_ids: tuple[int, ...] = ()
    """The block's own tokens; empty until it is full and registered."""
    prefix: Prefix | None = None
    """The exact prefix that the first of the keys stands for: these tokens, after all before them."""
