"""From a step to the moments of two recordings, and what one sees there in plain text."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.config import ConfigError, is_single_int
from labengine.session.time.crash import Crash
from labengine.session.time.moments import Look, moment_of
from labengine.timeline import Timeline

Ends = tuple[int, int]
Timelines = tuple[Timeline, Timeline]


@dataclass(frozen=True, slots=True)
class PairLook:
    """The recorded states of both sides where one stands, told in text."""

    left: Look
    right: Look
    names: tuple[str, str]

    @property
    def text(self) -> str:
        """Both, one below the other."""
        sides = zip(self.names, (self.left, self.right), strict=True)
        return "\n\n".join(f"{name}: {look.text}" for name, look in sides)

    def __repr__(self) -> str:
        return self.text


def look_at(timelines: Timelines, moments: Ends, names: tuple[str, str]) -> PairLook:
    """What there is to see on either side."""
    left, right = (_look(timeline, moment) for timeline, moment in zip(timelines, moments, strict=True))
    return PairLook(left, right, names)


def _look(timeline: Timeline, moment: int) -> Look:
    first, newest = _steps(timeline)
    if first != newest:
        return Look.at(timeline, moment)
    from labengine_widgets.ascii import block_map

    return Look(moment, newest, f"no step taken\n{block_map(timeline.state(moment).snapshot(), timeline)}")


def moments_of(timelines: Timelines, step: object) -> Ends:
    """Where either side had taken a step; one that took fewer stands at its end. ConfigError when neither has it."""
    first, newest = recorded_steps(timelines)
    if not is_single_int(step) or not first <= step <= newest:  # type: ignore[operator]
        dropped = " (older ones were dropped)" if any(timeline.num_dropped for timeline in timelines) else ""
        raise ConfigError(f"step {step} is not in both recordings, which go from {first} to {newest}{dropped}")
    left, right = (_moment(timeline, step) for timeline in timelines)  # type: ignore[arg-type]
    return left, right


def crash_moments(timelines: Timelines, crashes: tuple[Crash | None, Crash | None]) -> Ends:
    """Where a part of either side raised; a side without a crash stands at that step's end. ConfigError for none."""
    step = next((crash.step for crash in crashes if crash is not None), None)
    if step is None:
        raise ConfigError('goto("crash"): no part of either side has raised an exception inside a step')
    left, right = (
        _moment(timeline, step) if crash is None else crash.moment_in(timeline)
        for timeline, crash in zip(timelines, crashes, strict=True)
    )
    return left, right


def _moment(timeline: Timeline, step: int) -> int:
    first, newest = _steps(timeline)
    return timeline.end if first == newest or step > newest else moment_of(timeline, step)


def recorded_steps(timelines: Timelines) -> Ends:
    """(the step before the first that both have recorded, the newest of either). ConfigError when there is none."""
    known = [_steps(timeline) for timeline in timelines]
    first, newest = max(steps[0] for steps in known), max(steps[1] for steps in known)
    if first == newest:
        raise ConfigError("no step has been taken yet: %lab step, or comparison.step(), takes one on both sides")
    return first, newest


def steps_from(timelines: Timelines, moments: Ends, num_steps: object) -> Ends:
    """The steps so many before the one where both stand, and so many after it; inside a step its own end is the first.

    ConfigError for what is no number of steps.
    """
    if not is_single_int(num_steps) or num_steps < 1:  # type: ignore[operator]
        raise ConfigError(f"how many steps must be an integer from 1, got {num_steps!r}")
    first, newest = recorded_steps(timelines)
    now = max(timeline.state(moment).step for timeline, moment in zip(timelines, moments, strict=True))
    is_inside = now > first and any(at < end for at, end in zip(moments, moments_of(timelines, now), strict=True))
    return now - num_steps, min(now + num_steps - is_inside, newest)  # type: ignore[operator]


def _steps(timeline: Timeline) -> tuple[int, int]:
    return timeline.state(timeline.num_dropped).step, timeline.state().step
