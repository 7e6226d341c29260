"""Contents by name: the content that each registered hash stands for, and the hash that stands for a block's KV."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from labengine.check.slot_memory import Page
from labengine.core.block import Key

MAX_NAMES = 100_000
"""Most hashes to keep; the oldest are forgotten first."""


class Claim(NamedTuple):
    """The content that a key stands for: the KV of a request's own tokens, in one entry of its block table."""

    digest: int
    """61 bits of a hash over the identities of the slots."""
    request_id: int
    entry: int


class NamedContents:
    """Learns from registered blocks. A key that stands for two contents claims nothing."""

    def __init__(self) -> None:
        self._claims: OrderedDict[Key, Claim] = OrderedDict()
        self._ambiguous: set[Key] = set()
        self._outdated: set[Key] = set()
        """Keys not registered again since the newest reset: new weights may give them another content."""
        self._names: dict[tuple[int, int], bytes] = {}

    def learn(self, key: Key, claim: Claim) -> Claim | None:
        """Note that a request has registered a block of its own tokens under this key.

        Returns an earlier claim to other content, at the first conflict only.
        """
        if key in self._outdated:
            self._forget(key)
        earlier = self._claims.setdefault(key, claim)
        if earlier.digest != claim.digest:
            is_first = key not in self._ambiguous
            self._ambiguous.add(key)
            return earlier if is_first else None
        self._names.setdefault((key[0], claim.digest), key[1])
        if len(self._claims) > MAX_NAMES:
            self._forget(next(iter(self._claims)))
        return None

    def reset(self) -> None:
        """Note that all cached content was forgotten."""
        self._outdated.update(self._claims)

    def unlearn_second(self, key: Key) -> None:
        """Forget that a key stands for two contents: the step that registered the second one was rolled back."""
        self._ambiguous.discard(key)

    def claim(self, key: Key) -> Claim | None:
        """Return what a key stands for; None for an unknown key, or one that stands for two contents."""
        return None if key in self._ambiguous else self._claims.get(key)

    def other_than(self, key: Key, page: Page | None) -> bytes | None:
        """Return the hash of a page's content, empty if unknown; None if it is the content that the key stands for.

        None also for a key that claims nothing.
        """
        claim = self.claim(key)
        if claim is None or holds(page, key[0], claim):
            return None
        return b"" if page is None else self._names.get((page.group, hash(tuple(page.slots))), b"")

    def _forget(self, key: Key) -> None:
        claim = self._claims.pop(key)
        self._ambiguous.discard(key)
        self._outdated.discard(key)
        if self._names.get((key[0], claim.digest)) == key[1]:
            del self._names[key[0], claim.digest]


def holds(page: Page | None, group: int, claim: Claim) -> bool:
    """Return whether a page of this group holds the complete content of a claim."""
    return page is not None and page.group == group and hash(tuple(page.slots)) == claim.digest
