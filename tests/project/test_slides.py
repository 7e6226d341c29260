"""The lecturers' slides: one file with its pictures in it, nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from checkout import ROOT
from tools import slides


def test_the_slides_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "slides.html"
    assert slides.main([str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    texts = slides.SOURCE.read_text(encoding="utf-8")
    assert page.count("<section>") == texts.count("\n---\n") + 1 > 10
    sources = re.findall(r'src="(.{11})', page)
    assert len(sources) == texts.count("![") > 3 and set(sources) <= {"data:image/"}
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert page.count("<table>") == len(re.findall(r"^\|[-|]+\|$", texts, re.MULTILINE))


def test_without_a_file_it_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert slides.main([]) == 2
    assert "OUT.html" in capsys.readouterr().err


def test_make_writes_them() -> None:
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # make test is a make, too
    make = ["make", "--dry-run", "slides", "SLIDES=wall.html"]
    recipe = subprocess.run(make, cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout.splitlines()
    assert any(line.endswith("/python -m tools.slides wall.html") for line in recipe)
