"""Looking at a recording from Python: where the views stand, what is chosen, single views; the same for a saved one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.desk.background import LabClosedError
from labengine.desk.saved.opened import Trace
from labengine.lab import Lab
from labengine_widgets.selection import Selection


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two equal requests after three steps."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        for _ in range(2):
            lab.add(token_ids=range(13), max_tokens=6)
        lab.step(3)
        yield lab


@pytest.fixture(params=["lab", "trace"])
def recorded(lab: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab | Trace]:
    """The lab, or what it has saved."""
    if request.param == "lab":
        yield lab
        return
    lab.save(tmp_path / "run.lab")
    with labengine.open(tmp_path / "run.lab") as trace:
        yield trace


def test_going_to_moments_moves_the_views_and_tells(recorded: Lab | Trace) -> None:
    timeline = recorded.timeline
    assert timeline is not None and recorded.moment is None
    look = recorded.goto(1)
    assert look.moment == recorded.moment == recorded.feed.moment == timeline.step_moments(1)[1]
    assert repr(look).startswith("step 1 of 3: 26 tokens computed") and "5 of 12 blocks used" in repr(look)
    assert recorded.back().text.startswith("before step 1 of 3") and recorded.moment == timeline.step_moments(1)[0]
    assert recorded.forward(2).step == 2
    assert recorded.forward().step == 3 and recorded.moment is None
    inside = recorded.goto(2, event=0)
    assert inside.moment == timeline.step_moments(2)[0] + 1 and "after 1 of its" in inside.text
    assert recorded.forward().moment == timeline.step_moments(2)[1], "to the end of the step one stands in"


def test_the_moment_can_be_set(recorded: Lab | Trace) -> None:
    recorded.moment = 5
    assert recorded.moment == recorded.feed.moment == 5
    recorded.moment = None
    assert recorded.moment is None
    for wrong in (-1, 10_000, "3", 2.0, True):
        with pytest.raises(ConfigError, match="a moment is a number of events, here 0 to"):
            recorded.moment = wrong  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        ("goto", (4,), "step 4 is not in the recording, which goes from 0 to 3"),
        ("goto", (-1,), "step -1 is not in the recording"),
        ("goto", ("1",), "step 1 is not in the recording"),
        ("goto", (1, 999), "step 1 has events 0 to"),
        ("goto", (0, 1), "what happened in step 0 is not in the recording"),
        ("back", (4,), "step -1 is not in the recording"),
        ("back", (0,), "must be an integer from 1"),
        ("back", ("1",), "must be an integer from 1"),
        ("forward", (-1,), "must be an integer from 1"),
        ("view", (), 'which view? lab.view("pool")'),
        ("view", ("pol",), "there is no view 'pol'; did you mean 'pool'?"),
        ("view", (3,), "there is no view 3; there are pool"),
        ("view", ("pool", "charts"), "'charts' is a figure of its own"),
    ],
)
def test_what_there_is_not_is_refused(recorded: Lab | Trace, call: str, arguments: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        getattr(recorded, call)(*arguments)
    assert recorded.moment is None


def test_what_is_chosen(recorded: Lab | Trace) -> None:
    assert recorded.selection is None
    recorded.selection = Selection("block", 3)
    assert recorded.selection == recorded.feed.selection == Selection("block", 3)
    recorded.selection = ("hash", "0:ab12")
    assert recorded.selection == Selection("hash", "0:ab12")
    recorded.selection = None
    assert recorded.selection is None
    with pytest.raises(ValueError, match="one can select a block, a request, a hash or an event"):
        recorded.selection = ("blok", 3)
    with pytest.raises(TypeError, match="a selection is a Selection"):
        recorded.selection = 3  # type: ignore[assignment]


def test_one_dashboard_one_feed_and_views_by_name(recorded: Lab | Trace) -> None:
    dashboard, pool = recorded.show(), recorded.view("pool")
    assert recorded.show() is dashboard and recorded.view("pool") is pool is not recorded.view("pool", "map")
    assert dashboard.feeds == pool.feeds == [recorded.feed]  # type: ignore[attr-defined]
    data, _ = recorded.view("tables")._repr_mimebundle_()  # type: ignore[attr-defined]
    assert "5 of 12 blocks used" in data["text/plain"]
    recorded.close()
    assert dashboard.comm is None and not recorded.feed.is_alive


def test_unknown_settings_of_a_view_are_refused_by_name(lab: Lab) -> None:
    with pytest.raises(TypeError, match=r"view\('pool'\) has no keyword 'size'; it knows none"):
        lab.view("pool", size=3)


def test_why_asks_where_one_stands(recorded: Lab | Trace) -> None:
    assert "ref count 2" in recorded.why(block=0).question
    recorded.goto(0)
    assert "free" in recorded.why(block=0).question


def test_a_step_brings_one_back_to_the_newest_moment(lab: Lab) -> None:
    lab.goto(1)
    lab.step()
    assert lab.moment is None and lab.back().step == 3


def test_a_rewind_too(lab: Lab) -> None:
    lab.goto(1)
    lab.rewind(2)
    assert lab.moment is None and lab.back().step == 1


def test_a_reader_who_moves_is_followed(lab: Lab) -> None:
    lab.goto(1)
    lab.feed._moment = 7
    lab.feed.on_stand(7)  # what the feed does when a browser says where its reader stands
    assert lab.moment == 7


def test_without_a_recording_there_is_nowhere_to_go() -> None:
    with Lab("simulated", record=False) as lab:
        lab.generate([[1, 2]], max_tokens=2)
        for act in (lambda: lab.goto(1), lab.back, lab.forward, lambda: lab.moment, lambda: lab.why(block=0)):
            with pytest.raises(ConfigError, match="record=False"):
                act()


def test_a_closed_lab_shows_nothing_new(lab: Lab) -> None:
    lab.close()
    with pytest.raises(LabClosedError):
        lab.show()
    assert lab.goto(1).step == 1, "looking still works"
    assert "text/plain" in lab._repr_mimebundle_()


def test_views_may_not_ask_for_everything(lab: Lab) -> None:
    with pytest.raises(ConfigError, match="a view may not ask for 'close'; it may for step, phase, start"):
        lab.bench().post("close")
    assert lab.bench().post("goto", step=1).result(20).step == 1 and lab.bench().lab == lab.lab_id
    assert lab.bench().is_live and "BlockMerged" in lab.bench().seams()
