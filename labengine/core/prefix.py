"""Prefixes, told exactly: what a hash only promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labengine.core.request import Request


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


def prefix_of(request: Request, link: int) -> Prefix:
    """The request's prefix that ends with this link of its hash chain."""
    prefixes = request.prefixes
    while len(prefixes) <= link:
        prefixes.append(Prefix(prefixes[-1] if prefixes else request.root, request.links[len(prefixes)]))
    return prefixes[link]


def is_prefix_of(prefix: Prefix, request: Request, link: int) -> bool:
    """True when prefix is the request's, token by token up to this link. The request then makes it its own."""
    own = request.prefixes
    if link < len(own):
        if own[link] is prefix:
            return True
    elif link == len(own) and prefix.parent is (own[-1] if own else request.root):
        if prefix.token_ids != request.links[link]:
            return False
        own.append(prefix)
        return True
    return _is_same_chain(prefix, request, link)


def _is_same_chain(prefix: Prefix, request: Request, link: int) -> bool:
    """Compare link by link, up to where the two chains meet."""
    own, links, chain = request.prefixes, request.links, []
    above: Prefix | None = prefix
    for number in range(link, -1, -1):
        if above is None or (number < len(own) and own[number] is above):
            break
        if above.token_ids != links[number]:
            return False
        chain.append(above)
        above = above.parent
    else:
        if above is None or above.parent is not None or above.token_ids != request.extra_keys:
            return False
        number = -1
    if above is None:
        return False
    own[number + 1 : link + 1] = reversed(chain)
    return True
