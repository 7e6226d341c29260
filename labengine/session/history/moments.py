"""Steps and moments of a recording, and the recorded state as plain text."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.config import ConfigError, is_single_int
from labengine.events import StepFailed, ViolationFound
from labengine.record.timeline import Timeline
from labengine.session.step_text import step_line


@dataclass(frozen=True, slots=True)
class Look:
    """The recorded state at a moment, as text."""

    moment: int
    step: int
    """The step that had begun last."""
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
    """Return the moment after a step, or after one of its events. ConfigError when it is not recorded."""
    first, newest = recorded_steps(timeline)
    if not is_single_int(step) or not first <= step <= newest:
        raise ConfigError(f"step {step!r} {_not_recorded(timeline)}")
    if step == first:
        if event is not None:
            raise ConfigError(f"what happened in step {step} is not in the recording; it begins with step {first + 1}")
        return timeline.step_moments(first + 1)[0] if newest > first else timeline.end
    start, end = timeline.step_moments(step)
    if event is None:
        return _after_checks(timeline, end)
    if not is_single_int(event) or not 0 <= event < end - start:
        raise ConfigError(f"step {step} has events 0 to {end - start - 1}, got {event!r}")
    return start + event + 1


def _after_checks(timeline: Timeline, end: int) -> int:
    """Return the moment after the violations that the checks found when a step had ended."""
    while end < timeline.end and isinstance(timeline.events(end, end + 1)[0], ViolationFound):
        end += 1
    return end


def _not_recorded(timeline: Timeline) -> str:
    first, newest = recorded_steps(timeline)
    dropped = " (older ones were dropped)" if timeline.num_dropped else ""
    return f"is not in the recording, which goes from {first} to {newest}{dropped}"


def steps_after(timeline: Timeline, moment: int | None, num_steps: int) -> int:
    """Return the end of a later step, at most the newest, counted from a moment; inside a step, its end is first."""
    now, is_inside = _where(timeline, moment, num_steps)
    return moment_of(timeline, min(now + num_steps - is_inside, recorded_steps(timeline)[1]))


def steps_before(timeline: Timeline, moment: int | None, num_steps: int) -> int:
    """Return the end of an earlier step, counted from a moment. Raises ConfigError when it is not recorded."""
    now, first = _where(timeline, moment, num_steps)[0], recorded_steps(timeline)[0]
    if num_steps > now - first:
        way = f"back({now - first}) goes to its beginning" if now > first else "you stand at its beginning"
        raise ConfigError(f"a step {num_steps:,} before step {now} {_not_recorded(timeline)}: {way}")
    return moment_of(timeline, now - num_steps)


def _where(timeline: Timeline, moment: int | None, num_steps: int) -> tuple[int, bool]:
    """Return the step that had begun last, and True if the moment lies before its end."""
    if not is_single_int(num_steps) or num_steps < 1:
        raise ConfigError(f"how many steps must be an integer from 1, got {num_steps!r}")
    first, _ = recorded_steps(timeline)
    at = timeline.end if moment is None else moment
    now = timeline.state(at).step
    return now, now > first and at < timeline.step_moments(now)[1]


def recorded_steps(timeline: Timeline) -> tuple[int, int]:
    """Return (the step before the first recorded one, the newest that has begun). ConfigError when there is none."""
    first, newest = _first_and_newest(timeline)
    if first == newest:
        raise ConfigError("no step has been taken yet: %lab step, or lab.step(), takes one")
    return first, newest


def _first_and_newest(timeline: Timeline) -> tuple[int, int]:
    """Return the first and the newest recorded step; one number twice if no step was taken or the first one failed."""
    return timeline.state(timeline.num_dropped).step, timeline.state().step


def _line(timeline: Timeline, moment: int, step: int) -> str:
    first, newest = _first_and_newest(timeline)
    if step == first:
        return f"before step {first + 1} of {newest}"
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
