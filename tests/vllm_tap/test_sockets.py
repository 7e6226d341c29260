"""The tap on sockets: who may connect, what a viewer gets and when, and that no viewer ever holds the engine up."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import labengine_vllm
from fake_vllm import FakeScheduler, run_fake
from labengine_vllm import broadcast, viewer
from labengine_vllm.tap import Tap
from labengine_vllm.wrapping import Entries
from streams import TappedEngine, quick_sockets, without_rate_limits
from waiting import PATIENCE, wait_until

UNTAPPED = run_fake(FakeScheduler(8))
"""The requests' tokens without a tap."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_rate_limits(monkeypatch)
    quick_sockets(monkeypatch, tmp_path)


class End:
    """A viewer's end of a socket, read line by line."""

    def __init__(self, address: str | tuple[str, int]) -> None:
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(address)
        self._file = self.socket.makefile("rb")

    def line(self) -> dict[str, Any]:
        """Return the next line; empty at the end of the stream."""
        try:
            line = self._file.readline()
        except ConnectionResetError:
            line = b""
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return the lines up to one that is wanted."""
        lines = [self.line()]
        while lines[-1] and not is_wanted(lines[-1]):
            lines.append(self.line())
        return lines

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def tapped(tmp_path: Path) -> Iterator[TappedEngine]:
    engine = TappedEngine(f"unix:{tmp_path / 'tap'}")
    yield engine
    engine.shut_down()


@pytest.fixture
def path(tapped: TappedEngine, tmp_path: Path) -> str:
    (path,) = (tmp_path / "tap").iterdir()
    return str(path)


def messages(lines: list[dict[str, Any]]) -> list[int]:
    return [line["n"] for line in lines if "n" in line]


# -- who may connect ---------------------------------------------------------------------------------------------------


def test_only_the_user_can_connect(path: str) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    assert labengine_vllm.attach(FakeScheduler(8), f"unix:{tmp_path}") is None
    assert f"{tmp_path} must be accessible only to you" in caplog.text and "chmod 700" in caplog.text


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert labengine_vllm.attach(FakeScheduler(8), f"unix:{tmp_path / ('x' * 120)}") is None
    assert "a shorter path may help" in caplog.text


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp:0.0.0.0:7000", "a tap must listen on this machine"),
        ("tcp:example.org:7000", "a tap must listen on this machine"),
        ("tcp:7000", "a tap must listen on this machine"),
        ("tcp:127.0.0.1:port", "a port must be a number from 0 to 65535"),
        ("tcp:127.0.0.1:70000", "a port must be a number from 0 to 65535"),
    ],
)
def test_tcp_is_for_this_machine_alone(address: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    assert labengine_vllm.attach(FakeScheduler(8), address) is None
    assert why in caplog.text


def test_a_port_asks_for_its_secret_first(tmp_path: Path) -> None:
    engine = TappedEngine("tcp:127.0.0.1:0")
    (file,) = (tmp_path / "secrets").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    noted = json.loads(file.read_text())
    assert noted["asked"] == 0 and noted["rank"] == 0 and file.name == f"tcp-{noted['port']}.json"
    wrong, right = End(("127.0.0.1", noted["port"])), End(("127.0.0.1", noted["port"]))
    wrong.socket.sendall(b"guess\n")
    assert "the secret is wrong" in wrong.line()["refused"] and wrong.line() == {}
    assert not engine.outbox.has_audience
    right.socket.sendall(noted["secret"].encode() + b"\n")
    assert right.line()["format"] == "labengine stream"
    engine.shut_down()
    assert "end" in right.until(lambda line: "end" in line)[-1] and not file.exists()


def test_the_secrets_of_killed_engines_are_removed(tmp_path: Path) -> None:
    living = TappedEngine("tcp:127.0.0.1:0")
    (kept,) = (tmp_path / "secrets").iterdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        stale = tmp_path / "secrets" / f"tcp-{free.getsockname()[1]}.json"
    stale.write_text("{}")
    other = TappedEngine("tcp:127.0.0.1:0")
    assert kept.exists() and not stale.exists()
    for engine in (living, other):
        engine.scheduler.shutdown()


def test_a_port_closes_on_a_viewer_without_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "SECONDS_TO_ADMIT", 0.0)
    engine = TappedEngine("tcp:127.0.0.1:0")
    (file,) = (tmp_path / "secrets").iterdir()
    silent = End(("127.0.0.1", json.loads(file.read_text())["port"]))
    assert silent.line() == {"refused": "no secret came"} and silent.line() == {}
    engine.scheduler.shutdown()


def test_connections_without_a_secret_take_no_viewers_place(tmp_path: Path) -> None:
    engine = TappedEngine("tcp:127.0.0.1:0")
    (file,) = (tmp_path / "secrets").iterdir()
    noted = json.loads(file.read_text())
    silent = [End(("127.0.0.1", noted["port"])) for _ in range(3 * broadcast.MAX_STRANGERS)]
    viewers = []
    for _ in range(broadcast.MAX_VIEWERS):
        viewers.append(End(("127.0.0.1", noted["port"])))
        viewers[-1].socket.sendall(noted["secret"].encode() + b"\n")
        assert viewers[-1].line()["format"] == "labengine stream"
        silent.append(End(("127.0.0.1", noted["port"])))
    assert silent[0].line() == {"refused": "no secret came"} and silent[0].line() == {}
    engine.scheduler.shutdown()
    for end in (*silent, *viewers):
        end.close()


def test_one_viewer_too_many_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_VIEWERS", 1)
    first, second = End(path), End(path)
    assert first.line()["format"] == "labengine stream"
    assert "refused" in second.until(lambda line: "refused" in line)[-1] and second.line() == {}
    first.close()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\n", b"x" * 2000, b"keyframe now\n"])
def test_a_viewer_that_sends_anything_else_is_dropped(sent: bytes, path: str, tapped: TappedEngine) -> None:
    end = End(path)
    end.socket.sendall(sent)
    end.until(lambda line: False)
    tapped.waits_for(False)
    tapped.step()


# -- nobody listens ----------------------------------------------------------------------------------------------------


def test_without_a_viewer_nothing_but_the_entries_is_wrapped(tapped: TappedEngine) -> None:
    assert run_fake(tapped.scheduler) == UNTAPPED
    assert vars(tapped.scheduler.kv_cache_manager.block_pool).keys() == tapped.untouched.keys()
    assert tapped.tap.recorder.rows == [] and tapped.tap._num_sent == 0


def test_the_last_viewer_takes_the_wrappers_along(tapped: TappedEngine, path: str) -> None:
    end = End(path)
    tapped.waits_for(True)
    tapped.step()
    assert vars(tapped.scheduler.kv_cache_manager.block_pool).keys() > tapped.untouched.keys()
    end.close()
    tapped.waits_for(False)
    tapped.step()
    assert vars(tapped.scheduler.kv_cache_manager.block_pool).keys() == tapped.untouched.keys()
    assert not tapped.tap.recorder.is_listening


# -- what a viewer gets ------------------------------------------------------------------------------------------------


def test_a_late_viewer_gets_a_header_a_keyframe_and_then_events(tapped: TappedEngine, path: str) -> None:
    for _ in range(3):
        tapped.step()
    end = End(path)
    tapped.waits_for(True)
    tapped.step()
    header, keyframe = end.line(), end.line()
    lines = [keyframe, *end.until(lambda line: "e" in line)]  # a slow machine's engine is idle meanwhile, and says so
    assert header["format"] == "labengine stream" and header["file"] == 1
    assert keyframe["k"]["step"] == 3 and "lost" not in keyframe and keyframe["names"] == {"0": "r0", "1": "r1"}
    assert messages(lines) == list(range(keyframe["n"], keyframe["n"] + len(lines)))


def test_an_idle_engine_says_its_state(tapped: TappedEngine, path: str) -> None:
    tapped.step()
    end = End(path)
    assert end.until(lambda line: "k" in line)[-1]["k"]["step"] == 1
    tapped.step()
    assert "e" in end.until(lambda line: "e" in line)[-1]


def test_a_viewer_may_ask_for_a_keyframe(tapped: TappedEngine, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    end = End(path)
    end.until(lambda line: "k" in line)
    monkeypatch.setattr("labengine_vllm.tap.SECONDS_BETWEEN_CHECKS", 1e9)
    tapped.tap._next_check = 1e18
    tapped.step()
    end.socket.sendall(b"keyframe\n")
    wait_until(lambda: tapped.outbox.wants_keyframe or tapped.tap._num_sent > 4)
    tapped.step()
    lines = end.until(lambda line: "k" in line)
    assert messages(lines) == list(range(lines[0]["n"], lines[-1]["n"] + 1)) and "lost" not in lines[-1]


def test_a_viewer_that_never_reads_loses_its_place_and_nobody_waits(
    tapped: TappedEngine, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit is dropped; once the rest is read, a keyframe says how many events are missing."""
    monkeypatch.setattr(viewer, "MAX_WAITING_BYTES", 20_000)
    monkeypatch.setattr("labengine_vllm.tap.SECONDS_BETWEEN_CHECKS", 1e9)
    slow, quick = End(path), End(path)
    viewers = tapped.outbox._viewers
    wait_until(lambda: [one.is_following for one in list(viewers.values())] == [True, True], "both to follow")
    slow_one = next(iter(viewers.values()))
    while slow_one.is_following:
        tapped.step()
        quick.until(lambda line: line.get("e", [[0]])[-1][0] == 1)  # up to the step's end
    tapped.step()
    assert not slow_one.wants_keyframe, "it has not read yet: a keyframe would be dropped too"
    wait_until(lambda: slow_one._num_dropped > 0)
    lines: list[dict[str, Any]] = []
    reading = Thread(target=lambda: lines.extend(slow.until(lambda line: "lost" in line)))
    reading.start()
    while reading.is_alive():
        tapped.step()
    lost = lines[-1]["lost"]
    assert lost["why"] == "this viewer reads too slowly" and lost["num_events"] > 0
    missing = lines[-1]["n"] - lines[-2]["n"] - 1
    assert missing > 0 and "k" in lines[-1]
    for end in (quick, slow):
        end.close()


def test_a_killed_viewer_is_forgotten(tapped: TappedEngine, path: str) -> None:
    """Its process ends with unread bytes: the system resets the connection."""
    end = End(path)
    tapped.waits_for(True)
    for _ in range(3):
        tapped.step()
    end.close()
    tapped.waits_for(False)
    assert run_fake(tapped.scheduler)[0][1] and tapped.tap.is_attached


# -- the end -----------------------------------------------------------------------------------------------------------


def test_an_engine_that_is_shut_down_says_so_and_removes_its_socket(tmp_path: Path) -> None:
    engine = TappedEngine(f"unix:{tmp_path / 'tap'}")
    (path,) = (tmp_path / "tap").iterdir()
    end = End(str(path))
    engine.waits_for(True)
    engine.step()
    engine.scheduler.shutdown()
    lines = end.until(lambda line: "end" in line)
    assert "k" in lines[-2] and lines[-1]["end"] == "the engine was shut down" and end.line() == {}
    assert not path.exists() and vars(engine.scheduler).keys() == vars(FakeScheduler(8)).keys()


def test_the_socket_of_a_killed_engine_is_removed_by_the_next_one(tmp_path: Path) -> None:
    folder = tmp_path / "tap"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(folder / "rank0-1-dead.sock"))
    living = TappedEngine(f"unix:{folder}")
    other = TappedEngine(f"unix:{folder}")
    assert len(list(folder.iterdir())) == 2 and not (folder / "rank0-1-dead.sock").exists()
    living.shut_down()
    other.shut_down()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("place", ["_hand_on", "_accept", "_look_after"])
def test_an_error_of_the_viewers_thread_detaches_the_tap(
    place: str, tapped: TappedEngine, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(*_: Any) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(broadcast.Broadcast, place, raising)
    End(path)
    tapped.outbox._thread.join(PATIENCE)
    tapped.step()
    assert "ZeroDivisionError: injected" in caplog.text and not tapped.tap.is_attached
    assert vars(tapped.scheduler).keys() == vars(FakeScheduler(8)).keys() and not Path(path).exists()


def test_an_error_in_an_idle_keyframe_detaches_the_tap(
    tapped: TappedEngine, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(*_: Any) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(Tap, "_send_keyframe", raising)
    end = End(path)
    assert "an idle engine" in end.until(lambda line: "end" in line)[-1]["end"]
    assert not tapped.tap.is_attached and "ZeroDivisionError" in caplog.text
    tapped.step()


def test_an_idle_keyframe_waits_for_nobody(tapped: TappedEngine, path: str) -> None:
    """While a method of the scheduler runs, its state is not looked at."""
    entries = tapped.tap._entries
    assert isinstance(entries, Entries)
    with entries.gate:
        end = End(path)
        tapped.waits_for(True)
        before = tapped.tap._num_entered
        wait_until(lambda: tapped.tap._num_entered != before or tapped.outbox.wants_keyframe)
        assert tapped.tap._num_sent == 0
    assert "k" in end.until(lambda line: "k" in line)[-1]
