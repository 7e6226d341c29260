"""A recording as it was when a cell ran, standing at one moment: what a view with at= shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Literal

from labengine.config import ConfigError, is_single_int
from labengine.session.recorded import Recorded
from labengine.session.recording_view_source import RecordingViewSource
from labengine.session.time.moments import moment_of
from labengine.timeline import Timeline
from labengine_widgets.view_source import ViewSource

At = int | tuple[int, int] | Literal["crash"]
"""The end of a step, (step, event) for after an event inside it, counted from 0, or "crash"; as lab.goto takes them."""

_numbers = count(1)

_NOTE = "This picture stays where it is: it does not follow the lab. lab.show() shows the lab as it is now."
_REFUSAL = "this picture stands at an earlier moment; lab.show() has the controls"


class Frozen(Recorded):
    """The recording of a lab up to the end of the step in which a moment lies. Its views stand at this moment.

    Nothing moves them but the reader: no step, no reset, no goto.
    """

    def __init__(self, timeline: Timeline, moment: int, where: str, view_source: ViewSource) -> None:
        self.timeline = timeline
        self._made = RecordingViewSource(
            title=f"{view_source.title} · {where}",
            lab=f"{view_source.lab}, picture {next(_numbers)}",
            timeline=timeline,
            token_text=view_source.token_text,
            code=view_source.seams(),
            refusal=_REFUSAL,
            moment=moment,
            note=_NOTE,
        )
        self.view_source: Callable[[], ViewSource] = lambda: self._made
        self.feed.stand(moment)


def frozen(timeline: Timeline, view_source: ViewSource, at: At, crash_moment: Callable[[], int]) -> Frozen:
    """The recording of a lab at a moment. ConfigError for a moment that is not recorded."""
    if at == "crash":
        moment = crash_moment()
        return Frozen(
            timeline.until(moment), moment, f"at the crash of step {timeline.state(moment).step}", view_source
        )
    step, event = _step_and_event(at)
    moment = moment_of(timeline, step, event)
    end = moment if event is None else timeline.step_moments(step)[1]
    where = f"at step {step}" if event is None else f"at event {event} of step {step}"
    return Frozen(timeline.until(end), moment, where, view_source)


def _step_and_event(at: Any) -> tuple[int, int | None]:
    if is_single_int(at):
        return at, None
    if isinstance(at, (tuple, list)) and len(at) == 2 and all(map(is_single_int, at)):
        return at[0], at[1]
    raise ConfigError(f'at is the number of a step, (step, event) for an event inside it, or "crash", got {at!r}')
