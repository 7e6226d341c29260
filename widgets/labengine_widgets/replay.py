"""The last step once more, from the recording: for who comes after it, and for who only saw it run by."""

from __future__ import annotations

from typing import Any

from labengine import events as ev
from labengine.timeline import Timeline
from labengine_widgets.frames import FrameMaker
from labengine_widgets.runs import runs
from labengine_widgets.scene import Scene
from labengine_widgets.sentences import resting_sentence


def last_step(timeline: Timeline | None, scene: Scene) -> dict[str, Any] | None:
    """{frame: all there was before the last step, frames: what happened since}; None when that is not recorded.

    scene: the state now; contents keep the letters that they have in it.
    """
    if timeline is None or not scene.fold.step:
        return None
    try:
        start, _ = timeline.step_moments(scene.fold.step)
        events, before = timeline.events(start), timeline.state(start)
    except (KeyError, IndexError):  # too old, or emptied just now
        return None
    if any(isinstance(event, (ev.StepRolledBack, ev.EngineStarted)) for event in events):
        return None
    maker = FrameMaker(Scene(before, scene.token_text, scene.contents))
    maker.sentence = resting_sentence(maker.scene)
    return {"frame": maker.full(), "frames": [maker.play(run) for run in runs(events)]}
