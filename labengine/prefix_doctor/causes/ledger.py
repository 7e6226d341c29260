"""Every look-up of a traffic, summed up by cause: the findings, and what was no fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Protocol, TypeVar

from labengine.prefix_doctor.causes.content import TOKEN, with_pictures
from labengine.prefix_doctor.causes.divergences import Divergences
from labengine.prefix_doctor.causes.evictions import Evictions, Lengths, by_few
from labengine.prefix_doctor.causes.finding import Finding, Kind
from labengine.prefix_doctor.causes.groups import (
    SOME_AFTER,
    SOME_BEFORE,
    Group,
    HistoryGroup,
    RawExample,
    ShortGroup,
    TextGroup,
)
from labengine.prefix_doctor.causes.naming import kind_of
from labengine.prefix_doctor.causes.traffic_sums import Ages, Part, Parts, Uses
from labengine.prefix_doctor.causes.words import Words
from labengine.prefix_doctor.look_ups.look_up import MAX_NAME, Cause, LookUp, MissedTokens
from labengine.prefix_doctor.traffic.prompt import Prompt, TokenText
from labengine.record.wording import counted, readable

MIN_SHARE = 0.005
"""Findings that lose a smaller share of all tokens count as chance."""

NUM_BEGIN = 4
"""First tokens that tell prompts of different kinds apart."""

NEAR = 16
"""Tokens between the places of two divergences that are one: a clock's digits differ at the first or at the last."""

_PLAIN: dict[Cause, Kind] = {
    "reset": "reset",
    "not_registered_yet": "same_time",
    "dropped": "drafter",
    "passed_over": "not_used",
    "other_replica": "other_replica",
    "unknown": "unknown",
}

_NOT_IN_A_LAB: frozenset[Cause] = frozenset({"reset", "dropped", "other_replica", "unknown"})
"""Causes that the same prompts alone do not have again."""

_TEXT: frozenset[Cause] = frozenset({"new", "short_of_a_block"})

_INDEXED: frozenset[Cause] = frozenset({"new", "short_of_a_block", "tail", "other_salt", "unknown"})
"""Causes of tokens that may be the first with their text."""


class KVGroup(Protocol):
    """A group's kind and block size, as GroupSpec and GroupState have them."""

    @property
    def kind(self) -> str: ...
    @property
    def block_size(self) -> int: ...


@dataclass(frozen=True)
class Evidence:
    """A finding, and the groups it was made of, the heaviest first."""

    finding: Finding
    groups: tuple[Group, ...]


class Ledger:
    """Takes the look-ups of a traffic one by one, and keeps sums and examples in bounded memory.

    groups: the engine's KV-cache groups. num_blocks: of its pool, if known. token_text: None if tokens have no text.
    Requests in a LookUp are numbers of prompts, except that other_replica names the replica.
    """

    def __init__(
        self, groups: Sequence[KVGroup], num_blocks: int | None = None, token_text: TokenText | None = None
    ) -> None:
        self._kinds = [group.kind for group in groups]
        self.unit = lcm(*(group.block_size for group in groups))
        self.num_blocks, self.token_text = num_blocks, token_text and with_pictures(token_text)
        self._parts, self._uses, self.lengths = Parts(), Uses(self.unit), Lengths()
        self._divergences = Divergences()
        self._plain: dict[Kind, Group] = {}
        self._keys: dict[Kind, Group] = {}
        self.evictions = Evictions()
        self.short = ShortGroup()

    def add(self, number: int, prompt: Prompt, look_up: LookUp) -> None:
        """Add one admission of prompt `number`, counted from 0 in the order of the traffic."""
        missed = look_up.num_tokens - look_up.num_hit - look_up.num_external
        if not look_up.is_first:
            if missed > 1:
                self._group(self._plain, "preempted").count(missed - 1, number)
            return
        self.lengths.add(number, len(prompt.token_ids))
        look_up = self._with_pictures_as_text(prompt, look_up)
        age = self._uses.since(look_up.shared_with, prompt, look_up.step)
        lost = sum(self._count(number, prompt, look_up, miss, age) for miss in look_up.misses)
        lost += self._count_text(number, prompt, look_up)
        if age is not None:
            self._uses.count(age[0], look_up.num_hit, 0)
        self._uses.add(number, prompt, look_up.step, missed)
        self._parts.add(prompt, look_up.num_tokens, look_up.num_hit + look_up.num_external, lost)

    # -- what look-ups say ---------------------------------------------------------------------------------------------

    def _count(
        self, number: int, prompt: Prompt, look_up: LookUp, miss: MissedTokens, age: tuple[int, float, int] | None
    ) -> int:
        """Count missed tokens whose cause is not their text; return how many were lost."""
        if miss.cause in _TEXT or miss.cause == "tail":
            return 0
        other = miss.request_id
        mine, its = "", ""
        if miss.cause == "evicted":
            group: Group = self.evictions
            self._count_eviction(look_up, miss, age)
            other = look_up.shared_with
        elif miss.cause == "other_salt":
            kind, mine, its = self._key(prompt, other)
            group = self._group(self._keys, kind)
            group.detail(mine, miss.num_tokens)
        elif miss.cause == "never_registered":
            found = self._never_registered(miss)
            if found is None:
                return 0
            group = self._group(self._plain, found)
        else:
            group = self._group(self._plain, _PLAIN[miss.cause])
            other = None if miss.cause == "other_replica" else other
        if group.count(miss.num_tokens, *(() if miss.cause in _NOT_IN_A_LAB else (other, number))):
            group.examples.append(self._example(prompt, miss, other, mine, its))
        return miss.num_tokens

    def _never_registered(self, miss: MissedTokens) -> Kind | None:
        """Return the kind of a miss of blocks that were never registered; None for an answer's last, partial block."""
        kind = self._kinds[miss.group or 0]
        if kind == "state":
            return "state_boundary"
        if kind == "sliding_window":
            return "window"
        return "preempted" if miss.num_tokens > self.unit else None

    def _count_eviction(self, look_up: LookUp, miss: MissedTokens, age: tuple[int, float, int] | None) -> None:
        loss, group = miss.loss, self.evictions
        group.detail(loss.request_id if loss is not None else None, miss.num_tokens)
        if loss is not None and loss.request_id is not None and not loss.is_prefill:
            group.num_decode += miss.num_tokens
        if age is not None:
            group.age(age)
            self._uses.count(age[0], 0, miss.num_tokens)

    def _key(self, prompt: Prompt, other: int | None) -> tuple[Kind, str, str]:
        """Return which key of a prompt differs from another one's, and both values."""
        mine, its = dict(prompt.extra_keys), self._keys_of(other)
        for domain in {**its, **mine}:
            if mine.get(domain) != its.get(domain):
                kind: Kind = "salt" if "salt" in domain else "adapter"
                return kind, mine.get(domain, ""), its.get(domain, "")
        return "salt", "", ""

    def _keys_of(self, other: int | None) -> dict[str, str]:
        facts = None if other is None else self._divergences.facts.get(other)
        return {} if facts is None else dict(facts.prompt.extra_keys)

    def _with_pictures_as_text(self, prompt: Prompt, look_up: LookUp) -> LookUp:
        """Return a look-up in which tokens behind another picture are new, as those behind another text are."""
        if not prompt.images:
            return look_up
        keys, misses = dict(prompt.extra_keys), list(look_up.misses)
        for place, miss in enumerate(misses):
            if miss.cause == "other_salt" and self._keys_of(miss.request_id) == keys:
                misses[place] = replace(miss, cause="new")
        return replace(look_up, misses=tuple(misses))

    # -- what their text says ------------------------------------------------------------------------------------------

    def _count_text(self, number: int, prompt: Prompt, look_up: LookUp) -> int:
        """Count missed tokens that no prompt had after the same prefix; return how many were lost."""
        ranges = [(miss.start, miss.end) for miss in look_up.misses if miss.cause in _TEXT]
        start = min((miss.start for miss in look_up.misses if miss.cause in _INDEXED), default=look_up.num_tokens)
        lost, shared = self._divergences.add(number, prompt, look_up, start, ranges)
        return lost or self._count_short(number, prompt, look_up, min(shared, look_up.num_tokens - 1))

    def _count_short(self, number: int, prompt: Prompt, look_up: LookUp, shared: int) -> int:
        """Count shared tokens that end inside a block, if they are a good part of the prompt and of its hit."""
        found = look_up.num_hit + look_up.num_external
        lost = shared - found
        if look_up.misses[:1] and look_up.misses[0].cause not in (*_TEXT, "tail"):
            return 0
        if lost < max(1, found / 4, look_up.num_tokens / 8):
            return 0
        self.short.share(shared, found)
        if self.short.count(lost, look_up.shared_with, number):
            self.short.examples.append(self._short_example(prompt, look_up.shared_with, shared, lost))
        return lost

    # -- findings ------------------------------------------------------------------------------------------------------

    @property
    def total(self) -> Part:
        """The sums of all prompts."""
        return self._parts.total

    def findings(self) -> list[Finding]:
        """Return the findings, costliest first; [] if nothing was lost but by chance."""
        return [one.finding for one in self.evidence()]

    def evidence(self) -> list[Evidence]:
        """Return the findings with what they were made of, costliest first."""
        words = Words(self.token_text, self.total.num_prompts, self.unit, self.num_blocks)
        found = [*self._of_texts(words), *self._of_evictions(words)]
        found += [Evidence(words.keys(kind, group), (group,)) for kind, group in self._keys.items()]
        found += [Evidence(words.plain(kind, group), (group,)) for kind, group in self._plain.items()]
        if self.short.num_prompts:
            found.append(Evidence(words.short(self.short), (self.short,)))
        least = MIN_SHARE * self.total.num_tokens
        return sorted((one for one in found if one.finding.num_lost > least), key=lambda one: -one.finding.num_lost)

    def _of_texts(self, words: Words) -> list[Evidence]:
        """Return the findings on varying text; conversations in which the same kind of text changed are included."""
        merged: dict[tuple[Kind, bytes, int], list[TextGroup]] = {}
        texts = _heaviest([self._divergences.reordered, *self._divergences.texts.values()])
        loose = [group for group in texts if group.num_prompts and not group.behind()]
        for group in (group for group in texts if group.behind()):
            kind, place = kind_of(group, self.token_text), group.position
            begins = group.template[: TOKEN * min(place, NUM_BEGIN)]
            near = next((key for key in merged if key[:2] == (kind, begins) and abs(key[2] - place) <= NEAR), None)
            merged.setdefault(near or (kind, begins, place), []).append(group)
        histories, found = self._histories(), list[Evidence]()
        for (kind, _, _), groups in merged.items():
            all_groups = (*groups, *(histories.pop(kind, ()) if kind != "varying_text" else ()))
            found.append(Evidence(words.varying(kind, groups[0], all_groups), all_groups))
        found += [Evidence(words.history(kind, groups), tuple(groups)) for kind, groups in histories.items()]
        if loose:
            found.append(Evidence(words.reordered(loose), tuple(loose)))
        return found

    def _histories(self) -> dict[Kind, list[HistoryGroup]]:
        """Return the changed conversations by kind, the heaviest first."""
        found: dict[Kind, list[HistoryGroup]] = {}
        for group in _heaviest(self._divergences.edited.values()):
            kind = kind_of(group, self.token_text)
            found.setdefault("edited_history" if kind == "varying_text" else kind, []).append(group)
        if self._divergences.cut:
            found["truncated_history"] = _heaviest(self._divergences.cut.values())
        return found

    def _of_evictions(self, words: Words) -> list[Evidence]:
        group = self.evictions
        if not group.num_prompts:
            return []
        few = by_few(group, self.lengths, self.total.num_prompts)
        names = [self._name(one) for one, _ in Counter(group.details).most_common(3) if isinstance(one, int)]
        if not few:
            return [Evidence(words.evicted(group, names), (group,))]
        lost, mean = sum(few.values()), sum(self.lengths[one] for one in few) // len(few)
        num_prompts = max(1, group.num_prompts * lost // group.num_lost)
        found = words.evicted_by(group, [self._name(one) for one in few], lost, num_prompts, mean)
        rest = words.evicted(replace(group, num_prompts=group.num_prompts - num_prompts), names)
        rest = replace(rest, num_lost=group.num_lost - lost)
        return [Evidence(found, (group,)), Evidence(rest, (group,))]

    # -- pieces --------------------------------------------------------------------------------------------------------

    def by_tenant(self) -> list[Part]:
        """Return the sums by tenant; [] without names."""
        return self._parts.by_tenant()

    def over_time(self) -> list[Part]:
        """Return the sums of equal parts of the traffic."""
        return self._parts.over_time()

    def ages(self) -> Ages:
        """Return tokens by how long ago they were used last."""
        return self._uses.ages()

    @property
    def no_fault(self) -> str:
        """A sentence on the missed tokens that no finding explains: text that nobody had sent, and prompts' ends."""
        total = self.total
        missed = total.num_tokens - total.num_hit
        if not missed:
            return "Every token was found."
        new = missed - sum(one.num_lost for one in self.findings() if one.kind != "preempted")
        return (
            f"{new:,} of {counted(missed, 'missed token')} ({new / missed:.0%}) are no fault: text that no earlier "
            "prompt has, and the ends of prompts."
        )

    @staticmethod
    def _group(groups: dict[Kind, Group], kind: Kind) -> Group:
        return groups.setdefault(kind, Group())

    def _name(self, number: int) -> str:
        facts = self._divergences.facts.get(number)
        return readable(facts.prompt.name if facts else f"prompt {number}", MAX_NAME)

    def _short_example(self, prompt: Prompt, other: int | None, shared: int, lost: int) -> RawExample:
        miss = MissedTokens("short_of_a_block", shared, shared + SOME_AFTER)
        one = self._example(prompt, miss, other, "", "")
        return replace(one, num_lost=lost, mine=one.again, its=self._divergences.text_of(other, shared), again=[])

    def _example(self, prompt: Prompt, miss: MissedTokens, other: int | None, mine: str, its: str) -> RawExample:
        tokens, start = prompt.token_ids, miss.start
        return RawExample(
            name=prompt.name,
            other="" if other is None else self._name(other),
            position=start,
            num_lost=miss.num_tokens,
            before=list(tokens[max(0, start - SOME_BEFORE) : start]),
            mine=mine,
            its=its,
            again=list(tokens[start : start + SOME_AFTER]),
        )


_Group = TypeVar("_Group", bound=Group)


def _heaviest(groups: Iterable[_Group]) -> list[_Group]:
    """Return groups, those that lost most first."""
    return sorted(groups, key=lambda group: -group.num_lost)
