"""Steps once more, from the recording: for who comes after them, and for who only saw them run by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine import events as ev
from labengine.timeline import Timeline
from labengine_widgets.frames import FrameMaker
from labengine_widgets.runs import MAX_FRAMES, Run, at_most, runs
from labengine_widgets.scene import Scene
from labengine_widgets.sentences import resting_sentence
from labengine_widgets.tier import kept_contents


def last_step(timeline: Timeline | None, scene: Scene) -> dict[str, Any] | None:
    """{frame: all there was before the last step, frames: what happened since}; None when that is not recorded.

    scene: the state now; contents keep the letters that they have in it.
    """
    if timeline is None or not scene.fold.step:
        return None
    try:
        start, _ = timeline.step_moments(scene.fold.step)
        return _from(timeline, scene, start)
    except (KeyError, IndexError):  # too old, or emptied just now
        return None


def since(timeline: Timeline | None, scene: Scene, moment: int) -> dict[str, Any] | None:
    """The same from the step on that holds event number `moment`; `at` is the number of frames up to that event."""
    if timeline is None or not timeline.num_dropped <= moment < timeline.end:
        return None
    try:
        start = _step_start(timeline, moment)
        replay = _from(timeline, scene, start)
    except IndexError:
        return None
    return replay and replay | {"at": _num_frames_until(_runs(timeline.events(start)), moment - start)}


def _runs(events: Sequence[ev.Event]) -> list[Run]:
    """The frames of the first step in full; the steps after it may have to do with fewer."""
    ends = (i for i, event in enumerate(events, 1) if isinstance(event, ev.StepEnded))
    end = next(ends, len(events))
    first = runs(events[:end])
    return first + at_most(max(1, MAX_FRAMES - len(first)), runs(events[end:]))


def _from(timeline: Timeline, scene: Scene, start: int) -> dict[str, Any] | None:
    events, before = timeline.events(start), timeline.state(start)
    if any(isinstance(event, (ev.StepRolledBack, ev.EngineStarted)) for event in events):
        return None
    maker = FrameMaker(Scene(before, scene.token_text, scene.contents, kept_contents(timeline, start)))
    maker.sentence = resting_sentence(maker.scene)
    return {"frame": maker.full(), "frames": [maker.play(run) for run in _runs(events)]}


def _step_start(timeline: Timeline, moment: int) -> int:
    """The moment before the step that holds an event; the event's own when it lies before all steps."""
    for number in range(moment, timeline.num_dropped - 1, -1):
        if isinstance(timeline.events(number, number + 1)[0], ev.StepStarted):
            return number
    return moment


def _num_frames_until(frames: Sequence[Run], position: int) -> int:
    """Frames that lead up to the event at a position, its own included."""
    for number, run in enumerate(frames, 1):
        position -= len(run.events)
        if position < 0:
            return number
    return len(frames)
