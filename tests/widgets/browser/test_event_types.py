"""What the browser and the tap know of events is what labengine/events/ says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import event_types


@pytest.mark.parametrize("path", event_types.written(), ids=str)
def test_the_generated_files_are_up_to_date(path: Path, project_root: Path) -> None:
    there = (project_root / path).read_text(encoding="utf-8")
    assert there == event_types.written()[path], "python -m tools.event_types"
