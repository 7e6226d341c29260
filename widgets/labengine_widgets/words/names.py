"""The letters of contents: p, q, r, in order of appearance."""

from __future__ import annotations

from collections.abc import Container, Hashable

_CONTENT_LETTERS = "pqrstuvwxyz"


def content_name(index: int) -> str:
    """Return a content's name: p to z, then p1 to z1, p2 ..."""
    rounds, letter = divmod(index, len(_CONTENT_LETTERS))
    return _CONTENT_LETTERS[letter] + (str(rounds) if rounds else "")


def content_number(name: str) -> int:
    """Return the number of the content with this name, the inverse of `content_name`."""
    return _CONTENT_LETTERS.index(name[0]) + len(_CONTENT_LETTERS) * int(name[1:] or 0)


class ContentIndex:
    """The numbers of contents, in order of appearance: equal contents have equal letters and hues.

    A block's content is known by the tokens before and in it as soon as its KV is written, and by its hash once that is
    registered; the first hash registered for a prefix takes over its number. Another hash of the same prefix (a salt)
    is another content.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._hashed: set[int] = set()
        self._next = 0

    def of_prefix(self, prefix: Hashable) -> int:
        """Return the number of a prefix; a new prefix gets a new number."""
        return self._number(("prefix", prefix))

    def of_hash(self, key: Hashable, prefix: Hashable | None = None) -> int:
        """Return the number of a registered hash; a new hash takes its prefix's number, if no other hash has it."""
        if (known := self._numbers.get(("hash", key))) is not None:
            return known
        number = None if prefix is None else self.of_prefix(prefix)
        if number is None or number in self._hashed:
            number = self._number(("hash", key))
        self._numbers["hash", key] = number
        self._hashed.add(number)
        return number

    def number_of_hash(self, key: Hashable) -> int | None:
        """Return the number of a registered hash; None for an unknown hash, which gets no number."""
        return self._numbers.get(("hash", key))

    def link(self, prefix: Hashable, key: Hashable) -> None:
        """Note that a hash and a prefix are one content: a look-up for the prefix found a block with the hash."""
        self._numbers.setdefault(("prefix", prefix), self.of_hash(key))

    def __len__(self) -> int:
        return len(self._numbers)

    def forget_all_but(self, kept: Container[int]) -> None:
        """Forget all other contents. A forgotten content that appears again gets a new number."""
        self._numbers = {key: number for key, number in self._numbers.items() if number in kept}
        self._hashed = {number for number in self._hashed if number in kept}

    def _number(self, key: Hashable) -> int:
        if key not in self._numbers:
            self._numbers[key] = self._next
            self._next += 1
        return self._numbers[key]
