"""Every command that records or serves ends in order on each signal that ends commands."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import labengine
from fake_vllm import run_fake
from forked_commands import ForkingProcess
from kv_batches import Publisher, payload, stored
from labengine.system.ending_signals import EndingSignals
from replaying import ReplayedTap
from streams import tapped
from waiting import wait_until

COMMANDS = {
    "attach unix:tap --record run.lab --html run.html": "until Ctrl-C",
    "attach unix:tap --html run.html": "until Ctrl-C",
    "attach unix:tap --page": "Ctrl-C ends it",
    "attach unix:tap --page --record run.lab --html run.html": "Ctrl-C ends it",
    "attach unix:ranks --page": "Ctrl-C ends it",
    "attach files --page --record run.lab": "Ctrl-C ends it",
    "doctor unix:tap": "until Ctrl-C",
    "doctor unix:ranks": "until Ctrl-C",
    "attach-kv ipc://EVENTS --replay ipc://REPLAY --record run.kvevents --html run.html": "until Ctrl-C",
}
"""Each command, and what it says once a signal may end it."""

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
BATCHES = [payload(stored([number], [number] * 4)) for number in range(1, 9)]
READ = {".lab": labengine.open, ".kvevents": labengine.kv_events, ".html": Path.read_text}


@pytest.fixture(scope="module")
def forking() -> Iterator[ForkingProcess]:
    with ForkingProcess() as process:
        yield process


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with running engines, and files of one that has ended: what the commands' places name."""
    folder = tmp_path_factory.mktemp("engines")
    scheduler, _ = tapped(folder / "files")
    run_fake(scheduler)
    scheduler.shutdown()
    publisher = Publisher(folder, BATCHES)
    with ExitStack() as running:
        for name, rank in (("tap", 0), ("ranks", 0), ("ranks", 1)):
            running.enter_context(ReplayedTap(folder / name, 2, rank)).send(20)
        running.enter_context(publisher.running())
        yield folder


def words_of(command: str, engines: Path, folder: Path) -> list[str]:
    """Return a command's words: with its places among the engines, and its files in a folder."""
    places = {"files": str(engines / "files"), "ipc://EVENTS": f"ipc://{engines}/events"}
    places |= {f"unix:{name}": f"unix:{engines / name}" for name in ("tap", "ranks")}
    places |= {"ipc://REPLAY": f"ipc://{engines}/replay"}
    return [str(folder / one) if one.startswith("run.") else places.get(one, one) for one in command.split()]


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_it_and_what_came_is_written(
    command: str, number: int, forking: ForkingProcess, engines: Path, tmp_path: Path
) -> None:
    words = words_of(command, engines, tmp_path)
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    process = forking.start(out, err, *words)
    wait_until(lambda: out.exists() and COMMANDS[command] in out.read_text(), "the command")
    os.kill(process, number)
    assert (forking.wait(), err.read_text()) == (0, "")
    for file in (Path(word) for word in words if Path(word).parent == tmp_path):
        assert file.stat().st_mode & 0o777 == 0o600 and READ[file.suffix](file)


def test_a_recording_is_written_though_its_terminal_is_gone(
    forking: ForkingProcess, engines: Path, tmp_path: Path
) -> None:
    terminal, its_end = os.openpty()
    words = words_of("attach unix:tap --page --record run.lab", engines, tmp_path)
    process = forking.start(Path(os.ttyname(its_end)), tmp_path / "stderr", *words)
    said = b""
    while b"Ctrl-C ends it\r\n" not in said:
        said += os.read(terminal, 1_000)
    os.close(its_end)
    os.close(terminal)
    os.kill(process, signal.SIGHUP)
    assert (forking.wait(), (tmp_path / "stderr").read_text()) == (141, "")
    assert labengine.open(tmp_path / "run.lab")


@pytest.mark.parametrize(("number", "is_ended"), [(signal.SIGHUP, False), (signal.SIGTERM, True)])
def test_nohup_is_respected(number: int, is_ended: bool) -> None:
    looks = list[float]()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with EndingSignals() as signals:
            os.kill(os.getpid(), number)
            signals.wait(None, lambda period: not looks.append(period))
        assert bool(looks) is not is_ended and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
