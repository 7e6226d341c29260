"""The newest step of a recording: its schedule, whether it was computed, and its failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labengine import events as ev
from labengine.record.wording import counted, listed, readable, request_name
from labengine_widgets.why.locks import Numbered
from labengine_widgets.why.past import Past

_RUN = (ev.SlotsWritten, ev.StateAdvanced, ev.ForwardRan, ev.StepEnded)


@dataclass(frozen=True)
class Step:
    """The events of a step up to its forward pass, the first of them its StepStarted.

    is_decided: its schedule is complete, because its forward pass has begun or it has ended. failed: its StepFailed.
    """

    number: int
    events: list[Numbered]
    is_decided: bool
    failed: tuple[int, ev.StepFailed] | None

    @property
    def begin(self) -> int:
        """The number of its StepStarted."""
        return self.events[0][0]

    @property
    def end(self) -> int:
        """The moment after the last of these events."""
        return self.events[-1][0] + 1

    @property
    def scheduled(self) -> list[tuple[int, ev.RequestScheduled]]:
        """What it schedules, in order."""
        return [(number, event) for number, event in self.events if isinstance(event, ev.RequestScheduled)]

    @property
    def preempted(self) -> list[tuple[int, ev.RequestPreempted]]:
        """Its victims, in order."""
        return [(number, event) for number, event in self.events if isinstance(event, ev.RequestPreempted)]

    def concerns(self, request_id: int) -> bool:
        """Return True if one of its events names the request."""
        return any(getattr(event, "request_id", None) == request_id for _, event in self.events)

    def spent(self) -> str:
        """Return what it computed, as the beginning of a sentence."""
        if not self.scheduled:
            return f"No request was scheduled in step {self.number}"
        computed = sum(event.num_tokens for _, event in self.scheduled)
        return f"Step {self.number} computed {counted(computed, 'token')} of {self.names()}"

    def so_far(self) -> str:
        """Return what a step under way has scheduled by now, as a sentence."""
        taken = f"{self.names()} so far" if self.scheduled else "no requests yet"
        return f"Step {self.number} is still being scheduled and has taken {taken}."

    def failure(self, request_id: int) -> str:
        """Return how the step failed and what it means for a request, as sentences."""
        assert self.failed is not None
        _, failed = self.failed
        name = request_name(request_id)
        error = f"{failed.error} in {readable(failed.method)}: {readable(failed.message, 300)}"
        reached = f"{name} was being scheduled in it" if self.concerns(request_id) else f"it had not reached {name}"
        return f"Step {self.number} failed and is rolled back: nothing it did counts, and {reached} ({error})."

    def names(self) -> str:
        """Return the names of the requests that it schedules, as a list."""
        return listed(request_name(event.request_id) for _, event in self.scheduled)


def newest_step(past: Past) -> Step | None:
    """Return the newest step that was not rolled back by the moment; None if the recording has none."""
    found: list[Numbered] = []
    for number, event in past.backwards():
        found.append((number, event))
        if isinstance(event, ev.StepStarted):
            found.reverse()
            failed = next(((n, e) for n, e in reversed(found) if isinstance(e, ev.StepFailed)), None)
            end = next((i for i, (_, e) in enumerate(found) if isinstance(e, _RUN)), None)
            return Step(event.step, found[:end], end is not None, failed)
    return None


def rolled_back_since(past: Past, start: int) -> Iterator[ev.StepRolledBack]:
    """Yield the steps rolled back between an event and the moment, the newest first."""
    for number, event in past.everything_backwards(past.moment):
        if number < start:
            return
        if isinstance(event, ev.StepRolledBack):
            yield event
