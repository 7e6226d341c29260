"""The exception that ended a step: where it was raised, and the blocks held at that moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labengine.config import ConfigError
from labengine.events import Event, StepFailed, StepRolledBack
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.wording import visible


@dataclass(frozen=True, slots=True, repr=False)
class Crash:
    """An exception that a part raised inside a step, which was then rolled back."""

    step: int
    error: str
    """Name of the exception's class."""
    message: str
    method: str
    """Class and method that raised it, and the override that called it, if any."""
    exception: BaseException | None
    """The exception itself; None in an opened trace."""
    events: tuple[Event, ...]
    """The step's events, from StepStarted to StepFailed; empty without a recording."""
    generation: int = 0
    """The recording that holds the moment: rewind() and reset() begin a new one."""
    moment: int | None = None
    """The moment just before StepRolledBack, with all blocks that the step held; None without a recording."""

    def __str__(self) -> str:
        return visible(f"step {self.step} failed in {self.method}: {self.error}: {self.message}")

    __repr__ = __str__

    def moment_in(self, timeline: Timeline) -> int:
        """Return the moment in this recording. ConfigError if it was dropped."""
        if self.moment is None or self.generation != timeline.generation or self.moment < timeline.num_dropped:
            raise ConfigError(f"{self}; the recording no longer holds that moment")
        return self.moment


def newest_crash(timeline: Timeline) -> Crash | None:
    """Return the newest crash in a recording, or None."""
    failures = timeline.of_kind(StepFailed)
    return None if not failures else _crash_at(timeline, failures[-1], None)


def _crash_at(timeline: Timeline, failed: StepFailed, exception: BaseException | None) -> Crash:
    """Return the crash of the newest StepFailed of a recording."""
    start, end = timeline.step_moments(failed.step)
    events = timeline.events(start, end)
    length = next((i for i, event in enumerate(events) if isinstance(event, StepRolledBack)), len(events))
    place = next(i for i, event in enumerate(events) if isinstance(event, StepFailed))
    until, moment = tuple(events[: place + 1]), start + length
    return Crash(
        failed.step, failed.error, failed.message, failed.method, exception, until, timeline.generation, moment
    )


class Crashes:
    """Keeps the newest crash of a lab, until `forget` or the next one."""

    def __init__(self, hooks: Hooks, timeline: Timeline | None, failure: Callable[[], BaseException | None]) -> None:
        """failure: returns the last exception raised by a part; called inside StepFailed."""
        self.newest: Crash | None = None
        self._timeline, self._failure = timeline, failure
        self._failed: tuple[StepFailed, BaseException | None] | None = None
        hooks.subscribe(self._note_failure, StepFailed)
        hooks.subscribe(self._note_rollback, StepRolledBack)

    def forget(self) -> None:
        """Forget the crash when the lab is reset."""
        self.newest = self._failed = None

    def _note_failure(self, event: StepFailed) -> None:
        self._failed = event, self._failure()

    def _note_rollback(self, event: StepRolledBack) -> None:
        """Keep the crash, now that the step is complete: violations may follow StepFailed."""
        if self._failed is None:
            return
        failed, exception = self._failed
        self._failed = None
        if self._timeline is None:
            self.newest = Crash(failed.step, failed.error, failed.message, failed.method, exception, ())
        else:
            self.newest = _crash_at(self._timeline, failed, exception)
