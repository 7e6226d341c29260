"""A pipe or a device in the place of a file is refused at once, wherever a path is read; a shell's pipes work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import labengine
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.course.copying import copy_course
from labengine.course.printed import write_solutions
from labengine.engine.external.block_files import BlockFolder
from labengine.engine.model_files.json_file import read_object
from labengine.record.files.file import open_file
from labengine.system.regular_file import open_regular
from labengine.vllm.stream.endpoints import SECRETS, endpoints
from waiting import PATIENCE


@pytest.fixture
def no_file(tmp_path: Path) -> Path:
    """Return a path at which reading would never end: a pipe."""
    path = tmp_path / "rank0-stream-0001.labstream"
    os.mkfifo(path)
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "open_regular": open_regular,
    "open": labengine.open,
    "open_file": open_file,
    "doctor": labengine.doctor,
    "doctor of its folder": lambda path: labengine.doctor(path.parent),
    "conform": labengine.conform,
    "conform of its folder": lambda path: labengine.conform(path.parent),
    "attach": labengine.attach,
    "attach to its folder": lambda path: labengine.attach(path.parent),
    "kv_events": lambda path: labengine.kv_events(f"kv:{path}"),
    "solutions": write_solutions,
    "model": lambda path: read_object(path),
    "disk store": lambda path: BlockFolder(path.parent).read(path.name),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused(reader: str, no_file: Path) -> None:
    with pytest.raises((ConfigError, OSError)):
        READERS[reader](no_file)
    assert not no_file.is_file(), "nothing has taken its place"


def test_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("/dev/zero")
    with pytest.raises(OSError):
        open_regular(tmp_path / "device")


COMMANDS = (["open"], ["replay"], ["find", ":Parts"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_refuses_what_is_no_file(
    command: list[str], no_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = command
    arguments = [name, f"{no_file}{more[0]}"] if more and more[0].startswith(":") else [name, *more, str(no_file)]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("labengine: ")


def test_a_pipe_among_the_notebooks_is_another_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "00_why_blocks.ipynb")
    (tmp_path / "01_first_light.ipynb").symlink_to("nowhere")
    before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match="00_why_blocks"):
        copy_course(tmp_path)
    assert {path.name: path.lstat().st_ino for path in tmp_path.iterdir()} == before


def test_a_pipe_among_the_secrets_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "tcp-5000.json")
    monkeypatch.setenv(SECRETS, str(tmp_path))
    with pytest.raises(ConfigError, match="no secret for port 5000"):
        endpoints("tcp:127.0.0.1:5000")


@pytest.mark.parametrize("port", ["9" * 5000, "-1", "65536", "+80", "٣" * 5000])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match="a port must be a number") as refusal:
        endpoints(f"tcp:127.0.0.1:{port}")
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("named", ["-", "/dev/stdin", "/dev/fd/0"])
def test_a_workload_may_come_through_a_pipe(named: str) -> None:
    command = [sys.executable, "-m", "labengine", "replay", named]
    workload = json.dumps({"pool": {"num_blocks": 4, "block_size": 4}, "operations": []})
    done = subprocess.run(command, input=workload, capture_output=True, text=True, timeout=PATIENCE)
    assert "is not a workload" not in done.stderr, "it was read"
