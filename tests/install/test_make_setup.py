"""`make setup` where an environment cannot be made, or was made by halves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checkout import ROOT

WITHOUT_VENV = """#!/bin/sh
case "$*" in --version) echo Python 3.11.2 ;; "-m venv"*) exit 1 ;; esac
"""
WITHOUT_PIP = """#!/bin/sh
case "$*" in "-m pip"*) echo No module named pip >&2; exit 1 ;; esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("is_there", [False, True])
def test_an_environment_without_pip_is_made_again_and_what_it_needs_is_named(is_there: bool, tmp_path: Path) -> None:
    """Debian's python3 leaves such a one behind where python3-venv is missing."""
    if is_there:
        script(tmp_path / "venv" / "bin" / "python", WITHOUT_PIP)
    python = script(tmp_path / "python3", WITHOUT_VENV)
    make = ["make", "setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "setup 1/4: making" in done.stdout and "apt-get install python3-venv" in done.stdout
