"""Views with at=: pictures of one moment, which stay the same whatever the lab does later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from interrupting import assert_no_thread_is_left, note_threads_of_others
from labengine.config import ConfigError
from labengine.events import BlockMerged, StepEnded
from labengine.lab import Lab
from labengine_widgets.view import View
from widgets.feed.wire import Wire, begun


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two equal requests after three steps, the first of which has merged three blocks."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        for _ in range(2):
            lab.add(token_ids=range(13), max_tokens=6)
        lab.step(3)
        yield lab


def words(view: Any) -> str:
    return str(view._repr_mimebundle_()[0]["text/plain"])


def seen(view: View) -> tuple[Any, int]:
    """The state that a browser's view shows, and the end of what it was sent."""
    wire, [feed] = Wire(), view.feeds
    feed.attach(wire)
    feed.receive(wire, 0, {"type": "resync", "view": "v"})
    payload = wire.messages[-1]["payload"]
    feed.detach(wire)
    recording = begun(payload)
    return recording.state(payload["shown"]).snapshot(), recording.end


def test_a_picture_shows_its_moment_in_every_form(lab: Lab) -> None:
    assert lab.timeline is not None
    for at in (0, 1, 2, (1, 12), (2, 0)):
        step, event = at if isinstance(at, tuple) else (at, None)
        moment, here = lab.goto(step, event).moment, lab.timeline
        lab.moment = None
        for view in (lab.show(at=at), lab.view("pool", "tables", at=at)):
            assert isinstance(view, View)
            state, end = seen(view)
            assert state == here.state(moment).snapshot()
            assert end == (moment if event is None else here.step_moments(step)[1])
            assert f"{state.num_used_blocks} of 12 blocks used" in words(view)
    assert "at event 12 of step 1" in lab.show(at=(1, 12)).view_source.title


def test_nothing_that_the_lab_does_moves_it(lab: Lab) -> None:
    view = lab.view("pool", at=1)
    assert isinstance(view, View)
    before = words(view), seen(view)
    note_threads_of_others()
    lab.goto(3)
    lab.run()
    lab.rewind(2)
    lab.reset()
    lab.add(token_ids=range(5), max_tokens=2)
    lab.step()
    lab.close()
    assert (words(view), seen(view)) == before
    assert_no_thread_is_left()


def test_the_lab_does_not_follow_the_picture(lab: Lab) -> None:
    picture = lab.show(at=1)
    picture.feeds[0].receive(picture, 0, {"type": "at", "moment": 3})
    assert lab.moment is None and lab.show() is not picture
    assert not picture.view_source.is_live and "does not follow" in picture.view_source.note
    with pytest.raises(ConfigError, match="step: this picture"):
        picture.view_source.post("step").result(0)


def test_questions_to_a_picture_are_answered_at_its_moment(lab: Lab) -> None:
    picture, wire = lab.show(at=1), Wire()
    feed = picture.feeds[0]
    feed.attach(wire)
    feed.receive(wire, 0, {"type": "why", "view": "v", "id": "1", "subject": {"block": 0}, "moment": feed.moment})
    (answer,) = wire.of_type("why")
    assert "ref count 2" in answer["payload"]["answer"]["question"]
    feed.detach(wire)


def test_a_saved_run_has_pictures_too(lab: Lab, tmp_path: Path) -> None:
    lab.save(tmp_path / "run.lab")
    with labengine.open(tmp_path / "run.lab") as trace:
        assert words(trace.view("map", at=1)) == words(lab.view("map", at=1))


def test_equal_pictures_are_one_widget(lab: Lab) -> None:
    assert lab.view("pool", at=1) is lab.view("pool", at=1) is not lab.view("pool", at=2)
    assert lab.view("pool", at=1) is not lab.view("pool")


def test_what_is_no_moment_is_refused(lab: Lab) -> None:
    for wrong, message in (
        ("x", "at must be a step.*, got 'x'"),
        (True, "at must be a step"),
        ((1, 2, 3), "at must be a step"),
        (9, "step 9 is not in the recording, which goes from 0 to 3"),
        ((1, 99), "step 1 has events 0 to"),
    ):
        with pytest.raises(ConfigError, match=message):
            lab.view("pool", at=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a recording has none"):
        lab.view("xray", at=1)


def test_a_part_of_a_recording_is_a_recording(lab: Lab) -> None:
    assert lab.timeline is not None
    _, end = lab.timeline.step_moments(1)
    part = lab.timeline.until(end)
    assert part.end == end and part.state().snapshot() == lab.timeline.state(end).snapshot()
    assert len(part.of_kind(StepEnded)) == 1 and part.of_kind(BlockMerged) == lab.timeline.of_kind(BlockMerged, 0, end)
    assert part.step_seconds.keys() >= {1}
    with pytest.raises(IndexError, match="no moment 9999"):
        lab.timeline.until(9999)


def test_of_a_recording_that_has_dropped_its_beginning(lab: Lab) -> None:
    with Lab("simulated", num_blocks=12, block_size=4, record=60) as long:
        long.add(token_ids=range(5), max_tokens=30)
        long.run()
        view = long.view("pool", at=25)
        assert isinstance(view, View) and long.timeline is not None and long.timeline.num_dropped > 0
        assert seen(view)[0].step == 25
