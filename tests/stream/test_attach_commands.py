"""python -m labengine attach: what a stream was, its record, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from fake_vllm import run_fake
from labengine.__main__ import main
from streams import tapped


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a tap has written one stream."""
    scheduler, _ = tapped(tmp_path / "tap")
    run_fake(scheduler)
    scheduler.shutdown()
    return tmp_path / "tap"


def test_the_command_prints_records_and_writes_a_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, page = tmp_path / "run.lab", tmp_path / "run.html"
    assert main(["attach", str(folder), "--record", str(record), "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("vllm unknown · rank 0") and "the engine was shut down" in printed
    assert labengine.open(record).fold().step == 7 and "FakeScheduler" in page.read_text(encoding="utf-8")


def test_the_command_refuses_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", str(tmp_path / "nothing")]) == 2
    assert "no file" in capsys.readouterr().err
    assert main(["attach", str(tmp_path), "--piece", "2"]) == 2
    assert "no stream in" in capsys.readouterr().err


def test_a_piece_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(labengine.ConfigError, match="piece"):
        labengine.attach(folder, piece=2)
    with pytest.raises(TypeError, match="no keyword 'peace'"):
        labengine.attach(folder, peace=1)
