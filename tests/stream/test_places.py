"""What commands take as a place: a folder with several streams, a socket's path, and a file of the wrong kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labengine
from differential import vllm_streams
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.lab import Lab
from recorded_files import written
from replaying import ReplayedTap

SYNC = next(items for workload, items in vllm_streams.read() if not workload["async"])


def changed(items: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return a stream in which a block goes to the head of the free queue."""
    items = json.loads(json.dumps(items))
    for item in items:
        for row in item.get("message", {}).get("e", ()):  # type: ignore[attr-defined]
            if "head" in row or "tail" in row:
                row[row.index("head" if "head" in row else "tail")] = "tail" if "head" in row else "head"
                return items
    raise AssertionError("no block is freed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two streams: one conforms, and one does not."""
    for number, items in enumerate((SYNC, changed(SYNC))):
        written(items, tmp_path).rename(tmp_path / f"rank0-{number}-abc-0001.labstream")
    return tmp_path


def test_a_folder_of_several_streams_is_judged_stream_by_stream(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conform", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("Conforms to edition vllm") == 1 and printed.count("Differs from edition vllm") == 1
    assert main(["doctor", str(folder)]) == 0
    assert capsys.readouterr().out.count("rank 0") == 2
    assert main(["conform", str(folder / "rank0-0-abc")]) == 0


def test_in_python_one_of_them_is_to_be_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 2 streams, newest first: .*rank0-.-abc.*; name one of them"):
        labengine.conform(folder)
    assert labengine.conform(folder / "rank0-0-abc").exit_code == 0


@pytest.mark.parametrize("command", [["attach", "--page"], ["attach"], ["conform"]])
def test_a_saved_recording_is_called_what_it_is(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.lab"
    with Lab("simulated", num_blocks=8, block_size=4) as lab:
        lab.save(path)
    assert main([command[0], str(path), *command[1:]]) == 2
    said = capsys.readouterr().err
    assert f"{path} is a saved recording" in said and f"labengine open {path}" in said and "damaged" not in said


def test_a_sockets_path_is_a_place(tmp_path: Path) -> None:
    tap = ReplayedTap(tmp_path / "tap", 0)
    try:
        (path,) = (tmp_path / "tap").glob("*.sock")
        with labengine.attach(path) as stream, labengine.attach(str(path)) as other:
            assert stream.title == other.title
    finally:
        tap.close()
