"""Prompts that diverge from an earlier one and continue with the same text: what was changed, and what it cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

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
from labengine.prefix_doctor.causes.conversations import NO_GAP, Conversations, Divergence, bound, find
from labengine.prefix_doctor.causes.groups import (
    GOOD_PART,
    MAX_DISTINCT,
    MAX_SAMPLES,
    MAX_VALUE,
    SOME_AFTER,
    SOME_BEFORE,
    HistoryGroup,
    RawExample,
    TextGroup,
    Value,
)
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.traffic.prompt import Prompt

MAX_GROUPS = 512
"""Templates told apart; of more, the lighter half is counted as text in another order."""

MAX_MESSAGES = 64
"""Messages told apart."""


@dataclass(slots=True)
class Facts:
    """What is remembered of a prompt. group, end: the group of its value, and the token before which the value ends.

    end is 0 without a value: the template's text stands there without it.
    """

    prompt: Prompt
    num_tokens: int
    group: TextGroup | None = None
    end: int = 0


class Divergences:
    """Groups of prompts that diverge alike."""

    def __init__(self) -> None:
        self.texts: dict[int, TextGroup] = {}
        """By the number of their template."""
        self.reordered = TextGroup()
        self.edited: dict[int, HistoryGroup] = {}
        self.cut: dict[int, HistoryGroup] = {}
        """By the message of the divergence; -1 where messages are not known."""
        self.facts: dict[int, Facts] = {}
        self._content = Content()
        self._conversations = Conversations(self._content)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the prompts' text, hundreds of megabytes that only `add` reads."""
        return {name: value for name, value in vars(self).items() if name not in ("_content", "_conversations")}

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
            self._note_hit(facts, data, look_up)
        self._conversations.remember(number, facts.num_tokens, prompt.session, again)
        bound(self.facts)
        return lost, max(shared, look_up.num_shared)

    def text_of(self, number: int | None, start: int) -> list[int]:
        """Return some tokens of a prompt; [] if it is not remembered."""
        data = None if number is None else self._content.get(number)
        return [] if data is None else unpacked(data, start, start + SOME_AFTER)

    def _prefix(self, whole: bytes, found: Sequence[Stretch], start: int) -> int:
        """Return the tokens of the common prefix with an earlier prompt if it reaches beyond `start`, else 0."""
        if not found or not found[0].start == found[0].there == start:
            return 0
        other = self._content.get(found[0].number) or b""
        shared = same_after(whole, 0, other, 0)
        return shared if shared > start else 0

    def _count(self, group: TextGroup | HistoryGroup, number: int, facts: Facts, one: Divergence, lost: int) -> None:
        if isinstance(group, HistoryGroup):
            group.num_cut += one.there - one.position
            group.num_put += one.start - one.position
        _note_value(group, facts, one)
        if group.count(lost, one.number, number):
            group.examples.append(self._example(facts, one, lost))

    def _note_hit(self, facts: Facts, data: bytes, look_up: LookUp) -> None:
        """Count a prompt that hits behind a value which an earlier one had."""
        other = look_up.shared_with
        if other is None or other not in self.facts:
            return
        its = self.facts[other]
        group = its.group or self.texts.get(other)
        end = its.end if its.group else (group.end if group else 0)
        if group is not None and look_up.num_shared >= end > 0:
            value = hash(data[: TOKEN * end])
            if value in group.again or len(group.again) < MAX_DISTINCT:
                group.again[value] += 1
            facts.group, facts.end = group, end

    def _history(
        self, number: int, facts: Facts, data: bytes, again: Sequence[Stretch]
    ) -> tuple[Divergence, HistoryGroup] | None:
        """Return how a prompt changed the conversation that it continues; None if it continues none."""
        one = self._conversations.continued(number, facts.prompt.session, data, again)
        if one is None:
            return None
        groups = self.cut if one.is_one_cut else self.edited
        message = min(MAX_MESSAGES, bisect_right(facts.prompt.message_starts, one.position) - 1)
        return one, groups.setdefault(message, HistoryGroup(message=message))

    def _varied(
        self, facts: Facts, data: bytes, again: Sequence[Stretch], look_up: LookUp
    ) -> tuple[Divergence, TextGroup]:
        """Return how a prompt differs from the first one with its text, and the group of such prompts."""
        longest = max(again, key=lambda one: one.end - one.start)
        main = again[0] if 2 * (again[0].end - again[0].start) >= longest.end - longest.start else longest
        main = self._in_template(data, main)
        other = self.texts[main.number].template if main.number in self.texts else self._content.get(main.number)
        assert other is not None  # the stretch has just been found in it
        position = min(same_after(data, 0, other, 0), main.start)
        one = Divergence(data, other, main.number, position, main.start, main.there)
        is_moved = main.number not in self.texts and max(main.start, main.there) - position >= MIN_STRETCH
        if _is_shuffled(again, main.number) or (
            is_moved and _is_known(max(position, look_up.num_shared), main.start, again)
        ):
            return one, self.reordered
        group = self._group_of(main.number, other)
        _cover(group, position, {main, *again}, facts.num_tokens)
        facts.group, facts.end = group, main.start if main.start > position else 0
        group.end = max(group.end, main.there)
        return one, group

    def _in_template(self, data: bytes, main: Stretch) -> Stretch:
        """Return the same text in the template of the prompt that has it: both may share the end of a value."""
        its = self.facts.get(main.number)
        if its is None or its.group is None or its.group.number not in self.texts:
            return main
        middle, template = (main.start + main.end) // 2, its.group.template
        there = find(template, data[TOKEN * middle : TOKEN * (middle + WIDTH)], 0)
        if there < 0:
            return main
        before = same_before(data, middle, template, there, middle)
        after = same_after(data, middle, template, there)
        return Stretch(middle - before, middle + after, its.group.number, there - before)

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


def _note_value(group: TextGroup | HistoryGroup, facts: Facts, one: Divergence) -> None:
    start, end = one.position, one.start
    if len(group.distinct) < MAX_DISTINCT:
        group.distinct.add(hash(one.data[TOKEN * start : TOKEN * end]))
    if len(group.values) < MAX_SAMPLES and start < end:
        before = unpacked(one.data, max(0, start - SOME_BEFORE), start)
        value = unpacked(one.data, start, min(end, start + MAX_VALUE))
        group.values.append(Value(before, value, unpacked(one.data, end, end + SOME_AFTER)))
    if isinstance(group, TextGroup):
        group.num_others += bool(group.tenant) and facts.prompt.tenant not in ("", group.tenant)


def _is_shuffled(again: Sequence[Stretch], number: int) -> bool:
    """Return True if a good part of the text that another prompt has comes in another order there."""
    num_tokens, num_behind, last = 0, 0, 0
    for one in again:
        if one.number == number:
            num_tokens += one.end - one.start
            num_behind += one.end - one.start if one.there < last else 0
            last = max(last, one.there)
    return num_behind > GOOD_PART * num_tokens


def _is_known(start: int, end: int, again: Sequence[Stretch]) -> bool:
    """Return True if tokens [start, end) are almost all in the stretches."""
    known = _overlap(start, end, [(one.start, one.end) for one in again])
    return end - start - known <= max(NO_GAP, known // 8)


def _overlap(start: int, end: int, ranges: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(end, last) - max(start, first)) for first, last in ranges)


def _cover(group: TextGroup, position: int, again: set[Stretch], num_tokens: int) -> None:
    """Note which parts of the template a prompt of num_tokens has; an answer behind it is not part of it."""
    group.positions[position] += 1
    for one in again:
        end = min(one.end, num_tokens)
        if one.number == group.number and one.start < end:
            group.covered[one.there] += 1
            group.covered[one.there + end - one.start] -= 1
