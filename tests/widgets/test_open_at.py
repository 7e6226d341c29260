"""A dashboard that is opened at an event: the steps since then as frames, and how many of them to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from labengine import Lab
from labengine import events as ev
from labengine_widgets.publisher import Publisher
from widgets.seen import Seen


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
def sent(lab: Lab) -> Iterator[list[dict[str, Any]]]:
    messages: list[dict[str, Any]] = []
    publisher = Publisher(lab.bench(), messages.append)
    publisher.tick()
    publisher.open_at(_first_overwrite(lab))
    publisher.tick()
    yield messages
    publisher.close()


def _first_overwrite(lab: Lab) -> int:
    assert lab.timeline is not None
    events = enumerate(lab.timeline.events())
    return next(i for i, event in events if isinstance(event, ev.BlockCached) and event.request_id == 1)


def _shown(replay: dict[str, Any], num_frames: int) -> Seen:
    seen = Seen().apply(replay["frame"])
    for frame in replay["frames"][:num_frames]:
        seen = seen.apply(frame)
    return seen


def test_the_view_stands_right_after_the_event(lab: Lab, sent: list[dict[str, Any]]) -> None:
    full = sent[-1] if sent[-1]["type"] == "full" else next(m for m in reversed(sent) if m["type"] == "full")
    replay = full["replay"]
    at = replay["at"]
    assert 0 < at < len(replay["frames"])
    assert [replay["frames"][i]["score"][3] for i in (at - 2, at - 1)] == [0, 1]  # lost blocks, before and after it
    assert replay["frames"][at - 1]["step"] == 1
    assert replay["frames"][-1]["step"] == 3


def test_its_frames_lead_to_the_state_now(lab: Lab, sent: list[dict[str, Any]]) -> None:
    full = next(m for m in reversed(sent) if m["type"] == "full")
    replay = full["replay"]
    assert _shown(replay, len(replay["frames"])).blocks == Seen().apply(full["frame"]).blocks


def test_the_lab_moves_on_and_the_view_with_it(lab: Lab) -> None:
    messages: list[dict[str, Any]] = []
    publisher = Publisher(lab.bench(), messages.append)
    publisher.open_at(_first_overwrite(lab))
    publisher.tick()
    lab.step()
    publisher.tick()
    assert messages[-1]["type"] in ("play", "status")
    publisher.resync("v")
    publisher.tick()
    full = next(m for m in reversed(messages) if m["type"] == "full")
    assert "at" not in full["replay"] and full["replay"]["frames"][0]["step"] == 4
    publisher.close()


@pytest.mark.parametrize("moment", [-1, 10_000])
def test_a_moment_that_is_not_recorded_shows_the_state_now(lab: Lab, moment: int) -> None:
    publisher = Publisher(lab.bench(), lambda message: None)
    publisher.open_at(moment)
    publisher.tick()
    assert "at" not in publisher.full()["replay"]
    publisher.close()


def test_a_moment_before_the_first_step_begins_at_itself(lab: Lab) -> None:
    publisher = Publisher(lab.bench(), lambda message: None)
    publisher.open_at(1)
    publisher.tick()
    replay = publisher.full()["replay"]
    assert replay["at"] == 1 and "B" in replay["frames"][0]["sentence"] + replay["frame"]["sentence"]
    publisher.close()
