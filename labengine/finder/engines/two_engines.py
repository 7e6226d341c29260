"""Two engines that play the same workloads, and the first event or state in which they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import tee, zip_longest
from typing import Any

from labengine.driven.process import DrivenEngine
from labengine.events import Event
from labengine.finder.engines.judgement import AnswerReader, PlayedCase, errors_in
from labengine.finder.engines.player import Player
from labengine.finder.judgement import Case
from labengine.finder.sandbox import Finding
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.vllm.conformance.result import FirstDifference, SideEvent, request_of, side_of_recording


@dataclass(frozen=True)
class PlayedSide(PlayedCase):
    """One engine's share of a workload. Its findings are its errors."""

    timeline: Timeline = field(default_factory=Timeline, compare=False)
    code: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The engine's method that decides each kind of event."""
    names: Mapping[int, str] = field(default_factory=dict, compare=False)
    """The engine's names of the requests."""
    states: Sequence[Mapping[str, Any]] = field(default=(), compare=False)
    """The state after each call, of an engine without events."""


class SideReader(AnswerReader):
    """Reads the answers of one engine's process without comparing them with an edition."""

    def played(
        self, case: Case, answer: dict[str, Any], on_state: Callable[[Fold], object] = lambda fold: None
    ) -> PlayedSide:
        """Return the events or states in an answer of the driver, and its errors."""
        reader, ending = self.stream_of(answer, on_state)
        findings = (*errors_in(answer), *([Finding("rule", ending, "said")] if ending else []))
        timeline = reader.pieces[0].timeline if reader.pieces else Timeline()
        return PlayedSide(
            findings,
            answer["num_done"],
            answer["num_steps"],
            "",
            list(timeline.events()),
            timeline,
            {} if reader.header is None else reader.header.code,
            reader.names,
            answer["states"] or (),
        )


class TwoEngines:
    """Plays cases on two engines at once, as Player does on one. A context manager."""

    def __init__(
        self,
        driven: DrivenEngine,
        against: DrivenEngine,
        on_state: Callable[[Case, Fold], object],
        start: Callable[[DrivenEngine], Any],
    ) -> None:
        """on_state: called with the states of the first engine. Raises ConfigError if one cannot be driven."""
        with ExitStack() as made:
            self._left = made.enter_context(Player(driven, on_state, start, SideReader))
            self._right = made.enter_context(Player(against, start=start, make_reader=SideReader))
            self._made = made.pop_all()
        is_one_driver = driven.name == against.name
        self._places = (driven.place, against.place) if is_one_driver else (driven.name, against.name)

    def __enter__(self) -> TwoEngines:
        return self

    def __exit__(self, *raised: object) -> None:
        self._made.close()

    @property
    def process(self) -> Any:
        """The first engine's process."""
        return self._left.process

    @property
    def names(self) -> tuple[str, str]:
        """Both engines with their releases; if these are equal, with their places."""
        one, other = self._left.process.engine, self._right.process.engine
        if one != other:
            return one, other
        return f"{one} ({self._places[0]})", f"{other} ({self._places[1]})"

    @property
    def remarks(self) -> list[str]:
        """Remarks on both processes."""
        return [*self._left.remarks, *self._right.remarks]

    @property
    def last(self) -> float:
        """The time (monotonic) after which no answer is awaited."""
        return self._left.last

    @last.setter
    def last(self, time: float) -> None:
        self._left.last = self._right.last = time

    def played(self, cases: Iterator[Case]) -> Iterator[tuple[Case, PlayedCase]]:
        """Yield each case with its first difference; some cases are taken ahead."""
        ours, theirs = tee(cases)
        for (case, left), (_, right) in zip(self._left.played(ours), self._right.played(theirs), strict=True):
            yield case, self._compared(left, right)

    def play(self, case: Case) -> PlayedCase:
        """Return the first difference in a case, ahead of those already sent."""
        return self._compared(self._left.play(case), self._right.play(case))

    def _compared(self, left: PlayedCase, right: PlayedCase) -> PlayedCase:
        found = difference_of_errors(self.names, (left, right))
        if found is None and isinstance(left, PlayedSide) and isinstance(right, PlayedSide):
            found = difference_of_states(self.names, (left, right)) or difference_of_events(self.names, (left, right))
        num_done, num_steps = max(left.num_done, right.num_done), max(left.num_steps, right.num_steps)
        return PlayedCase(() if found is None else (found,), num_done, num_steps, "", left.events)


Names = tuple[str, str]


def difference_of_errors(names: Names, sides: tuple[PlayedCase, PlayedCase]) -> Finding | None:
    """Return a finding if one engine has an error that the other one lacks."""
    one, other = (side.findings[0] if side.findings else None for side in sides)
    kinds = [None if error is None else (error.kind, error.rule) for error in (one, other)]
    if kinds[0] == kinds[1]:
        return None
    said = (error.message if error else "nothing goes wrong." for error in (one, other))
    lines = [f"  {name}: {text}" for name, text in zip(names, said, strict=True)]
    return Finding("differs", "\n".join(["They do not go wrong in the same way:", *lines]), "error")


def difference_of_states(names: Names, sides: tuple[PlayedSide, PlayedSide]) -> Finding | None:
    """Return a finding for the first call after which the states differ."""
    for number, (one, other) in enumerate(zip_longest(*(side.states for side in sides)), 1):
        if one is None or other is None:
            text = f"{names[one is None]} makes call {number}, {names[other is None]} does not"
            return Finding("differs", f"First difference: {text}.", "calls")
        for part in one:
            if one[part] != other[part]:
                lines = (f"  {name}: {state[part]}" for name, state in zip(names, (one, other), strict=True))
                return Finding("differs", "\n".join([f"First difference: {part} after call {number}.", *lines]), part)
    return None


def difference_of_events(names: Names, sides: tuple[PlayedSide, PlayedSide]) -> Finding | None:
    """Return a finding for the first event that differs, with both engines' methods."""
    from labengine_widgets.compare.first_difference import find_first_difference  # loads pandas

    left, right = sides
    found = find_first_difference(left.timeline, right.timeline)
    if found is None:
        return None
    place, pair, before = found
    events = _event(left.timeline, place.left), _event(right.timeline, place.right)
    moments = [
        start if number is None else number for number, start in zip((place.left, place.right), before, strict=True)
    ]
    one = side_of_recording(names[0], events[0], events[1], dict(left.code))
    other = side_of_recording(names[1], events[1], events[0], dict(right.code))
    if None in events:
        one = _with_all(one, left, pair.left, (before[0], pair.ends[0]))
        other = _with_all(other, right, pair.right, (before[1], pair.ends[1]))
    difference = FirstDifference(
        number=moments[0],
        shown_at=(moments[0], moments[1]),
        step=left.timeline.state(moments[0]).step,
        request=request_of(events, dict(left.names)),
        recorded=one,
        expected=other,
    )
    kinds = ["nothing" if event is None else type(event).__name__ for event in events]
    text = "\n".join([str(difference), *_shares(names, sides, place.shares)])
    return Finding("differs", text, f"{kinds[0]} instead of {kinds[1]}")


def _with_all(side: SideEvent, played: PlayedSide, events: Sequence[Event], span: tuple[int, int]) -> SideEvent:
    """Return a side that tells of all its events between two moments, because one side has more of them."""
    from labengine_widgets.compare.first_difference import side_sentence  # loads pandas

    if not events:
        return side
    sentence = side_sentence(played.timeline, "<#{}>".format, events, *span)
    return replace(side_of_recording(side.name, events[-1], None, dict(played.code)), sentence=sentence)


def _shares(names: Names, sides: tuple[PlayedSide, PlayedSide], numbers: tuple[int | None, int | None]) -> list[str]:
    """Return lines on the tokens that the step computes on each side, if they are unlike, with both methods."""
    from labengine_widgets.compare.first_difference import shares_sentence  # loads pandas

    sentence = shares_sentence([side.timeline for side in sides], numbers, names)
    if not sentence:
        return []
    shares = [_event(side.timeline, number) for side, number in zip(sides, numbers, strict=True)]
    methods = [
        side_of_recording(name, share, None, dict(side.code)).method
        for name, share, side in zip(names, shares, sides, strict=True)
    ]
    return [f"  {sentence}", *(f"    {method}" for method in methods if method)]


def _event(timeline: Timeline, number: int | None) -> Event | None:
    return None if number is None else timeline.events(number, number + 1)[0]
