"""Prefixes that prompts have had, and the newest prompts' tokens, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Generic, TypeVar

from labengine.prefix_doctor.traffic.packing import as_array

Found = TypeVar("Found")

MAX_ENTRIES = 2_500_000
"""Entries of each of the two generations."""

MAX_TOKENS = 32_000_000
"""Tokens kept of the newest prompts."""


class Generations(Generic[Found]):
    """A dictionary that forgets: once the younger generation is full, the older one goes.

    An entry that is read and still wanted has to be written again.
    """

    def __init__(self, most: int = MAX_ENTRIES) -> None:
        self._most = most
        self._young: dict[bytes, Found] = {}
        self._old: dict[bytes, Found] = {}
        self.has_forgotten = False

    def get(self, key: bytes) -> Found | None:
        """Return what was written last, if it is still known."""
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def has(self, key: bytes) -> bool:
        """Return True if something is known."""
        return key in self._young or key in self._old

    def write_all(self, keys: Sequence[bytes], value: Found) -> None:
        """Write one value under all these keys; once the younger generation is full, the older one goes."""
        self._young.update(dict.fromkeys(keys, value))
        if len(self._young) > self._most:
            self.has_forgotten = self.has_forgotten or bool(self._old)
            self._old, self._young = self._young, {}


class RecentTokens:
    """The tokens of the newest prompts by number."""

    def __init__(self, most: int = MAX_TOKENS) -> None:
        self._most, self._kept = most, 0
        self._tokens: dict[int, array[int]] = {}

    def add(self, number: int, token_ids: Sequence[int]) -> None:
        """Keep a prompt, and forget the oldest ones beyond the limit."""
        if number in self._tokens:
            return
        self._tokens[number] = as_array(token_ids)
        self._kept += len(token_ids)
        while self._kept > self._most and len(self._tokens) > 1:
            self._kept -= len(self._tokens.pop(next(iter(self._tokens))))

    def get(self, number: int) -> Sequence[int] | None:
        """Return a prompt's tokens, if they are still kept."""
        return self._tokens.get(number)
