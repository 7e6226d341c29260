"""Contents by name: what each registered hash stands for, and which hash stands for the KV that a block holds."""

from __future__ import annotations

from collections import OrderedDict

from labengine.check.slot_memory import Identities, Page
from labengine.core.block import Key

MAX_NAMES = 100_000
"""Hashes to keep; beyond that the oldest are forgotten."""


class NamedContents:
    """Learns from registered blocks. Contents are kept as 61 bits of a hash over the identities of their slots."""

    def __init__(self) -> None:
        self._claims: OrderedDict[Key, int | None] = OrderedDict()
        """What a key stands for; None where two contents have the same hash."""
        self._names: dict[tuple[int, int], bytes] = {}

    def learn(self, key: Key, identities: Identities) -> None:
        """Note that a request has registered a block of its own tokens under this key."""
        digest = hash(tuple(identities))
        if self._claims.setdefault(key, digest) != digest:
            self._claims[key] = None
        self._names.setdefault((key[0], digest), key[1])
        if len(self._claims) > MAX_NAMES:
            (group, block_hash), oldest = self._claims.popitem(last=False)
            if oldest is not None and self._names.get((group, oldest)) == block_hash:
                del self._names[group, oldest]

    def other_than(self, key: Key, page: Page | None) -> bytes | None:
        """Return the hash of the content of a page, empty for no known one; None if it is what the key stands for.

        None also for a key that is unknown, or stands for two contents: then it claims nothing.
        """
        claimed = self._claims.get(key)
        digest = None if page is None or None in page.slots else hash(tuple(page.slots))
        if claimed is None or (page is not None and page.group == key[0] and digest == claimed):
            return None
        return b"" if page is None or digest is None else self._names.get((page.group, digest), b"")
