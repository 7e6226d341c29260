"""Follows an engine without a tap: its states become events; the recording goes on where no events lead to a state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from labengine import events as ev
from labengine.driven.corrected import contradictions, corrected, own_contradictions
from labengine.driven.inferred import Asked, Inferring
from labengine.driven.model import DrivenModel
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.vllm.stream.pieces import newest_change

MOST_SENTENCES = 3
"""Most contradictions that one violation tells."""


class StateReader:
    """Reads a driver's states, and records the events that they imply.

    timeline, hooks: get the events. max_finished: finished requests that are kept; None for all.
    """

    def __init__(self, model: DrivenModel, timeline: Timeline, hooks: Hooks, max_finished: int | None) -> None:
        self._model = model
        self._inferring = Inferring(model.config, model.driven.edition)
        self.timeline, self._hooks, self._max_finished = timeline, hooks, max_finished
        self._finished: deque[int] = deque()
        self._said: set[str] = set()
        """Contradictions within the engine's states that were told before."""
        self.is_contradicted = False
        """True from a contradiction on until the open step ends: its events do not lead to the engine's state."""

    @property
    def fold(self) -> Fold:
        """The engine's state after the newest call."""
        return self._inferring.fold

    @property
    def seams(self) -> dict[str, Any]:
        """The engine's method that decides each kind of event, as far as its driver names one."""
        header = self._model.header or {}
        return {kind: _seam(place, self._model.name) for kind, place in header.get("methods", {}).items()}

    def go_on_in(self, timeline: Timeline) -> None:
        """Record in another timeline from now on, which ends at the same state."""
        self.timeline = timeline

    def take(self, answer: Mapping[str, Any]) -> None:
        """Follow the states of an answer. Its operations are those that were asked for."""
        operations = iter(answer["operations"])
        for call, state, plan in answer["states"]:
            if call in ("add", "abort"):
                self._note(next(one for one in operations if one[0] == call))
            self._follow(call, state, plan)

    def record(self, event: ev.Event) -> None:
        """Record an event that no state tells."""
        self.timeline.record(event)
        if type(event) in self._hooks:
            self._hooks.emit(event)

    def _note(self, operation: Sequence[Any]) -> None:
        asked = self._inferring.asked
        if operation[0] == "add":
            _, prompt, max_tokens, _, options = operation
            asked.append(Asked(tuple(prompt), max_tokens, options.get("seed", len(asked))))
        else:
            asked[operation[1]].is_aborted = True

    def _follow(self, call: str, state: Mapping[str, Any], plan: Mapping[str, Sequence[int]]) -> None:
        for event in self._told(call, state, plan):
            self.record(event)
            if isinstance(event, ev.RequestFinished):
                self._finished.append(event.request_id)
        if call == "update":
            self.record(ev.StepEnded(self.fold.step))
        if self.is_contradicted and call != "schedule":  # a step is recorded whole, because it may be rolled back
            self.timeline.correct(self.fold)
            self.is_contradicted = False
        if call == "update":
            self._forget_finished()

    def _told(self, call: str, state: Mapping[str, Any], plan: Mapping[str, Sequence[int]]) -> Iterator[ev.Event]:
        """Yield the events of a call. Where they do not lead to the state, go on from it, with a violation."""
        try:
            events, wrong = self._inferring.told(call, state, plan), ""
        except Exception as error:  # a broken engine's state may be anything
            events, wrong = self._inferring.taken, readable(str(error), 200)
        yield from events
        found = [wrong] if wrong else contradictions(self.fold, state)[:MOST_SENTENCES]
        if found:
            self._inferring.go_on_from(corrected(self.fold, state))
            self.is_contradicted = True
            yield self._violation(f"no events lead to the engine's own state: {'; '.join(found)}")
        new = [one for one in own_contradictions(state, len(self.fold.ref_counts)) if one not in self._said]
        if new:
            self._said.update(new)
            yield self._violation(f"the engine's state contradicts itself: {'; '.join(new[:MOST_SENTENCES])}")

    def _violation(self, message: str) -> ev.Event:
        cause = newest_change(self.timeline)
        return ev.ViolationFound("said", readable(message, 1000), (), (), self.fold.step, cause)

    def _forget_finished(self) -> None:
        while self._max_finished is not None and len(self._finished) > self._max_finished:
            self.record(self._inferring.forget(self._finished.popleft()))


INFERRED = "This event is inferred from two states of the engine, in which the method usually decides it."
"""The reason of each seam: the engine itself says only what its state is."""


def _seam(place: Mapping[str, Any], engine: str) -> dict[str, Any]:
    owner, module, seam = (readable(place[name]) for name in ("class", "module", "method"))
    where = f"{module.replace('.', '/')}.py, line {place['line']}, {readable(engine)}"
    return {
        "seam": seam,
        "class": owner,
        "module": module,
        "line": place["line"],
        "reason": INFERRED,
        "place": where,
        "source": f"# {where}",
        "base": None,
        "is_custom": False,
        "methods": [],
    }
