"""Conversations: prompts that continue an earlier one whose text was changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labengine.prefix_doctor.causes.content import MIN_STRETCH, TOKEN, WIDTH, Content, Stretch, same_after, same_before

MAX_REMEMBERED = 100_000
"""Prompts, and conversations, that are remembered."""

NO_GAP = 8
"""Tokens at most between two pieces of known text that count as following each other."""

NUM_END, NOT_END = 24, 4
"""A prompt continues another one if it contains 24 tokens from the other's end (8 in the same session): those before
its last 4, which a chat template may drop when an answer follows."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A prompt with the text of `other`: equal up to `position`, and from `start` on as the other from `there` on.

    end, its_end: the tokens at which the other's prompt ends, in both.
    """

    data: bytes
    other: bytes
    number: int
    position: int
    start: int
    there: int
    end: int = 0
    its_end: int = 0

    @property
    def is_one_cut(self) -> bool:
        """True if the only change is that one stretch of the other's text is missing."""
        rest = self.its_end - self.there
        is_one = self.end - self.start == rest <= same_after(self.data, self.start, self.other, self.there)
        return is_one and self.start - self.position <= NO_GAP and self.there - self.position >= MIN_STRETCH


class Conversations:
    """The newest prompt of each conversation, by its session or by its text."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._newest: dict[int | str, int] = {}
        """The newest prompt of a session, and the newest one with text that a prompt was the first to have."""
        self._known: dict[int, tuple[int, str]] = {}
        """Each prompt's length and session."""

    def remember(self, number: int, num_tokens: int, session: str, again: Sequence[Stretch]) -> None:
        """Note a prompt. again: its text that earlier ones had."""
        self._known[number] = num_tokens, session
        if session:
            self._newest[session] = number
        for one in again:
            self._newest[one.number] = number
        bound(self._known)
        bound(self._newest)

    def continued(self, number: int, session: str, data: bytes, again: Sequence[Stretch]) -> Divergence | None:
        """Return how a prompt differs from the one that it continues; None if it continues none, or changes nothing."""
        candidates = (self._newest.get(session), self._newest.get(again[-1].number), again[-1].number)
        for other in dict.fromkeys(candidates):
            if other is None or other == number or other not in self._known:
                continue
            length, its_session = self._known[other]
            num_end = WIDTH if session and its_session == session else NUM_END
            if found := self._after(data, other, max(0, length - num_end - NOT_END), length - NOT_END, again):
                return found
        return None

    def _after(self, data: bytes, number: int, start: int, end: int, again: Sequence[Stretch]) -> Divergence | None:
        """Compare a prompt with another one if it contains tokens [start, end) of the other, and more behind them."""
        other = self._content.get(number)
        if other is None or end - start < WIDTH:
            return None
        my_end = _place_of(other, start, end, data)
        if my_end is None or not _goes_on(data, my_end, other[TOKEN * end : TOKEN * (end + NOT_END)]):
            return None
        position = same_after(data, 0, other, 0)
        for one in again:
            there = find(other, data[TOKEN * one.start : TOKEN * (one.start + WIDTH)], position)
            if there >= 0 and one.start >= position:
                before = same_before(data, one.start, other, there, min(one.start, there) - position)
                return Divergence(data, other, number, position, one.start - before, there - before, my_end, end)
        return None


def _goes_on(data: bytes, start: int, last: bytes) -> bool:
    """Return True if a prompt has more behind token `start`, where another one has only its `last` tokens.

    A chat template moves them, or some of them, to the prompt's end. Other ends are those of different questions.
    """
    kept = same_after(data, start, last, 0)
    return TOKEN * start + len(last) < len(data) and data.endswith(last[TOKEN * kept :])


def _place_of(other: bytes, start: int, end: int, data: bytes) -> int | None:
    """Return where tokens [start, end) of another prompt end in this one: at the place with most of the text before."""
    tokens = other[TOKEN * start : TOKEN * end]
    first = find(data, tokens, 0)
    if first < 0:
        return None
    last = data.rfind(tokens)
    while last % TOKEN:
        last = data.rfind(tokens, 0, last + len(tokens) - 1)
    return max((first, last // TOKEN), key=lambda place: same_before(data, place, other, start, place)) + end - start


def find(data: bytes, tokens: bytes, start: int) -> int:
    """Return the first place of packed tokens from token `start` on; -1 if there is none."""
    at = data.find(tokens, TOKEN * start)
    while at >= 0 and at % TOKEN:
        at = data.find(tokens, at + 1)
    return at // TOKEN if at >= 0 else -1


def bound(kept: dict[Any, Any]) -> None:
    """Forget the oldest entries beyond the limit."""
    while len(kept) > MAX_REMEMBERED:
        kept.pop(next(iter(kept)))
