"""The browser's types of event rows are those of labengine/events.py."""

from __future__ import annotations

from pathlib import Path

from tools import event_types


def test_the_browsers_event_types_are_up_to_date(project_root: Path) -> None:
    written = (project_root / event_types.PATH).read_text(encoding="utf-8")
    assert written == event_types.source(), "python -m tools.event_types"
