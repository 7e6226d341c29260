"""A recording read from Python: the views' moment and selection, single views; the same for a saved one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from interrupting import assert_no_thread_is_left, labengine_threads, note_threads_of_others
from labengine.config import ConfigError
from labengine.lab import Lab
from labengine.session.saved.trace import Trace
from labengine.session.stepper import LabClosedError
from labengine_widgets.selection import Selection
from waiting import PATIENCE
from widgets.feed.wire import Wire


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
    """The lab, or its saved recording."""
    if request.param == "lab":
        yield lab
        return
    lab.save(tmp_path / "run.lab")
    with labengine.open(tmp_path / "run.lab") as trace:
        yield trace


def test_going_to_moments_moves_the_views_and_prints_them(recorded: Lab | Trace) -> None:
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


def test_before_the_beginning_there_is_nothing(recorded: Lab | Trace) -> None:
    recorded.goto(0)
    with pytest.raises(ConfigError, match=r"1 back from step 0 .* goes from 0 to 3: this is its beginning"):
        recorded.back()
    recorded.goto(2, event=0)
    with pytest.raises(ConfigError, match=r"3 back from step 2 .*: back\(2\) goes to its beginning"):
        recorded.back(3)
    assert recorded.back(2).step == 0


def test_the_moment_can_be_set(recorded: Lab | Trace) -> None:
    recorded.moment = 5
    assert recorded.moment == recorded.feed.moment == 5
    recorded.moment = None
    assert recorded.moment is None
    for wrong in (-1, 10_000, "3", 2.0, True):
        with pytest.raises(ConfigError, match="moment must be a number of events, here 0 to"):
            recorded.moment = wrong  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        ("goto", (4,), "step 4 is not in the recording, which goes from 0 to 3"),
        ("goto", (-1,), "step -1 is not in the recording"),
        ("goto", ("1",), "step '1' is not in the recording"),
        ("goto", (1, 999), "step 1 has events 0 to"),
        ("goto", (0, 1), "begins with step 1"),
        ("back", (4,), "4 back from step 3 is not in the recording, which goes from 0 to 3: back(3) goes to its b"),
        ("back", (10**9,), "1,000,000,000 back from step 3 is not in the recording"),
        ("back", (0,), "must be a positive integer"),
        ("back", ("1",), "must be a positive integer"),
        ("forward", (-1,), "must be a positive integer"),
        ("view", (), 'lab.view("pool")'),
        ("view", ("pol",), "no view 'pol'; did you mean 'pool'?"),
        ("view", (3,), "no view 3; the views are pool"),
        ("view", ("pool", "xray"), "'xray' is a separate figure"),
        ("view", (["pool", "tables"],), "lab.view('pool', 'tables')"),
    ],
)
def test_what_there_is_not_is_refused(recorded: Lab | Trace, call: str, arguments: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        getattr(recorded, call)(*arguments)
    assert recorded.moment is None


def test_what_is_selected(recorded: Lab | Trace) -> None:
    assert recorded.selection is None
    recorded.selection = Selection("block", 3)
    assert recorded.selection == recorded.feed.selection == Selection("block", 3)
    assert recorded.timeline is not None
    [(group, block_hash), *_] = recorded.timeline.state().prefix_map
    recorded.selection = ("hash", block_hash.hex()[:12])
    assert recorded.selection == Selection("hash", f"{group}:{block_hash.hex()}"), "told in full"
    recorded.selection = None
    assert recorded.selection is None
    with pytest.raises(ValueError, match="a selection must be a block, a request, a hash, a node or an event"):
        recorded.selection = ("blok", 3)
    with pytest.raises(ConfigError, match="selection must be a Selection"):
        recorded.selection = 3  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "id_", "said"),
    [
        ("block", 10**9, "blocks 0 to 11"),
        ("block", -1, "got -1"),
        ("request", 99, "the requests are 0 (A) and 1 (B)"),
        ("request", "C", "no request 2"),
        ("event", -3, "got -3"),
        ("event", 10_000, "events 0 to "),
        ("hash", "zz", "group:hex"),
        ("hash", "", "group:hex"),
        ("hash", "0:ab12", "0:ab12"),
    ],
)
def test_what_is_not_there_is_not_selected(recorded: Lab | Trace, kind: str, id_: Any, said: str) -> None:
    recorded.selection = Selection("block", 3)
    with pytest.raises(ConfigError, match=re.escape(said)):
        recorded.selection = (kind, id_)
    assert recorded.selection == Selection("block", 3)


def test_rows_of_a_frame_can_be_asked_about_and_selected(recorded: Lab | Trace) -> None:
    frame = recorded.events_frame()
    row = frame[frame["kind"] == "BlockCached"].iloc[-1]
    for kind, id_ in {"block": row.block_id, "request": row.request_id, "event": row.event}.items():
        assert type(id_) is not int
        assert recorded.why(**{kind: id_}).to_dict() == recorded.why(**{kind: int(id_)}).to_dict()
        recorded.selection = (kind, id_)
        assert recorded.selection == Selection(kind, int(id_)) and type(recorded.selection.id) is int  # type: ignore[arg-type]
    recorded.moment = row.event
    assert recorded.moment == row.event and type(recorded.moment) is int
    with pytest.raises(ValueError, match=r"got np.float64\(1.5\)"):
        recorded.why(block=type(frame["event"].mean())(1.5))


def test_what_is_selected_can_be_asked_about(recorded: Lab | Trace) -> None:
    assert recorded.why(Selection("block", 0)).to_dict() == recorded.why(block=0).to_dict()
    for wrong in ((3,), (None,), ("block", 3), (Selection("block", 0), 3)):
        with pytest.raises(ValueError, match=r"why\(block=3\)"):
            recorded.why(*wrong)


def test_before_the_engine_starts_there_is_nothing_to_ask_about(recorded: Lab | Trace) -> None:
    recorded.moment = 0
    for asked in ({"block": 0}, {"next_victim": True}):
        with pytest.raises(ValueError, match="moment 0 has no engine"):
            recorded.why(**asked)
    with pytest.raises(ValueError, match="no request has been added yet"):
        recorded.why(request=0)
    recorded.selection = ("request", 0)
    assert recorded.selection == Selection("request", 0), "what comes later can be chosen"


def test_requests_by_their_letters(recorded: Lab | Trace) -> None:
    recorded.selection = ("request", "B")
    assert recorded.selection == Selection("request", 1)
    assert recorded.why(request="B").to_dict() == recorded.why(request=1).to_dict() != recorded.why(request=0).to_dict()
    for wrong in ("three", "0", ""):
        with pytest.raises(ConfigError, match="the id of a request"):
            recorded.selection = ("request", wrong)
        with pytest.raises(ValueError, match="request="):
            recorded.why(request=wrong)


def test_one_dashboard_one_feed_and_views_by_name(recorded: Lab | Trace) -> None:
    dashboard, pool = recorded.show(), recorded.view("pool")
    assert recorded.show() is dashboard and recorded.view("pool") is pool is not recorded.view("pool", "map")
    assert recorded.view("external tier") is recorded.view("tier")
    assert dashboard.feeds == pool.feeds == [recorded.feed]  # type: ignore[attr-defined]
    data, _ = recorded.view("tables")._repr_mimebundle_()  # type: ignore[attr-defined]
    assert "5 of 12 blocks used" in data["text/plain"]
    recorded.close()
    assert (dashboard.comm is None) == isinstance(recorded, Trace) and not recorded.feed.is_sending


def test_unknown_settings_of_a_view_are_refused_by_name(lab: Lab) -> None:
    with pytest.raises(TypeError, match=r"view\('pool'\) has no keyword 'size'; it knows plain"):
        lab.view("pool", size=3)


def test_why_asks_at_the_shown_moment(recorded: Lab | Trace) -> None:
    assert "ref count 2" in recorded.why(block=0).question
    recorded.goto(0)
    assert "free" in recorded.why(block=0).question


def test_a_step_brings_one_back_to_the_newest_moment(lab: Lab) -> None:
    lab.goto(1)
    lab.step()
    assert lab.moment is None and lab.back().step == 3
    assert lab.back().text.endswith("the engine is still after step 4.")
    assert "engine" not in lab.goto(4).text


def test_a_rewind_too(lab: Lab) -> None:
    lab.goto(1)
    lab.rewind(2)
    assert lab.moment is None and lab.back().step == 1


def test_a_reader_who_moves_is_followed(lab: Lab) -> None:
    lab.goto(1)
    lab.feed.shown.moment = 7
    lab.feed.on_moment_shown(7)  # what the feed does when a browser says where its reader stands
    assert lab.moment == 7


def test_without_a_recording_there_is_nowhere_to_go() -> None:
    with Lab("simulated", record=False) as lab:
        lab.generate([[1, 2]], max_tokens=2)
        for act in (lambda: lab.goto(1), lab.back, lab.forward, lambda: lab.moment, lambda: lab.why(block=0)):
            with pytest.raises(ConfigError, match="record=False"):
                act()


def test_a_view_of_an_earlier_version_opens_as_what_it_is_a_part_of_and_says_so(lab: Lab) -> None:
    for old, new in (("bands", "timeline"), ("groups", "tables"), ("code", "why")):
        with pytest.warns(UserWarning, match=f"{old!r} is now part of {new!r}"):
            assert lab.view(old, new) is lab.view(new)


def test_a_closed_lab_is_its_recording(lab: Lab, tmp_path: Path) -> None:
    note_threads_of_others()
    before, listening = lab.show(), sum(map(len, lab.hooks.values()))
    assert labengine_threads()
    lab.close()
    assert_no_thread_is_left()
    assert sum(map(len, lab.hooks.values())) < listening + 2
    assert lab.show() is before and before.comm is not None
    views = [lab.view("pool", "queue"), lab.view("map"), lab.view("charts")]
    data = [view._repr_mimebundle_()[0] for view in [*views, lab]]  # type: ignore[attr-defined]
    assert all("image/svg+xml" in each for each in data)
    assert lab.goto(1).step == 1 and lab.moment is not None and lab.why(block=0).links
    assert lab.export_html(tmp_path / "closed.html").stat().st_size > 10_000
    with pytest.raises(ConfigError, match="no view 'pol'; did you mean 'pool'"):
        lab.view("pol")


def test_what_a_closed_lab_cannot_do_any_more_is_said_in_its_views(lab: Lab) -> None:
    wire = Wire()
    lab.feed.attach(wire)
    lab.close()
    (status,) = [message["status"] for message in wire.of_type("status") if not message["status"]["is_live"]]
    assert "closed" in status["note"]
    lab.feed.receive(wire, 0, {"type": "resync", "view": "v"})
    assert wire.messages[-1]["payload"]["header"]["is_live"] is False, "answered at once, on this thread"
    assert lab.view_source().post("goto", step=1).result(0).step == 1
    with pytest.raises(LabClosedError, match="this lab is closed; make a new one"):
        lab.view_source().post("step").result(0)
    lab.feed.detach(wire)


def test_views_may_not_ask_for_everything(lab: Lab) -> None:
    with pytest.raises(ConfigError, match=r"no command 'close'; .* step, phase, start"):
        lab.view_source().post("close")
    assert lab.view_source().post("goto", step=1).result(PATIENCE).step == 1 and lab.view_source().lab == lab.lab_id
    assert lab.view_source().is_live and "BlockMerged" in lab.view_source().seams()
