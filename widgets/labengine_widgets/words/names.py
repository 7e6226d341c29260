"""The names a reader sees: requests A, B, C; contents p, q, r; tokens as text that is safe to show."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Hashable, Iterable, Sequence

from labengine.snapshot import GroupState

_VISIBLE = {"\n": "⏎", "\r": "⏎", "\t": "⇥"}
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
_CONTENT_LETTERS = "pqrstuvwxyz"
HASH_DIGITS = 8
"""Hexadecimal digits of a hash that a reader sees."""


def request_name(request_id: int) -> str:
    """A to Z, then AA, AB ..."""
    name, number = "", request_id + 1
    while number:
        number, digit = divmod(number - 1, 26)
        name = chr(ord("A") + digit) + name
    return name


def content_name(index: int) -> str:
    """Letters p to z, then p1 to z1, p2 ..."""
    rounds, letter = divmod(index, len(_CONTENT_LETTERS))
    return _CONTENT_LETTERS[letter] + (str(rounds) if rounds else "")


def content_number(name: str) -> int:
    """The index that has this name: the other way round."""
    return _CONTENT_LETTERS.index(name[0]) + len(_CONTENT_LETTERS) * int(name[1:] or 0)


def block_name(block_id: int) -> str:
    """#7."""
    return f"#{block_id}"


def block_names(block_ids: Iterable[int]) -> str:
    """'#0, #1 and #2', each once."""
    return listed(map(block_name, dict.fromkeys(block_ids)))


def entry_name(request_id: int, group: int, index: int) -> str:
    """An entry of a block table, counted from 0: "A's table[2]", "A's table[2] of group 1"."""
    return f"{request_name(request_id)}'s table[{index}]{group_suffix(group)}"


def group_suffix(group: int) -> str:
    """' of group 1'; empty for group 0, which most models have alone."""
    return f" of group {group}" if group else ""


def hash_name(block_hash: bytes) -> str:
    """The first digits of a hash."""
    return block_hash.hex()[:HASH_DIGITS] + "…"


def group_name(groups: Sequence[GroupState], group: int) -> str:
    """'full group', 'window group'; with a number from 1 where there are several of a kind."""
    kind = groups[group].kind
    alike = [i for i, other in enumerate(groups) if other.kind == kind]
    number = f" {alike.index(group) + 1}" if len(alike) > 1 else ""
    return f"{'window' if kind == 'sliding_window' else kind} group{number}"


def readable(text: str, limit: int = 160) -> str:
    """Text of unknown origin in one visible line: line ends as signs, control and direction marks as dots."""
    if len(text) > limit:
        return readable(text[: limit - 1], limit) + "…"
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    is_hidden = unicodedata.category(character) in _HIDDEN_CATEGORIES
    return _VISIBLE.get(character) or ("·" if is_hidden else character)


def joined(tokens: Sequence[str]) -> str:
    """Tokens as running text; a model without words has numbers, which need a space between them."""
    return (" " if all(token.isdigit() for token in tokens) else "").join(tokens)


def listed(words: Iterable[str], limit: int = 6) -> str:
    """'#0, #1 and #2'; from `limit` words on the first two and the last one."""
    words = list(words)
    if len(words) > limit:
        return f"{words[0]}, {words[1]} … {words[-1]}"
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "nothing"


def counted(number: int, noun: str) -> str:
    """'1 block', '3 blocks', '1,024 table entries'."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """'blocks', 'hashes', 'entries'."""
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "sh", "ch", "x")) else f"{noun}s"


class ContentIndex:
    """Numbers contents in order of appearance, and keeps each number: equal content, equal letter and hue.

    A block's content is known by the tokens before and in it as soon as its KV is written, and by its hash once that is
    registered; the first hash registered for a prefix takes over its number. Another hash of the same prefix (a salt)
    is another content.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._hashed: set[int] = set()
        self._next = 0

    def of_prefix(self, prefix: Hashable) -> int:
        """The number of a prefix, a new one if it is new."""
        return self._number(("prefix", prefix))

    def of_hash(self, key: Hashable, prefix: Hashable | None = None) -> int:
        """The number of a registered hash; a new hash takes its prefix's number, if no other hash has it."""
        if (known := self._numbers.get(("hash", key))) is not None:
            return known
        number = None if prefix is None else self.of_prefix(prefix)
        if number is None or number in self._hashed:
            number = self._number(("hash", key))
        self._numbers["hash", key] = number
        self._hashed.add(number)
        return number

    def number_of_hash(self, key: Hashable) -> int | None:
        """The number of a registered hash; None where it is not known, and it is not numbered by asking."""
        return self._numbers.get(("hash", key))

    def link(self, prefix: Hashable, key: Hashable) -> None:
        """A block known by this hash was found for this prefix: they are one content."""
        self._numbers.setdefault(("prefix", prefix), self.of_hash(key))

    def __len__(self) -> int:
        return len(self._numbers)

    def forget_all_but(self, kept: Container[int]) -> None:
        """Let contents go that nothing holds or finds any more. Should one come again, it gets a new number."""
        self._numbers = {key: number for key, number in self._numbers.items() if number in kept}
        self._hashed = {number for number in self._hashed if number in kept}

    def _number(self, key: Hashable) -> int:
        if key not in self._numbers:
            self._numbers[key] = self._next
            self._next += 1
        return self._numbers[key]
