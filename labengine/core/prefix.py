"""Exact prefixes: the tokens that a hash stands for."""

from __future__ import annotations


class Prefix:
    """Tokens after everything before them, which KV is a function of: a chain of links of hash_block_size tokens.

    The first link's parent is a root that holds the request's extra keys instead of tokens. Requests that hit the same
    blocks share links, so that equal chains soon are one object, and comparing them takes one step.
    """

    __slots__ = ("num_links", "parent", "token_ids")

    def __init__(self, parent: Prefix | None, token_ids: tuple[object, ...]) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.num_links: int = 0 if parent is None else parent.num_links + 1
        """Links up to this one; 0 for a root."""


NO_KEYS = Prefix(None, ())
"""The root of all requests without extra keys."""
