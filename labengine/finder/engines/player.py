"""Plays cases on another engine, several at a time, and restarts an engine that hangs or dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from time import monotonic
from typing import Any, cast

from labengine.driven.process import SILENCE_S, DrivenEngine, EngineLostError, EngineProcess
from labengine.finder.engines.judgement import AnswerReader, PlayedCase
from labengine.finder.engines.scopes import EngineScope, wire_workload
from labengine.finder.judgement import Case
from labengine.finder.sandbox import Finding, Kind
from labengine.isolation.limits import SearchEndedError
from labengine.record.fold import Fold

NUM_UNDER_WAY = 16
"""Workloads sent to the engine while answers are judged: few enough for a pipe, so that neither side blocks."""


class Player:
    """One process of an engine, restarted when it is lost. A context manager.

    on_state: called with the state after each message of a case.
    """

    def __init__(
        self,
        driven: DrivenEngine,
        on_state: Callable[[Case, Fold], object] = lambda case, fold: None,
        start: Callable[[DrivenEngine], Any] = EngineProcess,
        make_reader: Callable[[], AnswerReader] = AnswerReader,
    ) -> None:
        """start: makes the process; make_reader: makes what reads its answers.

        Raises ConfigError if the engine cannot be driven there.
        """
        self._driven, self._start, self._on_state, self._make_reader = driven, start, on_state, make_reader
        self._waiting: deque[Case] = deque()
        """Sent cases, the oldest first."""
        self._judged: deque[tuple[Case, PlayedCase]] = deque()
        """Cases judged ahead of their turn."""
        self.remarks: list[str] = []
        self.last = inf
        """The time (monotonic) after which no answer is awaited."""
        self._begin()

    def _begin(self) -> None:
        self.process = self._start(self._driven)
        self._reading = self._make_reader()

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.close()

    def played(self, cases: Iterator[Case]) -> Iterator[tuple[Case, PlayedCase]]:
        """Yield each case with its result, in order; some cases are taken ahead."""
        while True:
            while len(self._waiting) + len(self._judged) < NUM_UNDER_WAY:
                case = next(cases, None)
                if case is None:
                    break
                self._send(case)
            if not self._judged:
                if not self._waiting:
                    return
                self._receive()
            yield self._judged.popleft()

    def play(self, case: Case) -> PlayedCase:
        """Return the result of a case, ahead of those already sent."""
        while self._waiting:
            self._receive()
        kept, self._judged = self._judged, deque()
        self._send(case)
        self._receive()
        (_, played), self._judged = self._judged[-1], kept
        return played

    def _send(self, case: Case) -> None:
        self._waiting.append(case)
        try:
            self.process.send(_wire(case))
        except EngineLostError as error:
            self._recover(error)

    def _receive(self) -> None:
        """Judge the answer to the oldest sent case."""
        try:
            answer = self._answer()
        except EngineLostError as error:
            self._recover(error)
            return
        case = self._waiting.popleft()
        self._judged.append((case, self._judged_answer(case, answer)))

    def _answer(self) -> dict[str, Any]:
        """Return the oldest answer. Raises EngineLostError, and SearchEndedError after the deadline."""
        seconds = self.last - monotonic()
        if seconds > SILENCE_S:
            return cast(dict[str, Any], self.process.receive())
        try:
            return cast(dict[str, Any], self.process.receive(max(0.0, seconds)))
        except EngineLostError as error:
            if error.is_silent:
                raise SearchEndedError(str(error)) from None
            raise

    def _judged_answer(self, case: Case, answer: dict[str, Any]) -> PlayedCase:
        return self._reading.played(case, answer, lambda fold: self._on_state(case, fold))

    def _recover(self, error: EngineLostError) -> None:
        """Restart the engine, and play the oldest case alone: if the engine is lost again, that is a finding."""
        suspected = self._waiting.popleft()
        self.process.close()
        self._begin()
        try:
            self.process.send(_wire(suspected))
            played = self._judged_answer(suspected, self._answer())
            self.remarks.append(f"The engine was lost once, though not because of its workload: {error}.")
        except EngineLostError as again:
            self.process.close()
            self._begin()
            kind: Kind = "liveness" if again.is_silent or again.is_endless else "raises"
            played = PlayedCase(
                (Finding(kind, str(again), "lost", ends_process=kind == "raises"),),
                len(suspected.workload),
                0,
                "the engine was lost",
            )
        self._judged.append((suspected, played))
        try:
            for case in self._waiting:
                self.process.send(_wire(case))
        except EngineLostError as another:
            self._recover(another)


def _wire(case: Case) -> dict[str, Any]:
    return wire_workload(cast(EngineScope, case.scope), case.workload)
