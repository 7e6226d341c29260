"""`labengine doctor run.lab | head` ends quietly, as every program does whose reader has gone."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from checkout import ROOT
from labengine import Lab
from labengine.__main__ import main
from labengine.commands import TERMINAL
from waiting import PATIENCE

PIPE_CLOSED = 141


def run_unread(*arguments: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "widgets"))
    command = [sys.executable, "-m", "labengine", *arguments]
    environment = {**os.environ, "PYTHONPATH": paths}
    try:
        return subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, input=sent, env=environment, timeout=PATIENCE
        )
    finally:
        os.close(writing)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with Lab("simulated", num_blocks=8, block_size=4) as lab:
        lab.generate(["a b c d e f g h i"] * 2, max_tokens=2)
        lab.save(tmp_path / "run.lab")
    return tmp_path / "run.lab"


def test_a_command_whose_reader_has_gone_ends_quietly(trace: Path) -> None:
    done = run_unread("doctor", str(trace))
    assert (done.returncode, done.stderr) == (PIPE_CLOSED, b"")


@pytest.mark.sweep
def test_every_command_ends_quietly(trace: Path, tmp_path: Path) -> None:
    for command in TERMINAL:
        done = run_unread(command, "--help")
        assert done.returncode in (PIPE_CLOSED, 0), command  # argparse ignores it where nothing is buffered
        assert done.stderr == b"", command
    commands = [["open", str(trace)], ["doctor", str(trace), "--json"], ["bugs"], ["bug"], ["bug", "nano-vllm-219"]]
    commands += [["course", str(tmp_path / "lessons")], ["find", "labengine", "--seconds", "0.1"]]
    for arguments in commands:
        done = run_unread(*arguments)
        assert (done.returncode, done.stderr) == (PIPE_CLOSED, b""), arguments
    done = run_unread("replay", "-", sent=b"{}")
    assert done.returncode in (PIPE_CLOSED, 2), done.stderr


def test_a_closed_pipe_of_another_kind_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BrokenPipeError("a worker's")

    monkeypatch.setitem(TERMINAL, "bugs", replace(TERMINAL["bugs"], run=fail))
    with pytest.raises(BrokenPipeError, match="a worker's"):
        main(["bugs"])
