"""The result of conform(): whether a recorded scheduler does the same as its edition, and the first difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from labengine import events as ev
from labengine.config import ConfigError
from labengine.core.part_methods import definers
from labengine.core.parts import Parts
from labengine.core.seams import Decider, decider, decider_among
from labengine.record.files.file import packed, run_of
from labengine.record.files.file_access import Limits
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.record.wording import block_name, entry_name, readable, request_name
from labengine.session.compare.comparison import Comparison
from labengine.session.reasons import seams_of
from labengine.session.saved.trace import Trace
from labengine.vllm.conformance.against import Against, against
from labengine.vllm.conformance.recorded import Recorded
from labengine.vllm.conformance.settings import edition_for
from labengine.vllm.stream.description import STEPS_ARE_OF_VLLM
from labengine_widgets.words.phrases import phrase

CONFORMS, DIFFERS, UNJUDGED = 0, 1, 2
"""Exit codes of `labengine conform`."""

QUEUE_METHODS = ("Scheduler.next_waiting", "WaitingQueue.add_request", "WaitingQueue.prepend_request")
"""Methods that decide which request is admitted next."""

MAX_SHOWN = 3
"""Most violations printed; the later ones mostly follow from the first."""


@dataclass(frozen=True, slots=True)
class SideEvent:
    """One side of the first difference. event: None on a side without such an event."""

    name: str
    """The engine, or the edition."""
    event: ev.Event | None
    sentence: str
    method: str
    """Class and method that decided the event, with file and line if known; empty without an event."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        kind = None if self.event is None else type(self.event).__name__
        return {"name": self.name, "event": kind, "sentence": self.sentence, "method": self.method}


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first event in which the recorded engine and the edition differ. request: the engine's name of it."""

    number: int
    """Number of events before it in the stream."""
    shown_at: tuple[int, int]
    """The moments just after it, in the recording and in the edition's events."""
    step: int
    request: str
    recorded: SideEvent
    expected: SideEvent

    def __str__(self) -> str:
        about = f", request {self.request}" if self.request else ""
        lines = [f"First difference: step {self.step}{about}, event {self.number}."]
        for side in (self.recorded, self.expected):
            lines += [f"  {side.name}: {side.sentence}"] + ([f"    {side.method}"] if side.method else [])
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        sides = {"recorded": self.recorded.to_dict(), "expected": self.expected.to_dict()}
        return {"number": self.number, "step": self.step, "request": self.request, **sides}


@dataclass(frozen=True, repr=False)
class Conformance:
    """Whether a recorded vLLM scheduler decided like its edition; truthy only if it did, to the stream's end.

    A stream without an end is judged to the last moment at which all requests were done; `note` says so.

    num_judged: events on which both agree. difference: the first event in which they differ. why_unjudged: why the rest
    was not judged: a feature, a gap, a version. violations: found by rules and oracle in the recording.
    """

    title: str
    edition: str
    num_events: int
    num_steps: int
    num_judged: int
    difference: FirstDifference | None
    why_unjudged: str
    violations: tuple[Violation, ...]
    note: str
    recorded: Recorded | None = field(compare=False)
    """The judged recording; None if none of it could be judged."""
    expected: Timeline | None = field(compare=False)
    """The edition's events, up to the call in which they differ."""

    @property
    def exit_code(self) -> int:
        """0: the recording conforms. 1: it differs, or breaks a rule. 2: it could not be judged to its end."""
        if self.difference is not None or self.violations:
            return DIFFERS
        return UNJUDGED if self.why_unjudged else CONFORMS

    def __bool__(self) -> bool:
        return self.exit_code == CONFORMS

    @property
    def verdict(self) -> str:
        """A sentence with the verdict (conforms, differs or cannot be judged) and the numbers of events."""
        judged = f"{self.num_judged:,} of {self.num_events:,} events"
        if self.exit_code == CONFORMS:
            return f"Conforms to edition {self.edition}: all {self.num_events:,} events in {self.num_steps:,} steps."
        if self.difference is not None:
            return f"Differs from edition {self.edition} after {judged}."
        if self.violations:
            ending = f", and then cannot be judged: {self.why_unjudged}" if self.why_unjudged else ""
            return f"Breaks a rule; edition {self.edition} does the same in {judged}{ending}."
        return f"Cannot be judged to the end: {self.why_unjudged}. Up to there it conforms, in {judged}."

    def __repr__(self) -> str:
        lines = [self.title, self.verdict, *([self.note] if self.note else [])]
        lines += [str(self.difference)] if self.difference is not None else []
        found = self.violations[:MAX_SHOWN]
        lines += [f"It breaks the rule {one.rule} in step {one.step}: {one.message}" for one in found]
        num_more = len(self.violations) - len(found)
        lines += [f"... and rules in {num_more} more places: `violations` lists them."] if num_more else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "title": self.title,
            "edition": self.edition,
            "verdict": ("conforms", "differs", "cannot be judged")[self.exit_code],
            "num_events": self.num_events,
            "num_steps": self.num_steps,
            "num_judged": self.num_judged,
            "difference": None if self.difference is None else self.difference.to_dict(),
            "why_unjudged": self.why_unjudged,
            "note": self.note,
            "violations": [{"rule": one.rule, "message": one.message, "step": one.step} for one in self.violations],
        }

    def compare(self) -> Comparison:
        """Return both sides in the compare view, the recording left; the newest moment is the first difference.

        Raises ConfigError if nothing could be judged.
        """
        if self.recorded is None or self.expected is None:
            raise ConfigError(f"nothing to compare: {self.why_unjudged}")
        ends = None if self.difference is None else self.difference.shown_at
        return comparison_of(self.recorded, self.expected, ends)

    def against(self, other: object) -> Against:
        """Run the recorded traffic on other parts: an edition's name, Parts, or a class that replaces one part.

        Its requests come in the recorded steps and sample the recorded tokens. Raises ConfigError if the traffic cannot
        be run.
        """
        if self.recorded is None:
            raise ConfigError(f"the traffic cannot be repeated: {self.why_unjudged}")
        return against(self.recorded, other)

    def _ipython_display_(self) -> None:
        print(self)
        if self.difference is not None:
            self.compare()._ipython_display_()


def side_of_recording(name: str, event: ev.Event | None, other: ev.Event | None, code: dict[str, Any]) -> SideEvent:
    """Return the recorded side, with vLLM's method. other: the edition's event at the same place."""
    if event is None:
        return _nothing(name)
    seam = code.get(type(event).__name__) if _shares_table(event, other) else ev.entry_of(code, event)
    if _is_out_of_turn(event, other):
        seam = code.get("PrefixHit:order", seam)
    method = "" if seam is None else f"{seam['seam']}, {str(seam['source']).removeprefix('# ')}"
    return SideEvent(name, event, phrase(event), method)


def freed_in_use(side: SideEvent, block_id: int, entry: tuple[int, int, int]) -> SideEvent:
    """Return the recorded side of a block that was freed while a table's entry (request, group, index) leads to it."""
    sentence = f"Block {block_name(block_id)} was freed, but is still {entry_name(*entry)}."
    return replace(side, sentence=sentence)


def unexpressed(name: str, why: str, method: str) -> SideEvent:
    """Return the recorded side of a change by vLLM that no event expresses."""
    return SideEvent(name, None, f"{readable(why, 300)}; no event expresses it.", method)


def side_of_edition(parts: Parts, event: ev.Event | None, other: ev.Event | None = None) -> SideEvent:
    """Return the edition's side, with the method of its parts. other: the recorded event at the same place."""
    name = f"edition {parts.name}"
    if event is None:
        return _nothing(name)
    decided = _decider(parts, event, other)
    return SideEvent(name, event, phrase(event), "" if decided is None else f"{decided}, {decided.owner.__module__}")


def _decider(parts: Parts, event: ev.Event, other: ev.Event | None) -> Decider | None:
    """Return the method that makes two events differ: in the same table, the blocks or their places differ."""
    if _is_out_of_turn(event, other):
        return decider_among(parts, QUEUE_METHODS)
    if not _shares_table(event, other):
        return decider(parts, event)
    if isinstance(event, ev.BlockAllocated):
        return Decider(definers(parts.free_queue, "take")[0], "take")
    if getattr(event, "block_id", None) == getattr(other, "block_id", None):
        return Decider(definers(parts.block_pool, "reused_first")[0], "reused_first")
    return Decider(definers(parts.full_attention_group, "freeing_order")[0], "freeing_order")


def _is_out_of_turn(one: ev.Event, other: ev.Event | None) -> bool:
    """Return True for two admissions of different requests."""
    return isinstance(one, ev.PrefixHit) and isinstance(other, ev.PrefixHit) and one.request_id != other.request_id


def _shares_table(one: ev.Event, other: ev.Event | None) -> bool:
    """Return True for two blocks taken for, or freed from, the same table."""
    if type(one) is not type(other) or not isinstance(one, (ev.BlockFreed, ev.BlockAllocated)):
        return False
    return (one.request_id, one.group) == (getattr(other, "request_id", None), getattr(other, "group", None))


def request_of(events: Sequence[ev.Event | None], names: dict[int, str]) -> str:
    """Return the name of an event's request; empty without one."""
    for event in events:
        request_id = getattr(event, "request_id", None)
        if request_id is not None:
            return name_of(request_id, names)
    return ""


def name_of(request_id: int | None, names: dict[int, str]) -> str:
    """Return the engine's name of a request, and ours; empty for None."""
    return "" if request_id is None else f"{readable(names.get(request_id, '?'))} ({request_name(request_id)})"


def _nothing(name: str) -> SideEvent:
    return SideEvent(name, None, "nothing like it happens.", "")


RIGHT_NOTE = "These are the edition's events on the recorded inputs, without an engine to step."


def comparison_of(recorded: Recorded, expected: Timeline, ends: tuple[int, int] | None) -> Comparison:
    """Return recording and edition side by side. ends: the last shown moments; None for all."""
    header, timeline = recorded.header, recorded.piece.timeline
    if ends is not None:
        timeline, expected = timeline.until(ends[0]), expected.until(ends[1])
    code = header.code
    parts = edition_for(header)
    left = _trace(recorded, timeline, recorded.name, STEPS_ARE_OF_VLLM, code)
    right = _trace(recorded, expected, f"edition {parts.name}", RIGHT_NOTE, seams_of(parts, None))
    return Comparison(left, right, names=(recorded.name, f"edition {parts.name}"), title=recorded.title)


def _trace(recorded: Recorded, timeline: Timeline, title: str, note: str, code: dict[str, Any]) -> Trace:
    names = {str(i): readable(name) for i, name in recorded.names.items() if i in timeline.state().requests}
    facts = {"title": title, "edition": title, "note": note, "stream": {}, "request_names": names, "code": code}
    return Trace(run_of(packed(timeline, facts, lambda token_id: f"<#{token_id}>"), Limits(title)))
