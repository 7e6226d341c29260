"""Prefix identities: one number for everything that KV depends on (a token, all tokens before it, the extra keys)."""

from __future__ import annotations

from typing import Protocol

from labengine.core.request import ExtraKeys


class Identified(Protocol):
    """The inputs of a request's KV."""

    @property
    def token_ids(self) -> list[int]: ...
    @property
    def extra_keys(self) -> ExtraKeys: ...


class Requests(Protocol):
    """Requests by id."""

    def __getitem__(self, request_id: int, /) -> Identified: ...


class PrefixIdentities:
    """For each request, one number per position: equal numbers mean equal prefixes, and so equal KV.

    The numbers are 61 bits of a hash: two of a million prefixes collide once in five million labs. The scheme
    has nothing in common with the core's hash chain, whose mistakes it has to find.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._known: dict[int, list[int]] = {}

    def up_to(self, request_id: int, end: int) -> list[int]:
        """Return the identities of positions 0 to end - 1, and perhaps more: the kept list, not to be changed.

        Shorter only when the request itself is shorter.
        """
        known = self._known.get(request_id)
        if known is None:
            known = self._known[request_id] = []
        if len(known) < end:
            request = self._requests[request_id]
            identity = known[-1] if known else _root(request)
            for token_id in request.token_ids[len(known) : end]:
                identity = hash((identity, token_id))
                known.append(identity)
        return known

    def forget(self, request_id: int) -> None:
        """Drop a finished request's numbers; they are computed anew if needed again."""
        self._known.pop(request_id, None)


def _root(request: Identified) -> int:
    """Hash the extra keys that change KV.

    (A cache salt separates requests without changing it; an adapter changes it.)
    """
    changing = tuple(pair for pair in request.extra_keys if pair[0] != "cache_salt")
    return hash(changing) if changing else 0
