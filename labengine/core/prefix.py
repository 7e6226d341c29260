"""Prefixes, told exactly: what a hash only promises."""

from __future__ import annotations


class Prefix:
    """Tokens after everything before them: what KV is a function of. A chain of links of hash_block_size tokens.

    The first link hangs on a root that holds the request's extra keys instead of tokens. Requests that meet in the
    cache share their links, so that two equal chains are soon one, and comparing them takes one look.
    """

    __slots__ = ("num_links", "parent", "token_ids")

    def __init__(self, parent: Prefix | None, token_ids: tuple[object, ...]) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.num_links: int = 0 if parent is None else parent.num_links + 1
        """Links up to this one; 0 for a root."""


NO_KEYS = Prefix(None, ())
"""The root of all requests without extra keys."""
