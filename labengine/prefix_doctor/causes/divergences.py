"""Prompts that diverge from an earlier one and continue with the same text: what was changed, and what it cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labengine.prefix_doctor.causes.content import (
    MIN_STRETCH,
    TOKEN,
    WIDTH,
    Content,
    Stretch,
    packed,
    same_after,
    same_before,
    unpacked,
)
from labengine.prefix_doctor.causes.groups import (
    MAX_DISTINCT,
    MAX_SAMPLES,
    MAX_VALUE,
    SOME_AFTER,
    SOME_BEFORE,
    Group,
    HistoryGroup,
    RawExample,
    TextGroup,
    Value,
)
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.traffic.prompt import Prompt

MAX_GROUPS = 512
MAX_FACTS = 100_000
"""Prompts, and conversations, that are remembered."""

NO_GAP = 8
"""Tokens at most between two pieces of known text that count as following each other."""

NUM_END, NOT_END = 24, 4
"""A prompt continues another one if it contains 24 tokens from the other's end (8 in the same session): those before
its last 4, which a chat template may drop when an answer follows."""


@dataclass(slots=True)
class Facts:
    """What is remembered of a prompt. group, end: the group of its value, and the token before which the value ends."""

    prompt: Prompt
    num_tokens: int
    group: TextGroup | None = None
    end: int = 0


@dataclass(frozen=True, slots=True)
class Divergence:
    """A prompt with the text of `other`: equal up to `position`, and from `start` on as the other from `there` on."""

    data: bytes
    other: bytes
    number: int
    position: int
    start: int
    there: int


class Divergences:
    """Groups of prompts that diverge alike."""

    def __init__(self) -> None:
        self.texts: dict[int, TextGroup] = {}
        """By the number of their template."""
        self.reordered = TextGroup()
        self.edited, self.cut = HistoryGroup(), HistoryGroup()
        self.facts: dict[int, Facts] = {}
        self._content = Content()
        self._newest: dict[int | str, int] = {}
        """The newest prompt of a session, and the newest one with text that a prompt was the first to have."""

    def add(
        self, number: int, prompt: Prompt, look_up: LookUp, start: int, ranges: Sequence[tuple[int, int]]
    ) -> tuple[int, int]:
        """Add a prompt; return how many of its tokens in `ranges` are lost to a divergence, and how many it shares.

        start: the first token whose text may be new. ranges: tokens that no earlier prompt had after the same prefix.
        A look-up tells shared tokens by complete blocks and the newest prompt; text tells them exactly.
        """
        facts = self.facts[number] = Facts(_remembered(prompt), len(prompt.token_ids))
        data = packed(prompt.token_ids, prompt.images)
        whole = data + packed(prompt.answer) if prompt.answer else data
        found = self._content.add(number, whole, start, hash(prompt.extra_keys) if prompt.extra_keys else 0)
        shared = self._prefix(whole, found, start)
        again = [one for one in found[shared > 0 :] if _overlap(one.start, min(one.end, facts.num_tokens), ranges)]
        lost = 0
        if again:
            one, group = self._history(number, facts, data, again) or self._varied(facts, data, again, look_up)
            lost = sum(_overlap(one.start, min(one.end, facts.num_tokens), ranges) for one in again)
            lost += _overlap(ranges[0][0], min(one.position, again[0].start), ranges)
            self._count(group, number, facts, one, lost)
        else:
            self._note_hit(facts, look_up)
        self._remember(number, prompt, again)
        return lost, max(shared, look_up.num_shared)

    def _prefix(self, whole: bytes, found: Sequence[Stretch], start: int) -> int:
        """Return the tokens of the common prefix with an earlier prompt if it reaches beyond `start`, else 0."""
        if not found or not found[0].start == found[0].there == start:
            return 0
        other = self._content.get(found[0].number) or b""
        shared = same_after(whole, 0, other, 0)
        return shared if shared > start else 0

    def _count(self, group: Group, number: int, facts: Facts, one: Divergence, lost: int) -> None:
        if isinstance(group, HistoryGroup):
            group.num_cut += one.there - one.position
            group.num_put += one.start - one.position
            message = bisect_right(facts.prompt.message_starts, one.position) - 1
            group.detail(message if message >= 0 else None, lost)
        elif isinstance(group, TextGroup):
            _note_value(group, facts, one)
        if group.count(lost, one.number, number):
            group.examples.append(self._example(facts, one, lost))

    def _note_hit(self, facts: Facts, look_up: LookUp) -> None:
        """Count a prompt that hits behind a value which an earlier one had."""
        other = look_up.shared_with
        if other is None or other not in self.facts:
            return
        its = self.facts[other]
        group = its.group or self.texts.get(other)
        end = its.end if its.group else (group.end if group else 0)
        if group is not None and look_up.num_shared >= end:
            group.num_again += 1
            facts.group, facts.end = group, end

    def _remember(self, number: int, prompt: Prompt, again: Sequence[Stretch]) -> None:
        if prompt.session:
            self._newest[prompt.session] = number
        for one in again:
            self._newest[one.number] = number
        _bound(self.facts)
        _bound(self._newest)

    def _varied(
        self, facts: Facts, data: bytes, again: Sequence[Stretch], look_up: LookUp
    ) -> tuple[Divergence, TextGroup]:
        """Return how a prompt differs from the first one with its text, and the group of such prompts."""
        longest = max(again, key=lambda one: one.end - one.start)
        main = again[0] if 2 * (again[0].end - again[0].start) >= longest.end - longest.start else longest
        other = self._content.get(main.number)
        assert other is not None  # the stretch has just been found in it
        position = min(same_after(data, 0, other, 0), main.start)
        one = Divergence(data, other, main.number, position, main.start, main.there)
        if main.start - max(position, look_up.num_shared) <= NO_GAP and main.there - position >= MIN_STRETCH:
            return one, self.reordered
        group = self._group_of(main.number, other)
        _cover(group, position, again)
        facts.group, facts.end = group, main.start
        group.end = max(group.end, main.there)
        return one, group

    def _group_of(self, number: int, template: bytes) -> TextGroup:
        if number not in self.texts:
            if len(self.texts) >= MAX_GROUPS:
                self._prune()
            its = self.facts.get(number)
            self.texts[number] = TextGroup(number=number, template=template, tenant=its.prompt.tenant if its else "")
        return self.texts[number]

    def _prune(self) -> None:
        """Add the lighter half of the groups to the one whose texts come in another order."""
        for group in sorted(self.texts.values(), key=lambda group: group.num_lost)[: MAX_GROUPS // 2]:
            self.reordered.num_prompts += group.num_prompts
            self.reordered.num_lost += group.num_lost
            del self.texts[group.number]

    # -- conversations -------------------------------------------------------------------------------------------------

    def _history(
        self, number: int, facts: Facts, data: bytes, again: Sequence[Stretch]
    ) -> tuple[Divergence, Group] | None:
        """Return how a prompt continues an earlier one whose text it changed; None if it continues none."""
        session = facts.prompt.session
        candidates = (self._newest.get(session), self._newest.get(again[-1].number), again[-1].number)
        for other in dict.fromkeys(candidates):
            if other is None or other == number or other not in self.facts:
                continue
            num_end = WIDTH if session and self.facts[other].prompt.session == session else NUM_END
            if found := self._continued(data, other, again, num_end):
                return found, self._group_of_history(found)
        return None

    def _continued(self, data: bytes, number: int, again: Sequence[Stretch], num_end: int) -> Divergence | None:
        other, length = self._content.get(number), self.facts[number].num_tokens
        end = other[TOKEN * max(0, length - num_end - NOT_END) : TOKEN * (length - NOT_END)] if other else b""
        if other is None or len(end) < TOKEN * WIDTH:
            return None
        position = same_after(data, 0, other, 0)
        ends = find(data, end, 0)
        if ends < 0 or TOKEN * (ends + NOT_END) + len(end) >= len(data):
            return None
        for one in again:
            there = find(other, data[TOKEN * one.start : TOKEN * (one.start + WIDTH)], position)
            if there >= 0:
                before = same_before(data, one.start, other, there, min(one.start, there) - position)
                return Divergence(data, other, number, position, one.start - before, there - before)
        return None

    def _group_of_history(self, one: Divergence) -> HistoryGroup:
        put, cut = one.start - one.position, one.there - one.position
        return self.cut if put <= NO_GAP and cut >= MIN_STRETCH else self.edited

    def _example(self, facts: Facts, one: Divergence, lost: int) -> RawExample:
        its, at = self.facts.get(one.number), one.position
        return RawExample(
            name=facts.prompt.name,
            other=its.prompt.name if its else f"prompt {one.number}",
            position=at,
            num_lost=lost,
            before=unpacked(one.data, max(0, at - SOME_BEFORE), at),
            mine=unpacked(one.data, at, min(one.start, at + SOME_AFTER)),
            its=unpacked(one.other, at, min(one.there, at + SOME_AFTER)),
            again=unpacked(one.data, one.start, one.start + SOME_AFTER),
        )


def find(data: bytes, tokens: bytes, start: int) -> int:
    """Return the first place of packed tokens from token `start` on; -1 if there is none."""
    at = data.find(tokens, TOKEN * start)
    while at >= 0 and at % TOKEN:
        at = data.find(tokens, at + 1)
    return at // TOKEN if at >= 0 else -1


def _bound(kept: dict[Any, int] | dict[int, Facts]) -> None:
    while len(kept) > MAX_FACTS:
        kept.pop(next(iter(kept)))


def _remembered(prompt: Prompt) -> Prompt:
    """Return a prompt without its tokens."""
    return Prompt(
        prompt.name,
        (),
        extra_keys=prompt.extra_keys,
        images=prompt.images,
        tenant=prompt.tenant,
        session=prompt.session,
        message_starts=prompt.message_starts,
    )


def _note_value(group: TextGroup, facts: Facts, one: Divergence) -> None:
    start, end = one.position, one.start
    if len(group.distinct) < MAX_DISTINCT:
        group.distinct.add(hash(one.data[TOKEN * start : TOKEN * end]))
    if len(group.values) < MAX_SAMPLES:
        before = unpacked(one.data, max(0, start - SOME_BEFORE), start)
        value = unpacked(one.data, start, min(end, start + MAX_VALUE))
        group.values.append(Value(before, value, unpacked(one.data, end, end + SOME_AFTER)))
    group.num_others += bool(group.tenant) and facts.prompt.tenant not in ("", group.tenant)


def _overlap(start: int, end: int, ranges: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(end, last) - max(start, first)) for first, last in ranges)


def _cover(group: TextGroup, position: int, again: Sequence[Stretch]) -> None:
    parts = [
        (0, position),
        *((one.there, one.there + one.end - one.start) for one in again if one.number == group.number),
    ]
    for start, end in parts:
        if start < end:
            group.covered[start] += 1
            group.covered[end] -= 1
