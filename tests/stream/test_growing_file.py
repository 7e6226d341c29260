"""A recording that is killed, ended by a signal, or full: what came is there, for the user alone, and says so."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labengine
from checkout import ROOT
from labengine.__main__ import main
from labengine.vllm.stream.attach_command import FullFileError, GrowingFile
from streams import TappedEngine, quick_sockets
from waiting import wait_until


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TappedEngine]:
    quick_sockets(monkeypatch, tmp_path)
    engine = TappedEngine(f"unix:{tmp_path / 'tap'}", 16)
    engine.step()
    yield engine
    engine.scheduler.shutdown()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def newest_number(growing: Path) -> int:
    """Return the number of the newest complete message of a file; -1 without one."""
    lines = growing.read_bytes().split(b"\n")[1:-1] if growing.exists() else []
    return int(json.loads(lines[-1])["n"]) if lines else -1


def recording(engine: TappedEngine, folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a recording, and have all of some steps come."""
    line = [sys.executable, "-m", "labengine", "attach", f"unix:{folder / 'tap'}", *options]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    growing = folder / "run.labstream"
    wait_until(lambda: newest_number(growing) >= 0, "the first keyframe")
    for _ in range(5):
        engine.step()
    wait_until(lambda: newest_number(growing) == engine.tap._num_sent - 1, "the newest step")
    return process


def test_a_signal_ends_a_recording_and_writes_it(engine: TappedEngine, tmp_path: Path) -> None:
    os.umask(0o022)
    out, page = tmp_path / "run.lab", tmp_path / "run.html"
    with recording(engine, tmp_path, "--record", str(out), "--html", str(page)) as process:
        process.terminate()
        printed, errors = process.communicate()
    assert (process.returncode, errors) == (0, "") and "recording into" in printed
    assert labengine.open(out).fold().step == engine.tap.recorder.step
    assert mode(out) == mode(page) == 0o600 and not (tmp_path / "run.labstream").exists()


def test_after_a_kill_all_is_there_and_every_reader_says_first_that_it_was_cut(
    engine: TappedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(engine, tmp_path, "--html", str(tmp_path / "run.html")) as process:
        process.kill()
    growing = tmp_path / "run.labstream"
    assert mode(growing) == 0o600
    with labengine.attach(growing) as trace:
        assert trace.fold().step == engine.tap.recorder.step
        assert trace.note.startswith("The stream stops without an end: ")
    found = labengine.doctor(growing)
    assert (
        found.report.notes[0].startswith("The recording is incomplete:") and "without an end" in found.report.notes[0]
    )
    assert "without an end" in repr(labengine.conform(growing))
    assert main(["attach", str(growing), "--record", str(tmp_path / "late.lab")]) == 0
    assert mode(tmp_path / "late.lab") == 0o600 and "without an end" in labengine.open(tmp_path / "late.lab").note
    capsys.readouterr()


def test_a_recording_ends_at_its_bytes_and_says_so(
    engine: TappedEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"unix:{tmp_path / 'tap'}"
    out = tmp_path / "run.lab"
    assert main(["attach", place, "--record", str(out), "--max-bytes", "1"]) == 2
    assert "limit of 1 bytes (--max-bytes)" in capsys.readouterr().err
    assert not out.exists() and not (tmp_path / "run.labstream").exists()


def test_a_full_journal_has_an_end_that_says_why(tmp_path: Path) -> None:
    growing = GrowingFile(tmp_path / "run.lab", 100)
    growing.write(b'{"format": "x"}')
    with pytest.raises(FullFileError, match="limit of 100 bytes"):
        for number in range(100):
            growing.write(json.dumps({"n": number, "t": 1.0, "e": []}).encode())
    growing.close(is_kept=True)
    lines = growing.path.read_text().splitlines()
    assert "limit of 100 bytes (--max-bytes)" in json.loads(lines[-1])["end"]
    assert json.loads(lines[-1])["n"] == len(lines) - 2


def test_what_a_killed_recording_left_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.labstream").write_text("kept")
    growing = GrowingFile(tmp_path / "run.lab", None)
    assert growing.path.name == "run.1.labstream"
    growing.close(is_kept=True)
    assert not growing.path.exists(), "nothing came"
    assert (tmp_path / "run.labstream").read_text() == "kept"
