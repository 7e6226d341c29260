"""The kernels' own tests, and whole models beside transformers, with each set of instructions that runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labengine.engine.native.instruction_set import INSTRUCTION_SETS

TESTS = Path(__file__).parents[2]
FILES = ("native/test_attention.py", "native/test_program.py", "native/test_rowwise.py", "native/test_linear.py")


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_the_kernels_with_each_set_of_instructions(name: str) -> None:
    asked = INSTRUCTION_SETS[name]
    if lacking := asked.lacking():
        pytest.skip(f"this processor lacks {', '.join(lacking)}")
    files = [str(TESTS / "engine" / file) for file in (*FILES, "test_against_transformers.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not sweep", *files]
    run = subprocess.run(
        command, env={**os.environ, "LABENGINE_CPU": asked.name}, cwd=TESTS.parent, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:]
