"""One physical block of KV slots as the core sees it: its reference count, and the exact prefix that it holds."""

from __future__ import annotations

from dataclasses import dataclass


class Prefix:
    """Tokens and everything before them, on which KV depends: a chain of links of hash_block_size tokens.

    The first link's parent is a root that holds the request's extra keys instead of tokens. Requests that hit the same
    blocks share links, so equal chains soon become one object, and comparing them takes one step.
    """

    __slots__ = ("num_links", "parent", "token_ids")

    def __init__(self, parent: Prefix | None, token_ids: tuple[object, ...]) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.num_links: int = 0 if parent is None else parent.num_links + 1
        """Links up to this one; 0 for a root."""


NO_KEYS = Prefix(None, ())
"""The root of all requests without extra keys."""


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


PrefixMap = dict[Key, tuple[int, ...]]
"""Block ids by (group, hash), the served one first. An entry may lead to a free block; a look-up still finds it.

Only the block pool changes the map.
"""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A block to copy before the forward pass, because the request is about to write to it and others read it."""

    group: int
    block_id: int
    into_block_id: int
    request_id: int
    index: int
    """The entry of the request's table that leads to the copy."""
    is_pinned: bool = False
    """True if both blocks have an extra reference until the step is planned; the copy is made in any case."""
