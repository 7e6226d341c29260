"""The title, the sentence and the examples of a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labengine.prefix_doctor.causes.content import unpacked
from labengine.prefix_doctor.causes.evictions import Evictions
from labengine.prefix_doctor.causes.finding import Example, Finding, Kind
from labengine.prefix_doctor.causes.groups import (
    MAX_DISTINCT,
    Group,
    HistoryGroup,
    RawExample,
    TextGroup,
)
from labengine.prefix_doctor.look_ups.look_up import MAX_NAME
from labengine.prefix_doctor.traffic.prompt import TokenText
from labengine.record.wording import counted, joined, listed, readable

MAX_TEXT = 90

NUM_BEFORE, NUM_AFTER = 6, 8
"""Tokens around a divergence in a sentence."""

VARYING: dict[Kind, str] = {
    "clock": "a clock",
    "id": "an id",
    "counter": "a counter",
    "tenant": "a name",
    "image": "a picture",
    "varying_text": "varying text",
}

PLAIN: dict[Kind, tuple[str, str]] = {
    "reset": ("the cache was reset", "had tokens cached before the cache was reset"),
    "same_time": ("the same text at the same time", "came while another request was computing the same tokens"),
    "preempted": ("computed again after a preemption", "lost tokens to a preemption"),
    "not_used": ("cached, but not used", "were computed although the tokens were cached"),
    "drafter": (
        "the last block of a hit",
        "computed a cached block again, because the drafter needs its hidden states",
    ),
    "other_replica": (
        "cached on another replica",
        "were served by a replica without the prefix, which another one had",
    ),
    "state_boundary": ("no state where prompts part", "share tokens after which no state was kept"),
    "window": (
        "a window's blocks were not kept",
        "share tokens of which a sliding window's blocks were not registered",
    ),
    "unknown": ("unknown", "lost tokens that may have been cached before the recording began"),
}
"""The title, and what the prompts did."""

SINGULAR = {
    "contain": "contains",
    "continue": "continues",
    "diverge": "diverges",
    "have": "has",
    "share": "shares",
    "were": "was",
}
"""Verbs that differ when a single prompt did it."""


@dataclass(frozen=True)
class Words:
    """Words for one ledger's findings. num_prompts: of the whole traffic. unit: tokens between two places of a hit."""

    token_text: TokenText | None
    num_prompts: int
    unit: int
    num_blocks: int | None

    def varying(self, kind: Kind, group: TextGroup, groups: Sequence[Group]) -> Finding:
        """Return the finding on a text that varies before equal text; the heaviest group represents the others.

        group: has a common core behind the varying text.
        """
        position, behind = group.position, group.behind()
        again = sum(end - start for start, end in behind)
        before = self.text(unpacked(group.template, max(0, position - NUM_BEFORE), position))
        value = self.text(unpacked(group.template, position, min(behind[0][0], position + NUM_AFTER)))
        many = self._distinct(group) if kind == "tenant" else ""
        return self._finding(
            kind,
            groups,
            f"{VARYING[kind]} before {counted(again, 'equal token')}",
            f"diverge at token {position:,} (“{before}|{value}”{many}); the {counted(again, 'token')} behind it are "
            "the same each time",
            f"token {position:,}, “{before}|{value}”",
        )

    def reordered(self, groups: Sequence[TextGroup]) -> Finding:
        """Return the finding on known text in another order."""
        does = "contain text that earlier prompts have in another order or selection, such as documents or tools"
        return self._finding("varying_text", groups, "the same text in another order", does)

    def history(self, kind: Kind, groups: Sequence[HistoryGroup]) -> Finding:
        """Return the finding on conversations whose earlier text changed."""
        num_prompts = sum(group.num_prompts for group in groups)
        cut, put, lost = (
            sum(numbers) // num_prompts
            for numbers in zip(*((group.num_cut, group.num_put, group.num_lost) for group in groups), strict=True)
        )
        if kind in VARYING and kind != "varying_text":
            title = f"{VARYING[kind]} in the earlier text of conversations"
            does = f"continue a conversation in which {VARYING[kind]} changed; {counted(lost, 'token')} on average are "
            does += "the same text again"
        elif kind == "truncated_history":
            title = "conversations cut at the front"
            does = (
                f"continue a conversation without {counted(cut, 'token')} of it; {counted(lost, 'token')} on average "
                "are the same text at another position"
            )
        else:
            title = "an earlier message edited"
            does = f"with {counted(put, 'token')} instead of {cut:,} that stood there before"
            if not put:
                does = f"from whose earlier text something was taken out, at first {counted(cut, 'token')}"
            does = f"continue a conversation {does}; {counted(lost, 'token')} on average are the same text again"
        messages = [f"message {group.message + 1}" for group in groups if group.message >= 0]
        where = listed(messages[:3]) if messages else ""
        return self._finding(kind, groups, title, does, where)

    def short(self, group: Group) -> Finding:
        """Return the finding on prompts that share less than a block."""
        mean = group.num_lost // group.num_prompts
        title = f"prompts share less than a block of {self.unit}"
        does = f"share {counted(mean, 'token')} on average with an earlier one, in a block that is shared only in part"
        return self._plain("short_prompt", group, title, does)

    def keys(self, kind: Kind, group: Group) -> Finding:
        """Return the finding on equal tokens under different keys."""
        number = f"at least {MAX_DISTINCT:,}" if len(group.details) > MAX_DISTINCT else f"{len(group.details):,}"
        names = [f"“{readable(str(name), MAX_NAME)}”" for name, _ in group.details.most_common(3)]
        title, does = f"the same text under another {kind}", f"have tokens that are cached under another {kind}"
        return self._plain(kind, group, title, f"{does} ({number} differ)", listed(names))

    def evicted(self, group: Evictions, names: Sequence[str]) -> Finding:
        """Return the finding on evicted text. names: of those that evicted most."""
        title, does = "evicted before it was wanted again", f"lost tokens that had been evicted{self._after(group)}"
        if group.num_decode > group.num_lost / 2:
            does += ", most of them by tokens that were generated"
        return self._plain("evicted", group, title, does, listed(names))

    def evicted_by(self, group: Evictions, names: Sequence[str], lost: int, num_prompts: int, length: int) -> Finding:
        """Return the finding on text that few requests evicted. length: their mean number of tokens."""
        found = self.evicted(group, names)
        who = names[0] if len(names) == 1 else f"{listed(names)}"
        title = f"evicted by {counted(len(names), 'prompt')}"
        sentence = (
            f"{self._did(num_prompts, 'lost')} tokens that had been evicted by {who}, of {counted(length, 'token')}"
            f"{' on average' if len(names) > 1 else ''}."
        )
        return Finding("evicted_by_one", title, sentence, num_prompts, lost, found.where, found.examples, found.shown)

    def plain(self, kind: Kind, group: Group) -> Finding:
        """Return the finding on a cause that needs no numbers of its own."""
        return self._plain(kind, group, *PLAIN[kind])

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _plain(self, kind: Kind, group: Group, title: str, does: str, where: str = "") -> Finding:
        return self._finding(kind, [group], title, does, where)

    def _finding(self, kind: Kind, groups: Sequence[Group], title: str, does: str, where: str = "") -> Finding:
        """Return a finding on prompts. does: what they do, which begins with a verb."""
        group, lost = groups[0], sum(one.num_lost for one in groups)
        examples = tuple(map(self._example, group.examples))
        num_prompts = sum(one.num_prompts for one in groups)
        sentence = f"{self._did(num_prompts, does)}."
        return Finding(kind, title, sentence, num_prompts, lost, where, examples, tuple(sorted(group.shown)))

    def _did(self, number: int, does: str) -> str:
        verb, *rest = does.split(" ", 1)
        did = [SINGULAR.get(verb, verb) if number == 1 else verb, *rest]
        return f"{number:,} of {counted(self.num_prompts, 'prompt')} {' '.join(did)}"

    def _distinct(self, group: TextGroup) -> str:
        number = len(group.distinct) + 1
        return f", {'at least ' if number > MAX_DISTINCT else ''}{number:,} different ones"

    def _after(self, group: Evictions) -> str:
        if not group.ages:
            return ""
        blocks, seconds, steps = group.ages[len(group.ages) // 2]
        pool = f" in a pool of {self.num_blocks:,}" if self.num_blocks else ""
        long = f"{seconds:,.0f} s" if seconds >= 1 else counted(steps, "step")
        return f"; half of them were wanted {counted(blocks, 'block')} or more after their last use ({long}){pool}"

    def _example(self, raw: RawExample) -> Example:
        return Example(
            readable(raw.name, MAX_NAME),
            readable(raw.other, MAX_NAME),
            raw.position,
            raw.num_lost,
            *(self.text(part) for part in (raw.before, raw.mine, raw.its, raw.again)),
        )

    def text(self, tokens: Sequence[int] | str) -> str:
        """Return tokens, or a text of unknown origin, as one visible line."""
        if not isinstance(tokens, str):
            tokens = joined(list(map(self.token_text, tokens))) if self.token_text else " ".join(map(str, tokens))
        return readable(tokens, MAX_TEXT)
