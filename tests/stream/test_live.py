"""attach on a running engine: a recording that grows, starts over at gaps, and lets the engine go."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import labengine
from fake_vllm import FakeRequest
from labengine import events as ev
from labengine.__main__ import main
from labengine.vllm.stream import connection, files, listing, live, reader
from labengine.vllm.stream.endpoints import Endpoint
from labengine.vllm.stream.live import LiveStream
from streams import BROKEN_OFF, TappedEngine, break_off, quick_sockets
from waiting import PATIENCE, join, wait_until
from widgets.feed.wire import Wire


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quick_sockets(monkeypatch, tmp_path)
    monkeypatch.setattr("labengine_vllm.tap.SECONDS_BETWEEN_KEYFRAMES", 0.0)
    monkeypatch.setattr(live, "SECONDS_OF_A_RUN", PATIENCE)
    monkeypatch.setattr(listing, "SECONDS_TO_CONNECT", PATIENCE)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[TappedEngine]:
    engine = TappedEngine(f"unix:{tmp_path / 'tap'}", 16)
    engine.step()
    yield engine
    engine.scheduler.shutdown()


def attached(folder: Path, **options: Any) -> LiveStream:
    stream = labengine.attach(f"unix:{folder / 'tap'}", **options)
    assert isinstance(stream, LiveStream)
    return stream


@pytest.fixture
def stream(engine: TappedEngine, tmp_path: Path) -> Iterator[LiveStream]:
    with attached(tmp_path) as stream:
        yield stream


def caught_up(stream: LiveStream, engine: TappedEngine) -> None:
    """Wait until the stream has all of the engine's newest step: later events would move its views on."""

    def has_all() -> bool:
        with stream.held_still():
            return stream.reader._next == engine.tap._num_sent

    wait_until(has_all, "the newest step")
    assert stream.fold().step == engine.tap.recorder.step


def steps(stream: LiveStream, engine: TappedEngine, num_steps: int) -> None:
    for _ in range(num_steps):
        engine.step()
    caught_up(stream, engine)


# -- a recording that grows --------------------------------------------------------------------------------------------


def test_it_begins_with_the_engines_state_and_follows(stream: LiveStream, engine: TappedEngine) -> None:
    assert stream.title == "vllm unknown · rank 0 · unknown model · FakeScheduler · 16 blocks of 4"
    assert stream.fold().step == 1 and "Live from a vLLM scheduler" in stream.note
    assert "It begins before step 2: vLLM had run before" in stream.note
    steps(stream, engine, 12)
    assert len(stream.timeline.of_kind(ev.StepEnded)) == 12
    fold = stream.fold()
    assert fold.step == 13 and not stream.violations
    tokens = {name: request._all_token_ids for name, request in engine.scheduler.requests.items()}
    assert {stream.request_names[i]: r.token_ids for i, r in fold.requests.items() if r.status != "finished"} == tokens
    assert "looks up its prompt" in str(stream.why(request=f"r{engine.num_requests - 1}"))
    assert stream.view_source().seams()["BlockFreed"]["seam"] == "FakePool.free_blocks"


def test_it_scrubs_back_while_it_goes_on(stream: LiveStream, engine: TappedEngine) -> None:
    steps(stream, engine, 5)
    stream.goto(3)
    moment = stream.moment
    state = stream.timeline.state(moment)
    assert state.step == 3 and stream.back().step == 2
    steps(stream, engine, 3)
    assert stream.timeline.state(moment).snapshot() == state.snapshot() and stream.fold().step == 9


def end_of(payload: dict[str, Any]) -> int:
    """The moment up to which a message tells events."""
    return int(payload["start"]) + len(payload["events"])


def test_views_are_sent_each_step_and_refuse_commands(stream: LiveStream, engine: TappedEngine) -> None:
    wire = Wire()
    stream.feed.attach(wire)
    source = stream.view_source()
    assert source.is_live and source.is_running and source.note == stream.note and "Live" in stream.note
    with pytest.raises(labengine.ConfigError, match="step: this is vLLM's own scheduler"):
        source.post("step").result()
    steps(stream, engine, 2)
    wait_until(lambda: wire.states and end_of(wire.states[-1]["payload"]) == stream.timeline.end)
    assert stream.feed.sent == stream.timeline.end
    assert wire.states[-1]["status"]["running"] and not stream.feed.failures
    stream.feed.detach(wire)


def test_an_idle_engine_is_no_run(stream: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream.is_running
    monkeypatch.setattr(live, "SECONDS_OF_A_RUN", 0.0)
    assert not stream.is_running and stream.view_source().is_live


def test_finished_requests_are_forgotten_in_time(
    engine: TappedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_FINISHED", 2)
    with attached(tmp_path, max_events=100) as stream:
        steps(stream, engine, 40)
        finished = [request for request in stream.fold().requests.values() if request.status == "finished"]
        assert len(finished) == 2 and engine.num_requests > 8 and len(stream.request_names) < 10
        stream.save(tmp_path / "run.lab")
    assert labengine.open(tmp_path / "run.lab").fold().step == 41


def test_old_events_are_dropped(engine: TappedEngine, tmp_path: Path) -> None:
    with attached(tmp_path, max_events=100) as stream:
        steps(stream, engine, 30)
        assert stream.timeline.num_dropped > 0 and stream.fold().step == 31 and "were not kept" in stream.summary()


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_a_gap_begins_a_new_piece_and_the_one_before_is_kept(stream: LiveStream, engine: TappedEngine) -> None:
    steps(stream, engine, 2)
    generation = stream.timeline.generation
    break_off(engine.scheduler)
    steps(stream, engine, 2)
    assert list(stream.pieces) == [1, 2] and stream.timeline.generation == generation + 1
    assert "piece 2 of 2" in stream.title and f"after a gap: {BROKEN_OFF}" in stream.note
    former = stream.piece(1)
    assert former.fold().step == 3 and f"It ends at a gap: {BROKEN_OFF}" in former.note
    assert stream.piece(2).fold().step == stream.fold().step


def test_a_contradiction_is_shown_and_not_mended(stream: LiveStream, engine: TappedEngine) -> None:
    steps(stream, engine, 2)
    engine.scheduler.kv_cache_manager.block_pool.get_new_blocks(1)  # behind the tap's back
    stream.check()
    wait_until(lambda: len(stream.pieces) == 2, "the keyframe that was asked for", between=engine.step)
    (violation,) = stream.piece(1).violations
    assert violation.rule == "said" and "the free queue has" in violation.message
    assert "contradicted the earlier events" in stream.note and not stream.violations


def test_a_hit_on_content_from_before_is_no_contradiction(
    engine: TappedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream cannot know what free cached blocks hold; vLLM knows it again once a request has hit them."""
    scheduler = engine.scheduler
    while scheduler.requests:
        scheduler.update_from_output(scheduler.schedule(), None)
    with attached(tmp_path) as stream:
        monkeypatch.setattr("labengine_vllm.tap.SECONDS_BETWEEN_CHECKS", 0.0)
        engine.tap._next_check = 0.0
        steps(stream, engine, 3)
        assert stream.timeline.of_kind(ev.BlockTouched) and list(stream.pieces) == [1]
        assert stream.reader.pieces[0].num_keyframes > 1 and not stream.violations


def test_only_the_newest_pieces_are_kept(engine: TappedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_PIECES", 2)
    with attached(tmp_path) as stream:
        for _ in range(3):
            engine.tap.recorder.lose("injected")
            steps(stream, engine, 2)
        assert list(stream.pieces) == [3, 4] and "piece 4 of 4" in stream.title
        with pytest.raises(labengine.ConfigError, match="number"):
            stream.piece(1)


# -- the end -----------------------------------------------------------------------------------------------------------


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "labengine-attached"]


def test_closing_leaves_no_thread_and_the_engine_alone(stream: LiveStream, engine: TappedEngine) -> None:
    steps(stream, engine, 2)
    assert readers()
    stream.close()
    stream.close()
    assert (
        stream.wait(PATIENCE)
        and not readers()
        and not stream.is_connected
        and "It was disconnected here." in stream.note
    )
    engine.waits_for(False)
    engine.step()
    assert stream.fold().step == 3 and engine.tap.is_attached and not engine.tap._is_observing


def test_it_says_how_it_ended(stream: LiveStream, engine: TappedEngine) -> None:
    engine.scheduler.shutdown()
    assert stream.wait(PATIENCE) and stream.note.endswith("It ends because the engine was shut down.")
    assert not stream.is_connected and not readers()


def test_a_killed_engine_differs_from_one_that_ended(stream: LiveStream, engine: TappedEngine) -> None:
    (viewer,) = engine.outbox._viewers.values()
    viewer.connection.shutdown(2)
    assert stream.wait(PATIENCE) and "vLLM was killed, or a tunnel was closed" in stream.note
    assert stream.fold().step == 1


def test_a_stream_that_is_damaged_ends_with_a_sentence(stream: LiveStream, engine: TappedEngine) -> None:
    engine.tap.recorder.rows.append((1, 77))
    engine.step()
    assert stream.wait(PATIENCE) and "Reading it failed" in stream.note and "inconsistent at message" in stream.note


def test_an_engine_that_says_nothing_is_abandoned(
    engine: TappedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SECONDS_FOR_KEYFRAME", 0.01)
    with engine.tap._entries.gate, pytest.raises(labengine.ConfigError, match="has not sent its state within"):
        attached(tmp_path)
    assert not readers()


@pytest.mark.parametrize(("begun", "most"), [(b"", 1 << 20), (b"{}\n", 1 << 16)])
def test_a_line_without_an_end_is_refused_soon(
    begun: bytes, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_LINE_BYTES", 1 << 16)
    sent = 0

    def send() -> None:
        nonlocal sent
        with suppress(OSError), listener.accept()[0] as tap:
            tap.sendall(begun)
            while sent < 8 << 20:
                sent += tap.send(b"x" * 4096)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "rank0.sock"))
        listener.listen()
        sender = threading.Thread(target=send)
        sender.start()
        viewer = connection.Connection(Endpoint(tmp_path / "rank0.sock", 0))
        with pytest.raises(labengine.ConfigError, match=f"a line of more than {most:,} bytes"):
            list(viewer.lines())
        viewer.close()
        join(sender)
    assert sent < most + (2 << 20), "what the system holds between the two comes on top"


def test_a_file_without_lines_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1_000)
    (tmp_path / "a.labstream").write_bytes(b"labengine".ljust(1_001, b"x"))
    with pytest.raises(labengine.ConfigError, match="a line of more than 1,000 bytes"):
        labengine.attach(tmp_path / "a.labstream")


# -- which engine ------------------------------------------------------------------------------------------------------


def test_several_engines_are_listed(engine: TappedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = TappedEngine(f"unix:{tmp_path / 'tap'}", 16)
    with pytest.raises(labengine.ConfigError, match=r"2 engines answer, unix:.*: attach to one of these places"):
        attached(tmp_path)
    assert main(["attach", f"unix:{tmp_path / 'tap'}"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    for line in (first, second):
        assert line.startswith(f"unix:{tmp_path}") and " rank 0 · vllm unknown · FakeScheduler · " in line
    assert "--rank N" in last
    with labengine.attach(first.split()[0]) as stream:
        assert "rank 0" in stream.title
    with pytest.raises(labengine.ConfigError, match="no rank 3: the ranks are 0"):
        attached(tmp_path, rank=3)
    other.scheduler.shutdown()


def test_a_port_and_its_secret(tmp_path: Path) -> None:
    engine = TappedEngine("tcp:127.0.0.1:0", 16)
    with labengine.attach("tcp:localhost:0") as stream:
        assert stream.fold().step == 0
    port = next((tmp_path / "secrets").iterdir()).stem.removeprefix("tcp-")
    with labengine.attach(f"tcp:127.0.0.1:{port}") as stream:
        assert stream.title.startswith("vllm")
    engine.scheduler.shutdown()


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("unix:{}/nothing", "no folder"),
        ("unix:{}", "no engine is listening in"),
        ("tcp:10.0.0.1:80", "a tap must be on this machine"),
        ("tcp:127.0.0.1:http", "a port must be a number"),
        ("tcp:127.0.0.1:65000", "no secret for port 65000"),
    ],
)
def test_a_place_where_nothing_is_says_so(place: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(labengine.ConfigError, match=why):
        labengine.attach(place.format(tmp_path))


def test_a_socket_of_a_killed_engine_says_so(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "rank0-1-dead.sock"))
    with pytest.raises(labengine.ConfigError, match=r"nothing answers at unix:.*is vLLM still running"):
        labengine.attach(f"unix:{tmp_path}")


def test_pieces_are_of_files_and_ranks_of_engines(engine: TappedEngine, tmp_path: Path) -> None:
    with pytest.raises(labengine.ConfigError, match="piece= is only for files"):
        attached(tmp_path, piece=1)
    with pytest.raises(labengine.ConfigError, match="rank= is only for a running vLLM"):
        labengine.attach(tmp_path, rank=1)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_records_until_it_is_interrupted(
    engine: TappedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(stream: LiveStream, seconds: float) -> bool:
        steps(stream, engine, 3)
        engine.tap.recorder.lose("injected")
        steps(stream, engine, 3)
        signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr(LiveStream, "wait", interrupted)
    out = tmp_path / "run.lab"
    assert main(["attach", f"unix:{tmp_path / 'tap'}", "--record", str(out), "--html", str(tmp_path / "run.html")]) == 0
    printed = capsys.readouterr().out
    assert f"recording into {tmp_path / 'run.labstream'} until Ctrl-C" in printed
    assert "run.piece1.lab: a piece that ended at a gap" in printed
    assert labengine.open(out).fold().step == 7 and labengine.open(tmp_path / "run.piece1.lab").fold().step == 4
    assert (tmp_path / "run.html").exists()
    wait_until(lambda: not readers(), "the end of reading")


def test_the_command_shows_the_moment_without_recording(
    engine: TappedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.scheduler.add_request(FakeRequest("late", [1, 2, 3], 4))
    assert main(["attach", f"unix:{tmp_path / 'tap'}"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("vllm unknown · rank 0") and "1 steps, 3 requests" in printed
    assert main(["attach", f"unix:{tmp_path / 'tap'}", "--record", str(tmp_path / "a.lab"), "--seconds", "0"]) == 0
    assert "It was still growing." in labengine.open(tmp_path / "a.lab").note


def test_the_doctor_examines_it_while_it_goes_on(stream: LiveStream, engine: TappedEngine) -> None:
    """What was cached before it was attached is not known; it has no inputs to run again."""
    steps(stream, engine, 12)
    found = labengine.doctor(stream)
    assert found.report.title == stream.title and "vLLM had run before" in found.report.notes[0]
    assert found.look_ups[-1].name.startswith("r") and len(found.of(found.look_ups[-1].name)) == 1
    assert all(one.num_hit + sum(miss.num_tokens for miss in one.misses) == one.num_tokens for one in found.look_ups)
    with pytest.raises(labengine.ConfigError, match="cannot be repeated"):
        found.lab()
