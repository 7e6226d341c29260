"""Steps and moments of a recording, and the recorded state as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labengine.config import ConfigError, as_int, is_single_int
from labengine.events import StepFailed, ViolationFound
from labengine.record.timeline import Timeline
from labengine.session.step_text import step_line


@dataclass(frozen=True, slots=True)
class Look:
    """The recorded state at a moment, as text."""

    moment: int
    step: int
    """The last step that had begun."""
    text: str

    @classmethod
    def at(cls, timeline: Timeline, moment: int) -> Look:
        """Return the state at a moment of a recording."""
        from labengine_widgets.pictures.ascii import block_map

        state = timeline.state(moment)
        return cls(
            moment, state.step, f"{_line(timeline, moment, state.step)}\n{block_map(state.snapshot(), timeline)}"
        )

    def __repr__(self) -> str:
        return self.text


def moment_of(timeline: Timeline, step: int, event: int | None = None) -> int:
    """Return the moment after a step, or after one of its events. ConfigError if it is not recorded."""
    (after,) = moments_of([timeline], step)
    if event is None:
        return after
    first, _ = recorded_steps([timeline])
    if step == first:
        raise ConfigError(f"the recording begins with step {first + 1}, so it has no events of step {step}")
    start, end = timeline.step_moments(step)
    if not is_single_int(event) or not 0 <= event < end - start:
        raise ConfigError(f"step {step} has events 0 to {end - start - 1}, got {event!r}")
    return start + event + 1


def moments_of(timelines: Sequence[Timeline], step: object) -> tuple[int, ...]:
    """Return each recording's moment after a step; for a shorter recording, its end.

    ConfigError for a step before either recording's beginning, or after both ends.
    """
    first, newest = recorded_steps(timelines)
    asked = as_int(step)
    if asked is None or not first <= asked <= newest:
        raise ConfigError(f"step {step!r} {_not_recorded(timelines)}")
    return tuple(moment_after(timeline, asked) for timeline in timelines)


def moment_after(timeline: Timeline, step: int) -> int:
    """Return the moment after a step and the violations found then; the end for a step not reached."""
    end = _end_of(timeline, step)
    while end < timeline.end and isinstance(timeline.events(end, end + 1)[0], ViolationFound):
        end += 1
    return end


def _end_of(timeline: Timeline, step: int) -> int:
    first, newest = _first_and_newest(timeline)
    if first == newest or step > newest:
        return timeline.end
    return timeline.step_moments(first + 1)[0] if step == first else timeline.step_moments(step)[1]


def _not_recorded(timelines: Sequence[Timeline]) -> str:
    first, newest = recorded_steps(timelines)
    dropped = " (older ones were dropped)" if any(timeline.num_dropped for timeline in timelines) else ""
    what = "the recording, which goes" if len(timelines) == 1 else "both recordings, which go"
    return f"is not in {what} from {first} to {newest}{dropped}"


def steps_after(timelines: Sequence[Timeline], moments: Sequence[int | None], num_steps: object) -> tuple[int, ...]:
    """Return the moments num_steps later, at most the newest; from inside a step, the first is the step's end."""
    asked, now, is_inside = _where(timelines, moments, num_steps)
    return moments_of(timelines, min(now + asked - is_inside, recorded_steps(timelines)[1]))


def steps_before(timelines: Sequence[Timeline], moments: Sequence[int | None], num_steps: object) -> tuple[int, ...]:
    """Return the moments num_steps earlier, each at a step's end. Raises ConfigError if not recorded."""
    asked, now, _ = _where(timelines, moments, num_steps)
    first, _ = recorded_steps(timelines)
    if asked > now - first:
        way = f"back({now - first}) goes to its beginning" if now > first else "this is its beginning"
        raise ConfigError(f"{asked:,} back from step {now} {_not_recorded(timelines)}: {way}")
    return moments_of(timelines, now - asked)


def _where(timelines: Sequence[Timeline], moments: Sequence[int | None], num_steps: object) -> tuple[int, int, bool]:
    """Return num_steps, the last step that had begun, and True if a moment lies before its end."""
    asked = as_int(num_steps)
    if asked is None or asked < 1:
        raise ConfigError(f"the number of steps must be a positive integer, got {num_steps!r}")
    first, _ = recorded_steps(timelines)
    places = [(one, one.end if at is None else at) for one, at in zip(timelines, moments, strict=True)]
    now = max(timeline.state(at).step for timeline, at in places)
    return asked, now, now > first and any(at < _end_of(timeline, now) for timeline, at in places)


def recorded_steps(timelines: Sequence[Timeline]) -> tuple[int, int]:
    """Return (the step before the first that all recordings have, the newest begun). ConfigError without any."""
    firsts, newest = zip(*map(_first_and_newest, timelines), strict=True)
    if max(firsts) == max(newest):
        of = "lab" if len(timelines) == 1 else "comparison"
        raise ConfigError(f"no step has been taken yet: take one with %lab step or {of}.step()")
    return max(firsts), max(newest)


def _first_and_newest(timeline: Timeline) -> tuple[int, int]:
    """Return the first and the newest recorded step; the same number if no step was taken or the first one failed."""
    return timeline.state(timeline.num_dropped).step, timeline.state().step


def _line(timeline: Timeline, moment: int, step: int) -> str:
    first, newest = _first_and_newest(timeline)
    if step == first:
        return f"before step {first + 1} of {newest}" if newest > first else "no step taken"
    start, end = timeline.step_moments(step)
    failed = [event for event in timeline.events(start, moment) if isinstance(event, StepFailed)]
    if failed and moment < end:
        error = f"{failed[0].error}: {failed[0].message}"
        return f"step {step}, which failed here in {failed[0].method}: {error}"
    if moment >= end:
        return step_line(step, newest, timeline.events(start, end))
    from labengine_widgets.words.captions import captions_of

    captions = captions_of(timeline, moment - 1, moment)
    sentence = f": {captions[-1][1]}" if captions else ""
    return f"step {step} of {newest}, after {moment - start} of its {end - start} events{sentence}"
