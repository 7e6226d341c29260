from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from labengine import Lab
from labengine import events as ev
from labengine_widgets import Bench, Dashboard
from labengine_widgets.browser import css, esm
from labengine_widgets.dashboard import MAX_SNAPSHOT, bounded_json
from labengine_widgets.publisher import Publisher
from widgets.fake_bench import FakeBench
from widgets.seen import Seen
from widgets.story_219 import begin, merging_step


def until(holds: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, f"waited 10 s for {what}"
        time.sleep(0.005)


class Wire:
    """Collects what a dashboard sends."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def __call__(self, message: dict[str, Any]) -> None:
        self.messages.append(json.loads(json.dumps(message)))

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    @property
    def states(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] in ("play", "diff", "full")]


@pytest.fixture
def bench() -> FakeBench:
    return FakeBench(begin())


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def publisher(bench: FakeBench, wire: Wire) -> Iterator[Publisher]:
    publisher = Publisher(bench, wire)
    yield publisher
    publisher.close()


def seen_by(full: dict[str, Any], messages: list[dict[str, Any]]) -> Seen:
    seen = Seen().apply(full["frame"])
    for message in messages:
        for frame in message.get("frames") or [message["frame"]]:
            seen = Seen().apply(frame) if message["type"] == "full" else seen.apply(frame)
    return seen


def test_both_benches_are_benches(bench: FakeBench) -> None:
    assert isinstance(bench, Bench)
    with Lab("simulated") as lab:
        assert isinstance(lab.bench(), Bench)


# -- publishing ------------------------------------------------------------------------------------------------------


def test_a_step_by_hand_is_one_message_of_frames(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    before = publisher.full()
    bench.say(merging_step())
    publisher.tick()
    (play,) = wire.states
    assert (play["type"], play["is_new"], play["seq"], len(play["frames"])) == ("play", True, 1, 19)
    assert seen_by(before, wire.states) == Seen().apply(publisher.full()["frame"])


def test_half_a_step_is_held_back_a_moment_and_then_shown(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    step = merging_step()
    bench.say(step[:9])
    publisher.tick()
    assert wire.states == []
    time.sleep(0.12)
    publisher.tick()
    bench.say(step[9:])
    publisher.tick()
    first, second = wire.states
    assert first["is_new"] and not second["is_new"]
    assert first["frames"][-1]["phase"] == "schedule" and second["frames"][-1]["score"] == [5, 8, 3, 0]


def test_a_running_lab_is_followed_with_one_merged_frame(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    bench.is_running = True
    bench.say(merging_step())
    publisher.tick()
    (diff,) = wire.states
    assert diff["type"] == "diff" and diff["status"]["running"]
    assert diff["frame"]["score"] == [5, 8, 3, 0]
    assert diff["frame"]["sentence"] == "Step 1: 2 requests running, 5 blocks used."


def test_of_several_steps_by_hand_the_last_is_played(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    decode = [ev.StepStarted(2), ev.RequestScheduled(0, 14, 1, False, "running"), ev.StepEnded(2)]
    bench.say([*merging_step(), *decode])
    publisher.tick()
    diff, play = wire.states
    assert (diff["type"], play["type"], len(play["frames"])) == ("diff", "play", 3)


def test_who_comes_after_the_step_can_replay_it(bench: FakeBench, wire: Wire) -> None:
    bench.say(merging_step())
    late = Publisher(bench, wire)
    full = late.full()
    late.close()
    replay = full["replay"]
    assert replay["frame"]["sentence"].startswith("A and B are in line")
    assert replay["frame"]["score"] == [0, 0, 0, 0] and full["frame"]["score"] == [5, 8, 3, 0]
    assert len(replay["frames"]) == 19
    assert seen_by(replay, [{"type": "play", "frames": replay["frames"]}]) == Seen().apply(full["frame"])


def test_there_is_no_replay_without_a_step_a_recording_or_rest(bench: FakeBench, wire: Wire) -> None:
    publisher = Publisher(bench, wire)
    assert publisher.full()["replay"] is None, "no step yet"
    bench.say(merging_step())
    assert publisher.full()["replay"] is None, "there is more to hear"
    publisher.tick()
    assert publisher.full()["replay"]
    bench.is_running = True
    assert publisher.full()["replay"] is None
    bench.is_running, bench.timeline = False, None
    assert publisher.full()["replay"] is None
    publisher.close()


def test_after_a_run_the_last_step_can_be_replayed(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    bench.is_running = True
    bench.say([*merging_step(), ev.StepStarted(2), ev.RequestScheduled(0, 14, 1, False, "running"), ev.StepEnded(2)])
    publisher.tick()
    assert [message["type"] for message in wire.states] == ["diff"]
    bench.is_running = False
    publisher.tick()
    publisher.tick()
    _, full = wire.states
    assert (full["type"], full["view"], full["seq"]) == ("full", None, 2)
    assert len(full["replay"]["frames"]) == 3 and full["replay"]["frame"]["score"] == [5, 5, 3, 0]
    assert full["frame"]["sentence"] == "After step 2: 5 blocks used."


def test_messages_are_numbered_without_a_gap(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    for step in range(1, 6):
        bench.is_running = step % 2 == 0
        bench.say([ev.StepStarted(step), ev.StepEnded(step)])
        publisher.tick()
    assert [message["seq"] for message in wire.states] == [1, 2, 3, 4, 5]


def test_who_asks_is_sent_the_full_state_and_nobody_else(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    bench.say(merging_step())
    publisher.resync("view 7")
    publisher.tick()
    play, full = wire.states
    assert (full["type"], full["view"], full["seq"]) == ("full", "view 7", play["seq"])
    assert full["frame"]["score"] == [5, 8, 3, 0]


def test_a_rolled_back_step_starts_the_picture_over(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    step = merging_step()
    bench.say([*step[:12], ev.StepRolledBack(1, "KeyboardInterrupt")])
    publisher.tick()
    (full,) = wire.states
    assert (full["type"], full["view"], full["seq"]) == ("full", None, 1)
    assert full["frame"]["score"] == [0, 0, 0, 0]
    assert "KeyboardInterrupt" in full["frame"]["sentence"]
    bench.say(merging_step())
    publisher.tick()
    assert wire.states[-1]["frames"][-1]["score"] == [5, 8, 3, 0]


def test_a_restarted_engine_starts_letters_and_all_over(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    bench.say(merging_step())
    publisher.tick()
    bench.say(begin())
    publisher.tick()
    assert wire.states[-1]["type"] == "full" and wire.states[-1]["frame"]["score"] == [0, 0, 0, 0]
    bench.say(merging_step())
    publisher.tick()
    frames = wire.states[-1]["frames"]
    assert {entry[1] for frame in frames for entry in frame.get("map", [])} == {0, 1, 2}


def test_the_number_of_messages_is_bounded_while_running() -> None:
    wire = Wire()
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        publisher = Publisher(lab.bench(), wire)
        before = publisher.full()
        publisher.start()
        started = time.monotonic()
        lab.add(token_ids=[1, 2, 3], max_tokens=200)
        lab.run(until=lambda _: time.sleep(0.004))
        until(lambda: publisher.maker.scene.fold.step == 200, "the last step")
        seconds = time.monotonic() - started
        time.sleep(0.1)
        publisher.close()
        assert 2 <= len(wire.states) <= seconds * 30 + 2
        assert seen_by(before, wire.states) == Seen().apply(publisher.full()["frame"])
        assert publisher.maker.scene.fold.snapshot() == lab.snapshot()
        assert not publisher.failures


def test_a_dashboard_opened_beside_a_running_lab_catches_up() -> None:
    with Lab("simulated", num_blocks=256, block_size=4) as lab:
        for _ in range(8):
            lab.add(token_ids=[1, 2, 3], max_tokens=100)
        lab.start()
        publishers = [Publisher(lab.bench(), Wire()) for _ in range(5)]
        for publisher in publishers:
            publisher.start()
        until(lambda: not lab.is_running, "the end of the run")
        snapshot = lab.snapshot()
        for publisher in publishers:
            until(lambda publisher=publisher: publisher.maker.scene.fold.snapshot() == snapshot, "the view")
            publisher.close()


def test_an_error_of_the_view_costs_a_resync_and_not_the_view(bench: FakeBench, wire: Wire) -> None:
    publisher = Publisher(bench, wire)
    publisher.start()
    try:
        bench.say([ev.BlockFreed(0, 99, 0, 0, 0, "tail", "finished")])  # of a request that nobody knows
        until(lambda: publisher.failures, "the failure")
        bench.timeline._restart()  # forget the impossible event
        bench.say([*begin(), *merging_step()])
        until(lambda: wire.states and publisher.maker.scene.num_used == 5, "the picture")
        assert isinstance(publisher.failures[0], KeyError)
        assert not bench.hooks.failures
    finally:
        publisher.close()


def test_a_dropped_listener_is_told(bench: FakeBench, publisher: Publisher, wire: Wire) -> None:
    bench.hooks.subscribe(lambda event: 1 / 0, ev.StepEnded)
    bench.say(merging_step())
    publisher.tick()
    assert wire.states[-1]["status"]["listener_failures"] == ["ZeroDivisionError: division by zero"]


# -- the widget ------------------------------------------------------------------------------------------------------


@pytest.fixture
def dashboard(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    wire = Wire()
    monkeypatch.setattr(Dashboard, "send", lambda self, message: wire(message))
    dashboard = Dashboard(bench)
    dashboard.wire = wire
    yield dashboard
    dashboard.close()


def wish(dashboard: Dashboard, **content: Any) -> dict[str, Any]:
    """Send a wish as the browser does, and wait for its answer."""
    number = len(dashboard.wire.of_type("answer"))
    dashboard._receive(dashboard, {"type": "wish", "view": "v", **content}, [])
    until(lambda: len(dashboard.wire.of_type("answer")) > number, "an answer")
    return dashboard.wire.of_type("answer")[-1]


def test_wishes_are_posted_and_answered(dashboard: Dashboard, bench: FakeBench) -> None:
    for action in ("step", "phase", "start", "pause", "reset"):
        assert wish(dashboard, action=action) == {"type": "answer", "action": action, "view": "v", "error": None}
    wish(dashboard, action="add", prompt="Once upon a time", copies=2, max_tokens=8, evil=1)
    wish(dashboard, action="abort", request_id=1)
    assert [name for name, _ in bench.posted] == ["step", "phase", "start", "pause", "reset", "add", "abort"]
    assert bench.posted[-2:] == [
        ("add", {"prompt": "Once upon a time", "copies": 2, "max_tokens": 8}),
        ("abort", {"request_id": 1}),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"action": "add", "prompt": " ", "copies": 1, "max_tokens": 8}, "The prompt is empty"),
        ({"action": "add", "prompt": "x" * 200_001, "copies": 1, "max_tokens": 8}, "200001 characters"),
        ({"action": "add", "prompt": "x", "copies": 0, "max_tokens": 8}, "copies must be a whole number from 1 to 64"),
        ({"action": "add", "prompt": "x", "copies": None, "max_tokens": 8}, "copies must be a whole number"),
        ({"action": "add", "prompt": "x", "copies": 1, "max_tokens": -3}, "max tokens must be a whole number"),
        ({"action": "add", "prompt": "x", "copies": 1, "max_tokens": 2.5}, "max tokens must be a whole number"),
        ({"action": "add", "prompt": 7, "copies": 1, "max_tokens": 8}, "The prompt is empty"),
        ({"action": "close"}, "the dashboard knows no action 'close'"),
        ({"action": ["step"]}, "the dashboard knows no action"),
    ],
)
def test_bad_wishes_are_refused_with_words(
    dashboard: Dashboard, bench: FakeBench, content: dict[str, Any], words: str
) -> None:
    assert words in wish(dashboard, **content)["error"]
    assert bench.posted == []


def test_the_error_of_a_wish_is_shown(dashboard: Dashboard, bench: FakeBench) -> None:
    bench.error = RuntimeError("<b>no room</b>")
    assert wish(dashboard, action="step")["error"] == "<b>no room</b>"
    bench.error = KeyboardInterrupt()  # type: ignore[assignment]
    assert wish(dashboard, action="step")["error"] == "KeyboardInterrupt"


def test_nonsense_from_the_browser_is_ignored(dashboard: Dashboard, bench: FakeBench) -> None:
    for content in (None, [], "step", {}, {"type": "wishes"}):
        dashboard._receive(dashboard, content, [])
    assert wish(dashboard, action="step")["error"] is None
    assert len(bench.posted) == 1


def test_the_snapshot_serves_a_late_view(dashboard: Dashboard, bench: FakeBench) -> None:
    assert json.loads(dashboard.snapshot)["frame"]["score"] == [0, 0, 0, 0]
    bench.say(merging_step())
    until(lambda: json.loads(dashboard.snapshot)["frame"]["score"] == [5, 8, 3, 0], "the snapshot")
    saved = json.loads(dashboard.snapshot)
    assert saved["seq"] == dashboard.wire.states[-1]["seq"]
    assert Seen().apply(saved["frame"]).rows["1:0"]["table"] == [0, 1, 2, 7]


def test_the_snapshot_waits_until_the_lab_rests(dashboard: Dashboard, bench: FakeBench) -> None:
    bench.is_running = True
    bench.say(merging_step())
    until(lambda: dashboard.wire.of_type("diff"), "the diff")
    assert json.loads(dashboard.snapshot)["frame"]["score"] == [0, 0, 0, 0]
    bench.is_running = False
    until(lambda: json.loads(dashboard.snapshot)["frame"]["score"] == [5, 8, 3, 0], "the snapshot")


def test_a_late_view_asks_and_is_answered(dashboard: Dashboard) -> None:
    dashboard._receive(dashboard, {"type": "resync", "view": "late"}, [])
    until(lambda: dashboard.wire.of_type("full"), "the full state")
    assert dashboard.wire.of_type("full")[0]["view"] == "late"


@pytest.mark.parametrize(("num_blocks", "length"), [(256, 300), (4096, 30_000), (65536, 100_000)])
def test_saved_state_is_small_whatever_the_pool(num_blocks: int, length: int) -> None:
    with Lab("simulated", num_blocks=num_blocks, block_size=4, max_num_batched_tokens=200_000) as lab:
        lab.add(token_ids=[i % 5000 for i in range(min(length, num_blocks * 3))])
        lab.step()
        publisher = Publisher(lab.bench(), Wire())
        full = publisher.full()
        publisher.close()
    text = bounded_json(full, MAX_SNAPSHOT)
    frame = json.loads(text)["frame"]
    assert len(text) <= MAX_SNAPSHOT
    assert len(frame["blocks"]) + frame.get("omitted", 0) == lab.snapshot().num_used_blocks


def test_close_leaves_nothing_behind(bench: FakeBench) -> None:
    listeners, threads = {kind: len(s) for kind, s in bench.hooks.items()}, set(threading.enumerate())
    dashboard = Dashboard(bench)
    assert len(set(threading.enumerate()) - threads) == 1
    dashboard.close()
    dashboard.close()
    assert {kind: len(s) for kind, s in bench.hooks.items()} == listeners
    assert set(threading.enumerate()) <= threads
    assert dashboard.comm is None


def test_two_dashboards_watch_one_lab(bench: FakeBench) -> None:
    first, second = Dashboard(bench), Dashboard(bench)
    bench.say(merging_step())
    first.close()
    until(lambda: json.loads(second.snapshot)["frame"]["score"] == [5, 8, 3, 0], "the second one")
    second.close()


def test_the_mimebundle_has_pictures_for_everybody(dashboard: Dashboard, bench: FakeBench) -> None:
    bench.words = dict.fromkeys(range(200), "<script>alert(1)</script>")
    bench.title = "<script>alert(2)</script>"
    bench.say(merging_step())
    data, _ = dashboard._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "5 of 12 blocks used" in data["text/plain"]
    assert data["image/svg+xml"].startswith("<svg") and "<script" not in data["image/svg+xml"]


# -- the browser half, as far as text tells --------------------------------------------------------------------------


def test_the_module_is_one_piece_that_builds_no_markup_and_loads_nothing() -> None:
    script = esm().replace("http://www.w3.org/2000/svg", "SVG's namespace")
    assert script.count("export default { render }") == 1
    assert "\nimport " not in script and "\nexport const" not in script and "\nexport function" not in script
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"):
        assert word not in script, word
    assert "url(" not in css() and "@import" not in css()


def test_importing_the_widgets_is_light() -> None:
    code = (
        "import sys, labengine_widgets; "
        "heavy = {'torch', 'transformers', 'anywidget', 'ipywidgets', 'numpy', 'plotly'} & set(sys.modules); "
        "assert not heavy, heavy; "
        "labengine_widgets.Dashboard; "
        "heavy = {'torch', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    import labengine_widgets

    with pytest.raises(AttributeError, match=r"no attribute 'Dashbord'; it has .*Dashboard"):
        _ = labengine_widgets.Dashbord
