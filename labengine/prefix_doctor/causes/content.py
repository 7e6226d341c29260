"""Text that occurred before, wherever it stood: found by content, in bounded memory.

Positions whose two tokens hash to a certain value are anchors, one in eight. An index leads from the tokens behind each
anchor to the first prompt that had them; from there the equal stretch is extended token by token, so its ends are
exact. Only what a prompt missed is searched and indexed, and an equal stretch is searched once.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from random import Random

from labengine.core.request import Image
from labengine.prefix_doctor.traffic.packing import as_array
from labengine.prefix_doctor.traffic.prompt import TokenText

TOKEN = 4
"""Bytes of a packed token."""

WIDTH = 8
"""Tokens that identify a place. Shorter stretches are never found."""

MIN_STRETCH = 16
"""Shorter stretches count as chance: phrases of a language."""

SELDOM = 64
"""Tokens for one anchor, from which on anchors are too rare."""

MAX_PLACES = 1_500_000
"""Places in each of the index's two generations."""

MAX_TOKENS = 48_000_000
"""Tokens kept of the newest prompts."""

_NUMBER = 32
"""Bits of a place for the position; those above are the prompt's number."""

PICTURE = "<picture>"

_FIRST, _SECOND = (bytes(Random(seed).sample(range(256), 256)) for seed in (1, 2))
_IS_ANCHOR = bytes(value < 32 for value in range(256))


_PICTURE, _IN_PICTURE = 0x4000_0000, 0x6000_0000
"""The first packed token of an image, and its others, are from these numbers on; no vocabulary is as large."""


def packed(token_ids: Sequence[int], images: Sequence[Image] = ()) -> bytes:
    """Return tokens as bytes; the placeholders of an image become its own."""
    tokens = as_array(token_ids)
    if tokens.itemsize > TOKEN:
        tokens = array("i", [token & 0x3FFFFFFF for token in token_ids])
    if images:
        tokens = tokens[:]
    for image in images:
        begin = hash(image.identifier) & 0x0FFF_FFFF
        of_image = [_PICTURE + begin, *range(_IN_PICTURE + begin, _IN_PICTURE + begin + image.length - 1)]
        tokens[image.start : image.start + image.length] = array("i", of_image)
    return tokens.tobytes()


def is_picture(token: int) -> bool:
    """Return True for a packed token that stands for a part of an image."""
    return token >= _PICTURE


def with_pictures(token_text: TokenText) -> TokenText:
    """Return a function for the text of packed tokens, of which only an image's first one has any."""
    return lambda token: ("" if token >= _IN_PICTURE else PICTURE) if is_picture(token) else token_text(token)


def unpacked(data: bytes, start: int, end: int) -> list[int]:
    """Return tokens [start, end)."""
    return array("i", data[TOKEN * start : TOKEN * end]).tolist()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens [start, end) of a prompt that an earlier prompt, `number`, has from its token `there` on."""

    start: int
    end: int
    number: int
    there: int


class Content:
    """The newest prompts, and where their text occurred first."""

    def __init__(self, most_places: int = MAX_PLACES, most_tokens: int = MAX_TOKENS) -> None:
        self._most_places, self._most_bytes = most_places, TOKEN * most_tokens
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._kept: dict[int, bytes] = {}
        self._num_bytes = 0

    def get(self, number: int) -> bytes | None:
        """Return a prompt and its answer, if they are still kept."""
        return self._kept.get(number)

    def add(self, number: int, data: bytes, start: int, key: int = 0) -> list[Stretch]:
        """Return the stretches from token `start` on that earlier prompts had, and keep the prompt for later ones.

        key: prompts with different ones share nothing.
        """
        found = self.search(data, start, key, number)
        self._keep(number, data)
        return found

    def search(self, data: bytes, start: int, key: int = 0, number: int | None = None) -> list[Stretch]:
        """Return the stretches that earlier prompts had. number: note the rest as first said by this prompt."""
        positions = [*anchors(data, start)]
        places = [TOKEN * position for position in positions]
        shingles = [hash(data[at : at + TOKEN * WIDTH]) ^ key for at in places]
        if not self._old.keys().isdisjoint(shingles) or not self._young.keys().isdisjoint(shingles):
            return self._found(data, start, positions, shingles, number)
        if number is not None:
            said = [number << _NUMBER | position for position in positions]
            self._young.update(zip(reversed(shingles), reversed(said), strict=True))  # of equal ones the first stays
        return []

    def _found(
        self, data: bytes, start: int, positions: Sequence[int], shingles: Sequence[int], number: int | None
    ) -> list[Stretch]:
        found, covered = list[Stretch](), start
        young, old, here = self._young, self._old, None if number is None else number << _NUMBER
        for position, shingle in zip(positions, shingles, strict=True):
            if position < covered:
                continue
            place = young.get(shingle)
            if place is None:
                place = old.get(shingle)
                if here is not None:
                    place = young[shingle] = here | position if place is None else place
            if place is None or place >> _NUMBER == number:
                continue
            stretch = self._extended(data, covered, position, place)
            if stretch is not None and stretch.end - stretch.start >= MIN_STRETCH:
                found.append(stretch)
                covered = stretch.end
            elif stretch is None and here is not None:
                young[shingle] = here | position
        return found

    def _extended(self, data: bytes, covered: int, position: int, place: int) -> Stretch | None:
        """Return the longest equal stretch around a position; None if the other prompt is forgotten."""
        number, there = place >> _NUMBER, place & (1 << _NUMBER) - 1
        other = self._kept.get(number)
        if other is None:
            return None
        after = same_after(data, position, other, there)
        before = same_before(data, position, other, there, position - covered)
        return Stretch(position - before, position + after, number, there - before) if after >= WIDTH else None

    def _keep(self, number: int, data: bytes) -> None:
        self._num_bytes += len(data) - len(self._kept.pop(number, b""))
        self._kept[number] = data
        while self._num_bytes > self._most_bytes and len(self._kept) > 1:
            self._num_bytes -= len(self._kept.pop(next(iter(self._kept))))
        if len(self._young) > self._most_places:
            self._old, self._young = self._young, {}


def anchors(data: bytes, start: int) -> Iterator[int]:
    """Yield the anchors from token `start` on. Each depends on its token and the next one only."""
    low = data[TOKEN * start :: TOKEN]
    last = len(low) - WIDTH + 1
    if last <= 0:
        return iter(())
    first, second = low[:last].translate(_FIRST), low[1 : last + 1].translate(_SECOND)
    mixed = int.from_bytes(first, "little") ^ int.from_bytes(second, "little")
    values = mixed.to_bytes(last, "little")
    chosen = values.translate(_IS_ANCHOR)
    if SELDOM * chosen.count(1) < last:
        chosen = values.translate(_lowest(values))
    return compress(range(start, start + last), chosen)


def _lowest(values: bytes) -> bytes:
    """Return the table that chooses the lowest values, an eighth of all: text of few words may have no anchor."""
    counts, chosen = Counter(values), bytearray(256)
    for value in sorted(counts):
        chosen[value] = 1
        if 8 * sum(counts[one] for one in counts if chosen[one]) >= len(values):
            break
    return bytes(chosen)


def same_after(mine: bytes, start: int, other: bytes, there: int) -> int:
    """Return the number of equal tokens from two positions on."""
    i, j, done, size = TOKEN * start, TOKEN * there, 0, 256
    most = min(len(mine) - i, len(other) - j)
    while done < most:
        ends = min(most, done + size)
        one, two = mine[i + done : i + ends], other[j + done : j + ends]
        if one != two:
            difference = int.from_bytes(one, "little") ^ int.from_bytes(two, "little")
            return (done + ((difference & -difference).bit_length() - 1) // 8) // TOKEN
        done, size = ends, 2 * size
    return most // TOKEN if most > 0 else 0


def same_before(mine: bytes, end: int, other: bytes, there: int, most: int) -> int:
    """Return the number of equal tokens before two positions, at most `most`."""
    i, j, done, size = TOKEN * end, TOKEN * there, 0, 256
    limit = min(TOKEN * most, j)
    while done < limit:
        ends = min(limit, done + size)
        one, two = mine[i - ends : i - done], other[j - ends : j - done]
        if one != two:
            difference = int.from_bytes(one, "little") ^ int.from_bytes(two, "little")
            return (done + len(one) - 1 - (difference.bit_length() - 1) // 8) // TOKEN
        done, size = ends, 2 * size
    return limit // TOKEN if limit > 0 else 0
