"""The judgement on one workload of another engine: its events are compared with the rules and its edition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from labengine.driven.calls import last_frames
from labengine.driven.drivable import is_driver_file
from labengine.driven.inside.symptoms import differences
from labengine.events import Event
from labengine.finder.engines.edition import EditionRun, edition_run
from labengine.finder.engines.scopes import EngineScope, can_hold_all, wire_workload
from labengine.finder.judgement import Case
from labengine.finder.sandbox import Finding
from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import TraceError
from labengine.record.fold import Fold
from labengine.record.wording import counted, readable
from labengine.vllm.conformance.checks import violations_of
from labengine.vllm.conformance.conform import conformance_of
from labengine.vllm.conformance.recorded import recorded_by
from labengine.vllm.conformance.result import Conformance
from labengine.vllm.stream.header import StreamHeader, header_of
from labengine.vllm.stream.reader import StreamReader

MAX_EVENTS = 1 << 20
ENDLESS = "EndlessWorkloadError"
"""The driver's name for a workload that takes too long."""


@dataclass(frozen=True)
class PlayedCase:
    """The result of one workload. findings: the gravest first; num_done: operations up to them."""

    findings: tuple[Finding, ...]
    num_done: int
    num_steps: int
    why_unjudged: str
    """The reason that the edition could not follow to the end; empty if it could."""
    events: Sequence[Event] = field(default=(), compare=False, repr=False)


class AnswerReader:
    """Reads the answers of one engine's process."""

    def __init__(self) -> None:
        self._header: StreamHeader | None = None

    def played(
        self, case: Case, answer: dict[str, Any], on_state: Callable[[Fold], object] = lambda fold: None
    ) -> PlayedCase:
        """Judge an answer of the driver. on_state: called with each state of the engine, or of its edition."""
        scope = cast(EngineScope, case.scope)
        if answer["states"] is None:
            found = [*_raised(answer["error"])]
            why, events = self._judge_events(answer, on_state, found)
        elif is_driver_file(scope.engine):
            found, why, events = [*_raised(answer["error"])], "", []
        else:
            rerun = edition_run(scope, wire_workload(scope, case.workload), on_state)
            found, why, events = [*_judge_states(scope, answer, rerun)], "", rerun.events
        if not found and answer["left"]:
            found.append(_unfinished(answer["left"], answer["num_steps"]))
        return PlayedCase(tuple(found), answer["num_done"], answer["num_steps"], why, events)

    def stream_of(self, answer: dict[str, Any], on_state: Callable[[Fold], object]) -> tuple[StreamReader, str]:
        """Return what was read of an answer's events, and the reason that one cannot follow its predecessors."""
        if answer.get("header") and answer["states"] is None:
            self._header = header_of(answer["header"], "the driven engine")
        reader = StreamReader(Limits("the driven engine"), MAX_EVENTS)
        reader.header = self._header
        return reader, _take_all(reader, answer["messages"], on_state)

    def _judge_events(
        self, answer: dict[str, Any], on_state: Callable[[Fold], object], found: list[Finding]
    ) -> tuple[str, Sequence[Event]]:
        """Add findings about the events; return the reason that judging them ended early (or empty), and the events."""
        reader, ending = self.stream_of(answer, on_state)
        if not reader.pieces:
            return ending, ()
        recorded = recorded_by(reader, "the driven engine", ending)
        conformance = conformance_of(recorded)
        broken = conformance.violations
        if conformance.recorded is None:  # no edition to compare with, but the rules still apply
            broken = tuple(violations_of(recorded.piece))
        found += [Finding("rule", one.message, one.rule) for one in broken[:1]]
        if ending and conformance.difference is None:
            found.append(Finding("rule", ending, "said"))
        if reader.pieces[0].contradictions:
            found.append(Finding("rule", reader.pieces[0].contradictions[0], "said"))
        elif conformance.difference is not None:
            found.append(Finding("differs", str(conformance.difference), _place_of(conformance)))
        return conformance.why_unjudged, list(recorded.piece.timeline.events())


def _judge_states(scope: EngineScope, answer: Mapping[str, Any], rerun: EditionRun) -> Iterator[Finding]:
    """Yield the engine's error, unless the edition asked for has it, too, and the first difference from the edition."""
    differing = _first_difference(answer, rerun)
    if differing is not None:
        yield from (*_raised(answer["error"]), differing)
    elif not (scope.edition and _has_error(rerun, answer)):
        yield from _raised(answer["error"])


def _has_error(rerun: EditionRun, answer: Mapping[str, Any]) -> bool:
    """Return whether an edition with the engine's states has its error: a symptom of the last one, or an exception."""
    is_symptom = answer["error"] is not None and answer["error"][3]
    return bool(is_symptom or (rerun.failure and len(rerun.states) == len(answer["states"])))


def _first_difference(answer: Mapping[str, Any], rerun: EditionRun) -> Finding | None:
    """Return the first call after which the states differ, or that the edition cannot follow."""
    states, expected = answer["states"], rerun.states
    for number, (state, wanted) in enumerate(zip(states, expected, strict=False), 1):
        if differing := [*differences(state, wanted)]:
            return Finding("differs", f"after call {number}: {differing[0]}", differing[0].partition(" ")[0])
    if len(states) > len(expected) and not answer["left"]:
        why = rerun.failure or "all its requests have ended"
        return Finding("differs", f"the edition cannot follow call {len(expected) + 1}: {why}", "calls")
    return None


def _take_all(reader: StreamReader, messages: Sequence[dict[str, Any]], on_state: Callable[[Fold], object]) -> str:
    """Read the messages; return the reason that one of them cannot follow its predecessors, or an empty string."""
    try:
        for message in messages:
            reader.take_document(message)
            on_state(reader.pieces[-1].fold)
    except TraceError as error:
        return readable(str(error), 400)
    return ""


def errors_in(answer: Mapping[str, Any]) -> list[Finding]:
    """Return an engine's exception or symptom, or that work is left."""
    left = [_unfinished(answer["left"], answer["num_steps"])] if answer["left"] else []
    return _raised(answer["error"]) or left


def _raised(error: Sequence[str] | None) -> list[Finding]:
    if error is None:
        return []
    name, message, trace, rule, *_ = error
    if rule:
        return [Finding("worse" if rule == "hit" else "rule", readable(message, 300), rule)]
    if name == ENDLESS:
        return [
            Finding(
                "liveness",
                f"a workload exceeds its processor time or waits forever, in {readable(message)}",
                "endless",
            )
        ]
    return [Finding("raises", f"{name}: {readable(message, 300)}\n{last_frames(trace)}", name)]


def _unfinished(left: Mapping[str, Any], num_steps: int) -> Finding:
    said = "; ".join(
        f"request {name} is {status} with {counted(sum(map(len, tables)), 'block')}"
        for name, (status, tables) in left["requests"].items()
    )
    text = f"no step makes progress after {num_steps}: {said}; blocks in the free queue: {len(left['free_queue'])}"
    return Finding("liveness", readable(text, 1000), "liveness")


def _place_of(conformance: Conformance) -> str:
    """Return a name for similar findings: the kinds of the two events that differ, and the edition's method."""
    difference = conformance.difference
    assert difference is not None
    kinds = [
        type(side.event).__name__ if side.event else "nothing" for side in (difference.recorded, difference.expected)
    ]
    return f"{kinds[0]} instead of {kinds[1]}"


@dataclass(frozen=True)
class SameWay:
    """Judges whether a case has the same error as another one: the same kind and rule."""

    play: Callable[[Case], PlayedCase]
    like: Finding

    def __call__(self, case: Case) -> tuple[Finding, Case] | None:
        """Return the finding and the case up to it; None without this error."""
        if not can_hold_all(cast(EngineScope, case.scope), case.workload):
            return None
        played = self.play(case)
        for finding in played.findings:
            if (finding.kind, finding.rule) == (self.like.kind, self.like.rule):
                return finding, case
        return None
