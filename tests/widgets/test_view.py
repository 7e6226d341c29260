"""The widget: commands and their answers, what a saved notebook keeps, static pictures, and its end."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from labengine import Lab
from labengine.scenarios import bug
from labengine_widgets import Dashboard, ViewSource
from labengine_widgets.browser import css, esm
from labengine_widgets.compare.view import CompareView
from labengine_widgets.view import MAX_SAVED, View
from waiting import wait_until
from widgets.fake_view_source import FakeViewSource
from widgets.feed.wire import Wire, heard
from widgets.story_219 import begin, merging_step


@pytest.fixture
def source() -> FakeViewSource:
    return FakeViewSource(begin())


@pytest.fixture
def dashboard(source: FakeViewSource, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    wire = Wire()
    monkeypatch.setattr(View, "send", lambda self, content, buffers=None: wire.send(content, buffers))
    dashboard = Dashboard(source)
    dashboard.wire = wire
    yield dashboard
    dashboard.close()


def saved(dashboard: Dashboard) -> dict[str, Any]:
    return json.loads(gzip.decompress(dashboard.saved[0]))


def saved_step(dashboard: Dashboard) -> int:
    return heard(saved(dashboard), []).state().step


def test_both_are_view_sources(source: FakeViewSource) -> None:
    assert isinstance(source, ViewSource)
    with Lab("simulated") as lab:
        assert isinstance(lab.view_source(), ViewSource)


def post_command(dashboard: View, **content: Any) -> dict[str, Any]:
    """Send a command as the browser does, and wait for its answer; what others have sent may be answered meanwhile."""

    def answers() -> list[dict[str, Any]]:
        return [answer for answer in dashboard.wire.of_type("answer") if answer["view"] == "v"]

    number = len(answers())
    dashboard._receive(dashboard, {"type": "command", "view": "v", "side": 0, **content}, [])
    wait_until(lambda: len(answers()) > number, "an answer")
    return answers()[-1]


ADDED = {"prompt": "Once upon a time", "copies": 2, "max_tokens": 8, "n": 3, "beams": 1, "priority": -5}


def test_commands_are_posted_and_answered(dashboard: Dashboard, source: FakeViewSource) -> None:
    for action in ("step", "phase", "start", "pause", "reset"):
        answer = post_command(dashboard, action=action)
        assert (answer["action"], answer["view"], answer["error"]) == (action, "v", None)
    post_command(dashboard, action="add", **ADDED, evil=1)
    assert [name for name, _ in source.posted] == ["step", "phase", "start", "pause", "reset", "add"]
    assert source.posted[-1] == ("add", ADDED)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"action": "add", **ADDED, "prompt": " "}, "The prompt is empty"),
        ({"action": "add", **ADDED, "prompt": "x" * 200_001}, "200001 characters"),
        ({"action": "add", **ADDED, "copies": 0}, "copies must be an integer from 1 to 64"),
        ({"action": "add", **ADDED, "copies": None}, "copies must be an integer"),
        ({"action": "add", **ADDED, "max_tokens": -3}, "max tokens must be an integer"),
        ({"action": "add", **ADDED, "max_tokens": 2.5}, "max tokens must be an integer"),
        ({"action": "add", **ADDED, "prompt": 7}, "The prompt is empty"),
        ({"action": "add", **ADDED, "n": 17}, "n must be an integer from 1 to 16"),
        ({"action": "add", **ADDED, "beams": 0}, "beams must be an integer from 1 to 16"),
        ({"action": "add", **ADDED, "priority": True}, "priority must be an integer from -1000 to 1000"),
        ({"action": "close"}, "no action 'close'"),
        ({"action": ["step"]}, "no action"),
    ],
)
def test_bad_commands_are_refused_with_words(
    dashboard: Dashboard, source: FakeViewSource, content: dict[str, Any], words: str
) -> None:
    assert words in post_command(dashboard, **content)["error"]
    assert source.posted == []


def test_the_error_of_a_command_is_shown(dashboard: Dashboard, source: FakeViewSource) -> None:
    source.error = RuntimeError("<b>no room</b>")
    assert post_command(dashboard, action="step")["error"] == "<b>no room</b>"
    source.error = KeyboardInterrupt()  # type: ignore[assignment]
    assert post_command(dashboard, action="step")["error"] == "KeyboardInterrupt"


@pytest.fixture
def compare_view(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompareView]:
    wire = Wire()
    monkeypatch.setattr(View, "send", lambda self, content, buffers=None: wire.send(content, buffers))
    with bug("nano-vllm-219").compare() as comparison:
        view = CompareView(comparison)
        view.wire = wire
        yield view
        view.close()


def test_a_cancelled_command_of_a_comparison_is_answered(
    compare_view: CompareView, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: Future[None] = Future()
    cancelled.cancel()
    monkeypatch.setattr(type(compare_view.compared), "post_command", lambda self, action: cancelled)
    assert post_command(compare_view, action="step")["error"] == "CancelledError"


def test_a_saved_comparison_has_no_source_code(compare_view: CompareView) -> None:
    compare_view.update_saved()
    left, right, _ = (json.loads(gzip.decompress(data)) for data in compare_view.saved)
    assert [side["header"]["code"] for side in (left, right)] == [{}, {}]
    assert all(source.seams() for source in compare_view.compared.view_sources)


def test_nonsense_from_the_browser_is_ignored(dashboard: Dashboard, source: FakeViewSource) -> None:
    step = {"type": "command", "action": "step"}
    sides = [{**step, "side": side} for side in (7, -1, 0.5, 1.0, True, "0", [0], {"0": 0})]
    kinds = [{**step, "type": kind} for kind in (None, 5, True, "commands", ["command"], {"command": 1})]
    actions = [{**step, "action": action} for action in (None, 5, ["step"], {"step": 1}, "close", "x" * 10_000)]
    for content in (None, [], "step", {}, *sides, *kinds, *actions):
        dashboard._receive(dashboard, content, [])
    assert post_command(dashboard, action="step")["error"] is None
    assert len(source.posted) == 1


def test_a_saved_notebook_keeps_the_last_step_and_its_words(dashboard: Dashboard, source: FakeViewSource) -> None:
    assert saved_step(dashboard) == 0
    source.say(merging_step())
    wait_until(lambda: heard(saved(dashboard), []).end == source.timeline.end, "the saved state")
    kept = saved(dashboard)
    assert saved_step(dashboard) == 1
    assert heard(kept, []).state().snapshot() == source.fold().snapshot()
    assert len(kept["captions"]) == 19 and kept["header"]["code"] == {}


def test_nothing_is_saved_until_the_lab_rests(dashboard: Dashboard, source: FakeViewSource) -> None:
    source.is_running = True
    statuses = lambda: [message["status"] for message in dashboard.wire.of_type("status")]  # noqa: E731
    wait_until(lambda: any(status["running"] for status in statuses()), "its status: what was before is saved")
    source.say(merging_step())
    wait_until(lambda: dashboard.wire.of_type("more"), "the step")
    assert saved_step(dashboard) == 0
    source.is_running = False
    wait_until(lambda: saved_step(dashboard) == 1, "the saved state")


def test_a_late_view_asks_and_is_answered(dashboard: Dashboard) -> None:
    dashboard._receive(dashboard, {"type": "resync", "view": "late", "side": 0}, [])
    wait_until(lambda: dashboard.wire.of_type("full"), "the full state")
    assert dashboard.wire.of_type("full")[0]["view"] == "late"


@pytest.mark.parametrize(("num_blocks", "length"), [(256, 300), (4096, 12_000), (65536, 100_000)])
def test_saved_state_is_small_whatever_the_pool(num_blocks: int, length: int) -> None:
    with Lab("simulated", num_blocks=num_blocks, block_size=4, max_num_batched_tokens=200_000) as lab:
        lab.add(token_ids=[i % 5000 for i in range(min(length, num_blocks * 3))])
        lab.step()
        size = len(lab.show().saved[0])
    assert size <= MAX_SAVED
    assert num_blocks > 256 or size > 0


def test_close_leaves_nothing_behind(source: FakeViewSource) -> None:
    listeners, threads = {kind: len(s) for kind, s in source.hooks.items()}, set(threading.enumerate())
    dashboard = Dashboard(source)
    assert len(set(threading.enumerate()) - threads) == 1
    dashboard.close()
    dashboard.close()
    assert {kind: len(s) for kind, s in source.hooks.items()} == listeners
    wait_until(lambda: set(threading.enumerate()) <= threads, "the end of the thread")
    assert dashboard.comm is None


def test_two_dashboards_watch_one_lab_through_one_feed(source: FakeViewSource) -> None:
    first, second = Dashboard(source), Dashboard(source)
    assert first.feeds[0] is second.feeds[0]
    first.close()
    source.say(merging_step())
    wait_until(lambda: saved_step(second) == 1, "the second one")
    second.close()
    assert not second.feeds[0].is_sending


def test_the_mimebundle_has_pictures_for_everybody(dashboard: Dashboard, source: FakeViewSource) -> None:
    source.words = dict.fromkeys(range(200), "<script>alert(1)</script>")
    source.title = "<script>alert(2)</script>"
    source.say(merging_step())
    data, _ = dashboard._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "5 of 12 blocks used" in data["text/plain"]
    assert data["image/svg+xml"].startswith("<svg") and "<script" not in data["image/svg+xml"]


# -- the browser half, as far as text tells --------------------------------------------------------------------------


def test_the_module_is_one_piece_that_builds_no_markup_and_loads_nothing() -> None:
    script = esm().replace("http://www.w3.org/2000/svg", "SVG's namespace")
    assert re.findall(r"^(?:import|export).*", script, re.MULTILINE) == [
        "export const { mount, internals } = labengine;",
        "export default { render: labengine.render };",
    ]
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
