"""Scripts that use the tests' modules find them, and `make test` and `make test-fast` their files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT

SCRIPTS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("benchmarks", "docs")
    for path in sorted((ROOT / folder).glob("*.py"))
    if '/ "tests"' in path.read_text()
]
LOAD = "import runpy, sys; sys.path[0] = sys.argv[2]; runpy.run_path(sys.argv[1], run_name='imported')"


def test_some_scripts_use_the_tests_modules() -> None:
    assert "docs/pictures.py" in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_scripts_imports_are_found(script: str) -> None:
    """As `python SCRIPT` finds them: its folder is the first of the path, and the tests' folders are not on it."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))
    folder = str((ROOT / script).parent)
    command = [sys.executable, "-c", LOAD, script, folder]
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_make_test_runs_the_part_that_is_named(tmp_path: Path) -> None:
    """On a copy: make removes the stamp of an environment that was made in another folder."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = [f"--old-file={name}" for name in ("setup", "models", "browser")]
    command = ["make", "-n", "--no-print-directory", *done, "test", "TESTS=tests/session"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == "tests/session"


def test_every_file_that_make_test_fast_runs_exists() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\ntest-fast:")[1].split("\n\n")[0]
    paths = [word for word in recipe.split() if word.startswith("tests/")]
    assert paths and all(any(ROOT.glob(path)) for path in paths)
