"""labengine course --solutions: every exercise with its hints and its solution, escaped; no progress is noted."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest

import labengine
from labengine.__main__ import main
from labengine.course.exercise import known_exercise
from labengine.course.words import exercise_names


def test_every_exercise_is_printed_with_its_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "solutions.html"
    assert main(["course", "--solutions", str(path)]) == 0
    assert f"{len(exercise_names())} exercises" in capsys.readouterr().out
    page = path.read_text(encoding="utf-8")
    assert page.count("<article>") == len(exercise_names())
    for name in exercise_names():
        assert f": {name}</h3>" in page
    for name in ("hunt/registrable", "why-blocks/num-free", "off-by-one/first-wrong"):
        assert f"<pre>{escape(known_exercise(name).solution_text())}</pre>" in page
    assert "<script" not in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    in_a_lab = ("Predict, then reveal", "Find the first wrong event")
    assert page.count("<figure>") == sum(known_exercise(name).kind in in_a_lab for name in exercise_names())
    assert len(labengine.progress()) == 0, "to print a solution is not to have seen it"


def test_without_anything_to_do_it_says_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course"]) == 2
    assert "--solutions FILE.html" in capsys.readouterr().err
    assert main(["course", "--solutions", str(tmp_path / "no" / "folder.html")]) == 2
    assert "folder.html" in capsys.readouterr().err
