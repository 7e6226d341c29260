"""The reader's progress: a file that is written atomically, survives damage, and never gets in the way."""

from __future__ import annotations

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course import progress as module
from labengine.course.exercises.prefix_caching import DocumentsFirst
from labengine.course.progress import note_check, note_hint, note_solution, progress_path
from labengine.course.progress_file import Attempts


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
    assert {path.name for path in progress_file.parent.iterdir()} <= {"progress.json", ".progress.json.lock"}


def test_a_column_of_scores_is_there_only_with_a_score() -> None:
    note_check("a", is_passed=True)
    table = labengine.progress().table
    assert table is not None and {len(row) for row in table.rows} == {5} and table.rows[0][-1] == "solution"
    note_check("b", is_passed=True, run=("Mine", 12))
    table = labengine.progress().table
    assert table is not None and [row[-1] for row in table.rows] == ["best score", "", "12"]


def test_the_table_can_be_handed_in_as_a_file(tmp_path: Path) -> None:
    note_check("a/b", is_passed=True, run=("Mine", 12))
    note_check("c, d", is_passed=False)
    path = tmp_path / "mine.csv"
    labengine.progress().save(path)
    with path.open(newline="", encoding="utf-8") as lines:
        assert list(csv.DictReader(lines)) == [
            {"exercise": "a/b", "passed": "yes", "tries": "1", "hints": "0", "solution": "", "best score": "12"},
            {"exercise": "c, d", "passed": "not yet", "tries": "1", "hints": "0", "solution": "", "best score": ""},
        ]


def test_the_newest_runs_are_kept() -> None:
    for score in range(20):
        note_check("a", is_passed=False, run=("Mine", score))
    note_check("a", is_passed=False, run=("Mine", 19))
    note_check("a", is_passed=False)
    assert labengine.progress()["a"] == Attempts(
        tries=22, score=19, runs=tuple(("Mine", score) for score in range(8, 20))
    )


def test_the_best_score_is_kept() -> None:
    for better, scores, best in ((max, (7, 12, 3), 12), (min, (7, 3, 12), 3)):
        for score in scores:
            note_check(better.__name__, is_passed=False, run=("Mine", score), better=better)
        note_check(better.__name__, is_passed=False, run=("Mine", 100 if better is max else 0), better=None)
        assert labengine.progress()[better.__name__].score == best


def test_a_race_keeps_the_best_of_its_runs_and_none_that_is_not_right() -> None:
    exercise: Any = labengine.exercise("prefix-caching/in-the-way")
    assert exercise.check(DocumentsFirst)
    best = labengine.progress()[exercise.name].score

    class EverythingFirst(BlockPool):
        def reused_first(self, block_ids: list[int]) -> list[int]:
            return block_ids

    assert exercise.check(EverythingFirst).state == "wrong"
    found = labengine.progress()[exercise.name]
    assert found.score == best == found.runs[0][1] > found.runs[1][1]

    waiting: Any = labengine.exercise("your-policy/waiting")
    assert waiting.check(waiting.right_answer)
    assert not waiting.check(TokenBudgetScheduler)
    found = labengine.progress()[waiting.name]
    assert found.score == found.runs[0][1] < found.runs[1][1], "of steps that are waited, fewer are better"

    one_off: Any = labengine.exercise("your-policy/one-off-texts")
    forgets = next(mistake for mistake, hint in one_off.mistakes if "plain set" in hint)
    assert one_off.check(forgets).state == "wrong"
    assert labengine.progress()[one_off.name].score is None


def test_without_a_file_there_is_a_sentence() -> None:
    found = labengine.progress()
    assert len(found) == 0 and "labengine.exercise(NAME)" in repr(found) and "<table" not in found._repr_html_()


DAMAGED = (b'{\n "version": 1,\n "exercises": {\n  "a": {"pas', b'{\n "version": ' + b"[" * 100_000)
"""Beginnings of files of progress."""


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_put_aside_and_this_is_said(progress_file: Path, content: bytes) -> None:
    progress_file.parent.mkdir(parents=True)
    for number in ("", "1"):
        progress_file.write_bytes(content)
        found = labengine.progress()
        assert len(found) == 0 and "damaged" in found.note
        with pytest.warns(UserWarning, match=rf"progress\.json\.damaged{number}\b"):
            note_check("a", is_passed=True)
        assert labengine.progress()["a"].passed and not labengine.progress().note
        assert progress_file.with_name(f"progress.json.damaged{number}").read_bytes() == content


def test_at_the_default_path_any_damaged_file_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(module.VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    progress_path().parent.mkdir()
    progress_path().write_bytes(b"\x00\xff")
    with pytest.warns(UserWarning, match=r"progress\.json\.damaged"):
        note_check("a", is_passed=True)
    assert progress_path().with_name("progress.json.damaged").read_bytes() == b"\x00\xff"


OTHERS = {
    "JSON": b'{"window": [1]}',
    "a list": b"[]",
    "text": b"export PATH=/bin\n",
    "odd": b'{"exercises": 3}',
}
"""Files of other programs."""


def not_ours(path: Path, kind: str) -> None:
    """Put something at the path of progress that is not labengine's."""
    path.parent.mkdir(parents=True)
    if kind == "a folder":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link to a folder":
        (path.parent / "course").mkdir()
        path.symlink_to("course")
    else:
        path.write_bytes(OTHERS[kind])


def listing(folder: Path) -> dict[str, object]:
    """Return what is below a folder, with the content of files."""
    found = [one for one in sorted(folder.rglob("*")) if ".lock" not in one.name]
    return {str(one): one.read_bytes() if one.is_file() else one.lstat().st_ino for one in found}


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to a folder", "JSON", "a list", "text", "odd"])
def test_what_is_not_ours_is_never_moved_and_this_is_said(
    progress_file: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_unsaved", [])
    not_ours(progress_file, kind)
    before = listing(progress_file.parent)
    exercise = labengine.exercise("why-blocks/slot")
    with pytest.warns(UserWarning, match="this process"):
        exercise.hint()
    note_check("a", is_passed=True)
    assert listing(progress_file.parent) == before
    assert labengine.progress()["a"].passed and str(progress_file) in labengine.progress().note


def test_a_link_stays_a_link_and_its_file_keeps_its_mode(progress_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "dropbox" / "mine.json"
    target.parent.mkdir()
    target.write_text("")
    target.chmod(0o640)
    progress_file.parent.mkdir()
    progress_file.symlink_to(target)
    note_check("a", is_passed=True)
    assert progress_file.is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert "a" in json.loads(target.read_text())["exercises"]


def test_a_bad_entry_is_left_out_and_kept(progress_file: Path) -> None:
    bad = {"bad": 1, "worse": {"tries": "many"}, "odd": {"runs": [["Mine", True]]}}
    bad |= {"negative": {"tries": -5}, "no number": {"score": float("nan")}, "endless": {"runs": [["Mine", 1e999]]}}
    bad |= {"huge": {"score": 10**400}, "below": {"hints": -1}}
    good = {"good": {"passed": True, "tries": 2}}
    progress_file.parent.mkdir()
    progress_file.write_text(json.dumps({"version": 1, "exercises": bad | good}))
    assert list(labengine.progress()) == ["good"] and "8 entries" in labengine.progress().note
    note_check("worse", is_passed=True)
    kept = json.loads(progress_file.read_text())["exercises"]
    untouched = ("bad", "odd", "good", "negative", "no number", "endless", "huge", "below")
    assert [repr(kept[name]) for name in untouched] == [repr((bad | good)[name]) for name in untouched]
    assert kept["worse"]["unreadable"] == {"tries": "many"} and labengine.progress()["worse"].passed


@pytest.mark.parametrize(("num_kernels", "num_exercises"), [(2, 20), pytest.param(3, 200, marks=pytest.mark.sweep)])
def test_kernels_that_write_at_the_same_time_lose_nothing(
    progress_file: Path, num_kernels: int, num_exercises: int
) -> None:
    script = (
        "import sys; from labengine.course.progress import note_check\n"
        "for number in range(int(sys.argv[2])): note_check(f'{sys.argv[1]}/{number}', is_passed=True)"
    )
    line = [sys.executable, "-W", "error", "-c", script]
    kernels = [subprocess.Popen([*line, str(number), str(num_exercises)]) for number in range(num_kernels)]
    assert [kernel.wait() for kernel in kernels] == [0] * num_kernels
    assert sum(one.passed for one in labengine.progress().values()) == num_kernels * num_exercises


def test_what_could_not_be_written_is_written_when_it_can_be(
    progress_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_unsaved", [])
    not_ours(progress_file, "a folder")
    with pytest.warns(UserWarning):
        note_check("a", is_passed=True)
    progress_file.rename(progress_file.with_name("notes"))
    note_check("a", is_passed=False)
    assert labengine.progress()["a"] == Attempts(passed=True, tries=2) and progress_file.is_file()


def test_a_folder_that_cannot_be_written_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(module.VARIABLE, str(blocked / "progress.json"))
    monkeypatch.setattr(module, "_unsaved", [])
    with pytest.warns(UserWarning, match="this process"):
        note_check("a", is_passed=True)
    note_check("a", is_passed=False)
    found = labengine.progress()
    assert found["a"] == Attempts(passed=True, tries=2)
    assert str(blocked) in found.note


def test_names_are_escaped() -> None:
    note_check("<script>x</script>", is_passed=True)
    assert "<script>" not in labengine.progress()._repr_html_()


def test_fields_of_a_newer_version_are_left_alone(progress_file: Path) -> None:
    progress_file.parent.mkdir(parents=True)
    entry = {"passed": True, "tries": 1, "mood": "good"}
    progress_file.write_text(json.dumps({"version": 2, "weather": "fine", "exercises": {"a": entry}}))
    assert labengine.progress()["a"] == Attempts(passed=True, tries=1)
    note_check("a", is_passed=False)
    note_check("b", is_passed=False)
    kept = json.loads(progress_file.read_text())
    assert (kept["version"], kept["weather"]) == (2, "fine")
    assert (kept["exercises"]["a"]["mood"], kept["exercises"]["a"]["tries"]) == ("good", 2)


def test_the_file_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(module.VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert progress_path() == tmp_path / "labengine" / "progress.json"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert progress_path() == Path.home() / ".local" / "share" / "labengine" / "progress.json"


def test_a_strip_shows_a_notebooks_questions_and_uncovers_its_picture() -> None:
    strip = labengine.progress("first-light")
    assert strip.names and {name.partition("/")[0] for name in strip.names} == {"first-light"}
    assert strip.num_passed == 0 and "0 of" in repr(strip) and "· middle" in repr(strip)
    note_check("first-light/middle", is_passed=True)
    note_check("first-light/after", is_passed=False)
    strip = labengine.progress("first-light")
    assert strip.num_passed == 1 and "✓ middle" in repr(strip) and "✗ after" in repr(strip)
    html = strip._repr_html_()
    assert html.count("<span") == len(strip.names) + 70 and "<script" not in html
    covered = html.count("#88888840")
    for name in strip.names:
        note_check(name, is_passed=True)
    strip = labengine.progress("first-light")
    assert strip.is_complete
    assert covered > 0 and "#88888840" not in strip._repr_html_()
    with pytest.raises(ConfigError, match="'first-light'"):
        labengine.progress("first-lights")
