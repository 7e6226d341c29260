"""The reader's progress: a file that is written atomically, survives damage, and never gets in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labengine
from labengine.course import progress as module
from labengine.course.progress import Attempts, note_check, note_hint, note_solution, progress_path


def test_tries_hints_and_solutions_are_counted(progress_file: Path) -> None:
    note_check("a/b", is_passed=False)
    note_check("a/b", is_passed=True, run=("Mine", 12))
    note_check("a/b", is_passed=False)
    note_hint("a/b", 2)
    note_hint("a/b", 1)
    note_solution("c")
    found = labengine.progress()
    assert found["a/b"] == Attempts(passed=True, tries=3, hints=2, score=12, runs=(("Mine", 12),))
    assert found["c"] == Attempts(has_seen_solution=True)
    assert "1 of 2 tried exercises passed" in found.headline and str(progress_file) in found.headline
    assert [path.name for path in progress_file.parent.iterdir()] == ["progress.json"]


def test_a_column_of_scores_is_there_only_with_a_score() -> None:
    note_check("a", is_passed=True)
    table = labengine.progress().table
    assert table is not None and {len(row) for row in table.rows} == {5} and table.rows[0][-1] == "solution"
    note_check("b", is_passed=True, run=("Mine", 12))
    table = labengine.progress().table
    assert table is not None and [row[-1] for row in table.rows] == ["score", "", "12"]


def test_the_newest_runs_are_kept() -> None:
    for score in range(20):
        note_check("a", is_passed=False, run=("Mine", score))
    note_check("a", is_passed=False, run=("Mine", 19))
    note_check("a", is_passed=False)
    assert labengine.progress()["a"] == Attempts(
        tries=22, score=19, runs=tuple(("Mine", score) for score in range(8, 20))
    )


def test_without_a_file_there_is_a_sentence() -> None:
    found = labengine.progress()
    assert len(found) == 0 and "No exercise was tried yet" in repr(found) and "<table" not in found._repr_html_()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"\xff\xfe", b'{"exercises": 3}', b'{"exercises": {"a": 1}}', b"[" * 100_000,
        b'{"exercises": {"a": {"tries": "many"}}}', b'{"exercises": {"a": {"passed": 1}}}',
        b'{"exercises": {"a": {"runs": [["Mine"]]}}}', b'{"exercises": {"a": {"runs": [["Mine", true]]}}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_put_aside(progress_file: Path, content: bytes) -> None:
    progress_file.parent.mkdir(parents=True)
    progress_file.write_bytes(content)
    found = labengine.progress()
    assert len(found) == 0 and "is damaged" in found.note
    note_check("a", is_passed=True)
    assert labengine.progress()["a"].passed and not labengine.progress().note
    assert progress_file.with_name("progress.json.damaged").read_bytes() == content


def test_a_folder_that_cannot_be_written_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(module.VARIABLE, str(blocked / "progress.json"))
    monkeypatch.setattr(module, "_unsaved", {})
    note_check("a", is_passed=True)
    note_check("a", is_passed=False)
    found = labengine.progress()
    assert found["a"] == Attempts(passed=True, tries=2)
    assert "cannot be read" in found.note or "cannot be written" in found.note


def test_names_are_escaped() -> None:
    note_check("<script>x</script>", is_passed=True)
    assert "<script>" not in labengine.progress()._repr_html_()


def test_fields_of_a_newer_version_are_left_alone(progress_file: Path) -> None:
    progress_file.parent.mkdir(parents=True)
    entry = {"passed": True, "tries": 1, "mood": "good"}
    progress_file.write_text(json.dumps({"version": 2, "exercises": {"a": entry}}))
    assert labengine.progress()["a"] == Attempts(passed=True, tries=1)


def test_the_file_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(module.VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert progress_path() == tmp_path / "labengine" / "progress.json"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert progress_path() == Path.home() / ".local" / "share" / "labengine" / "progress.json"
