"""%lab save, open and attach: a session in a file, opened again without an engine; a tap on vLLM, and KV events."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from fake_vllm import run_fake
from kv_batches import Publisher, payload, stored
from labengine.session.saved.trace import Trace
from labengine.vllm.cache_events.kv_files import EventRecorder
from labengine.vllm.cache_events.live import LivePrefixes
from labengine.vllm.cache_events.prefixes import CachedPrefixes
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.ranks import Ranks
from magic_notebook import Notebook
from replaying import ReplayedTap
from streams import TappedEngine, quick_sockets, tapped
from waiting import PATIENCE, wait_until


def test_a_session_is_saved_and_opened(started: Notebook, tmp_path: Path) -> None:
    started.value("%lab step 2")
    path = tmp_path / "run.lab"
    said = started.printed(f"%lab save {path}")
    assert said.startswith(f"{path}, ") and f"%lab open {path}" in said
    ran = started.run(f"%lab open {path}")
    trace = started.shell.user_ns["trace"]
    assert isinstance(trace, Trace) and trace.snapshot() == started.lab.snapshot()
    assert ran.error is None and "2 steps, 2 requests" in ran.printed
    assert started.lab.step(), "the lab is still `lab`"
    trace.close()


def test_a_trace_alone_is_looked_at(started: Notebook, tmp_path: Path) -> None:
    started.value("%lab step 2")
    path = tmp_path / "run.lab"
    started.printed(f"%lab save {path}")
    lab = started.shell.user_ns.pop("lab")
    labengine.unload_ipython_extension(started.shell)
    labengine.load_ipython_extension(started.shell)
    started.printed(f"%lab open {path} --name run")
    said = started.printed("%lab goto 1")
    assert "step 1 of 2" in said and "The engine" not in said
    assert "step 2 of 2" in started.printed("%lab forward")
    assert "ref count" in started.value("%lab why block 0").question
    assert "no lab yet" in started.refused("%lab step")
    started.shell.user_ns["run"].close()
    lab.close()


def test_a_page_is_written_for_html(started: Notebook, tmp_path: Path) -> None:
    started.value("%lab step 2")
    path = tmp_path / "lesson.html"
    assert "in any browser" in started.printed(f"%lab save {path}")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_a_tap_wrote_is_opened(notebook: Notebook, tmp_path: Path) -> None:
    folder = tmp_path / "tap"
    scheduler, _ = tapped(folder)
    run_fake(scheduler)
    scheduler.shutdown()
    ran = notebook.run(f"%lab attach {folder} --name recorded")
    trace = notebook.shell.user_ns["recorded"]
    assert isinstance(trace, Trace) and ran.error is None
    assert "7 steps, 4 requests" in ran.printed and "without an engine to step" in ran.printed
    assert "step 2 of 7" in notebook.printed("%lab goto 2")
    assert "no stream in" in notebook.refused(f"%lab attach {tmp_path}")
    trace.close()


def test_attach_follows_a_running_engine_and_lets_the_former_go(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_sockets(monkeypatch, tmp_path)
    engine = TappedEngine(f"unix:{tmp_path / 'tap'}", 16)
    ran = notebook.run(f"%lab attach unix:{tmp_path / 'tap'}\ntrace")
    assert "Live from a vLLM scheduler" in ran.printed and "0 steps, 0 requests" in ran.printed
    former = ran.value
    assert isinstance(former, LiveStream) and former.is_connected
    notebook.value(f"%lab attach unix:{tmp_path / 'tap'}")
    now = notebook.value("trace")
    assert now is not former and former.wait(PATIENCE) and now.is_connected
    now.close()
    engine.scheduler.shutdown()


def test_attach_shows_all_ranks_side_by_side(notebook: Notebook, tmp_path: Path) -> None:
    place = f"unix:{tmp_path / 'tap'}"
    with ReplayedTap(tmp_path / "tap", 2), ReplayedTap(tmp_path / "tap", 5, rank=1):
        assert "rank=..." in notebook.refused(f"%lab attach {place}")
        ran = notebook.run(f"%lab attach {place} --ranks\ntrace")
        ranks = ran.value
        assert isinstance(ranks, Ranks) and ran.error is None and "· rank 0 ·" in ran.printed
        assert [stream.title.split(" · ")[1] for stream in ranks.streams] == ["rank 0", "rank 1"]
        assert len(ranks.show().children) == 2
        assert "application/vnd.jupyter.widget-view+json" in ranks._repr_mimebundle_()
        assert notebook.run("%lab show").error is None
        assert "--piece and --rank" in notebook.refused(f"%lab attach {place} --ranks --rank 1")
        notebook.value(f"%lab attach {place} --rank 1")
        assert all(stream.wait(PATIENCE) for stream in ranks.streams)
        notebook.value("trace").close()


def test_attach_shows_the_prefixes_of_kv_events_and_lets_the_former_go(notebook: Notebook, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path, [payload(stored([1], range(4)))])
    with publisher.running():
        ran = notebook.run(f"%lab attach kv:{publisher.endpoint} --replay {publisher.replay}")
        live = notebook.shell.user_ns["trace"]
        wait_until(lambda: live.stream.num_batches == 1)
        assert ran.error is None and isinstance(live, LivePrefixes) and "KV events of ipc:" in ran.printed
        path = tmp_path / "run.kvevents"
        with EventRecorder(path, live.stream.sources):
            pass
        notebook.value(f"%lab attach {path}")
        assert live.wait(PATIENCE) and type(notebook.value("trace")) is CachedPrefixes
    assert "--rank" in notebook.refused(f"%lab attach {path} --rank 1")
    assert "--replay" in notebook.refused(f"%lab attach {tmp_path} --replay tcp://a:1")
