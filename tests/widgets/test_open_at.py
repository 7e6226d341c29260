"""A dashboard opened at an event: every view shows the moment after it, until the lab moves on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labengine import Lab
from labengine import events as ev
from labengine_widgets import Dashboard
from waiting import wait_until
from widgets.feed.wire import Wire


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Three steps of two equal requests that overwrite each other's map entries."""
    with Lab("simulated", num_blocks=12, block_size=4, edition="nano-vllm") as made:
        for _ in range(2):
            made.add(token_ids=range(14), max_tokens=8)
        for _ in range(3):
            made.step()
        yield made


@pytest.fixture
def wire(lab: Lab) -> Iterator[Wire]:
    wire = Wire()
    lab.feed.attach(wire)
    yield wire
    lab.feed.detach(wire)


def _first_overwrite(lab: Lab) -> int:
    assert lab.timeline is not None
    events = enumerate(lab.timeline.events())
    return next(i for i, event in events if isinstance(event, ev.BlockCached) and event.request_id == 1)


def test_a_view_that_attaches_afterwards_shows_the_same_moment(lab: Lab, wire: Wire) -> None:
    number = _first_overwrite(lab)
    dashboard = Dashboard(lab.feed)
    dashboard.open_at(number)
    assert lab.feed.moment == number + 1
    wait_until(lambda: wire.of_type("show"), "the views to move")
    assert wire.of_type("show")[-1]["moment"] == number + 1
    lab.feed.receive(wire, 0, {"type": "resync", "view": "v"})
    wait_until(lambda: wire.of_type("full"))
    assert wire.of_type("full")[-1]["payload"]["shown"] == number + 1


def test_the_words_of_its_step_are_there_however_long_the_lab_went_on(lab: Lab, wire: Wire) -> None:
    start, end = lab.timeline.step_moments(1)
    all_captions = lab.feed.captions(start, end)
    shown = next(caption for caption in all_captions if caption[0] > _first_overwrite(lab))
    assert "overwrites the map's entry for p: #0 is still in use, but look-ups no longer find it." in shown[1]


def test_the_lab_moves_on_and_the_view_with_it(lab: Lab, wire: Wire) -> None:
    Dashboard(lab.feed).open_at(_first_overwrite(lab))
    wait_until(lambda: wire.of_type("show"))
    lab.step()
    wait_until(lambda: wire.of_type("more"), "the step")
    assert lab.feed.moment is None


@pytest.mark.parametrize("number", [-1, 10_000])
def test_a_moment_that_is_not_recorded_shows_the_state_now(lab: Lab, number: int) -> None:
    Dashboard(lab.feed).open_at(number)
    assert lab.feed.moment is None
