"""A wrong change to what computes is seen by the tests: each is made in a copy of the package, and they run against it.

Alone: `pytest -m sweep tests/engine/mutations -k NAME`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.mutations.mutants import MUTANTS, Mutant
from engine.mutations.single import SINGLE

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1200)]


def run_tests(package: Path, mutant: Mutant, project_root: Path) -> subprocess.CompletedProcess[str]:
    """Run the mutant's tests with `package` as labengine; its kernels are compiled into a cache beside it."""
    paths = os.pathsep.join([str(package.parent), *(str(project_root / half) for half in ("widgets", "vllm_tap"))])
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_INTERPRET": str(int("triton_" in mutant.tests))}
    if "csrc" in mutant.file:
        environment["LABENGINE_CACHE"] = str(package.parent / "cache")
    alone = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "pythonpath=tests tests/support",
    ]  # not the project's own labengine
    command = [sys.executable, "-P", "-m", "pytest", *alone, *shlex.split(f"tests/engine/{mutant.tests}")]
    return subprocess.run(command, cwd=project_root, env=environment, capture_output=True, text=True)


@pytest.fixture
def package(tmp_path: Path, project_root: Path) -> Path:
    """A copy of labengine."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    return Path(shutil.copytree(project_root / "labengine", tmp_path / "labengine", ignore=ignored))


@pytest.mark.parametrize("mutant", [*MUTANTS, *SINGLE], ids=lambda mutant: mutant.name)
def test_a_wrong_change_is_seen(mutant: Mutant, package: Path, project_root: Path) -> None:
    file = package / "engine" / mutant.file
    file.write_text(mutant.applied(file.read_text()))
    run = run_tests(package, mutant, project_root)
    assert run.returncode == 1 and " failed" in run.stdout, run.stdout[-4000:] + run.stderr[-2000:]
    assert "error" not in run.stdout.splitlines()[-1], f"it could not even be tried: {run.stdout[-4000:]}"
