"""%lab exercise: an exercise as a variable, and the list with the reader's progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from labengine.course.function_exercise import FunctionExercise
from labengine.course.progress import VARIABLE
from magic_notebook import Notebook


@pytest.fixture(autouse=True)
def progress_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "progress.json"))


def test_an_exercise_is_shown_and_kept(notebook: Notebook) -> None:
    assert "Fill in" in notebook.printed("%lab exercise why-blocks/slot")
    made = notebook.shell.user_ns["exercise"]
    assert isinstance(made, FunctionExercise)
    made.check(made.right_answer)
    said = notebook.printed("%lab exercise")
    assert "late-merge/keep-first" in said and "1 of 1 tried exercises passed" in said
    assert "late-merge" not in notebook.printed("%lab exercise why-blocks")


def test_an_unknown_one_is_refused(notebook: Notebook) -> None:
    assert "did you mean 'why-blocks/slot'" in notebook.refused("%lab exercise why-blocks/slots")
