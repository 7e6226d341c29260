"""The reader's progress of these tests: a file of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from labengine.course.progress import VARIABLE
from labengine.isolation import limits


@pytest.fixture(autouse=True)
def progress_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "labengine" / "progress.json"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.fixture
def loops_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload takes milliseconds: what takes longer than this has no end."""
    monkeypatch.setattr(limits, "OPERATION_S", 0.4)
