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


def tests_against(package: Path, tests: str, project_root: Path) -> subprocess.CompletedProcess[str]:
    """Run them with `package` as labengine, whose kernels are compiled into a cache beside it."""
    paths = os.pathsep.join([str(package.parent), str(project_root / "widgets")])
    ours = {
        "PYTHONPATH": paths,
        "LABENGINE_CACHE": str(package.parent / "cache"),
        "TRITON_INTERPRET": str(int("triton_" in tests)),
    }
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
    return subprocess.run(command, cwd=project_root, env={**os.environ, **ours}, capture_output=True, text=True)


@pytest.fixture
def package(tmp_path: Path, project_root: Path) -> Path:
    """A copy of labengine."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    return Path(shutil.copytree(project_root / "labengine", tmp_path / "labengine", ignore=ignored))


@pytest.mark.parametrize("mutant", [*MUTANTS, *SINGLE], ids=lambda mutant: mutant.name)
def test_a_wrong_change_is_seen(mutant: Mutant, package: Path, project_root: Path) -> None:
    file = package / "engine" / mutant.file
    file.write_text(mutant.applied(file.read_text()))
    run = tests_against(package, f"tests/engine/{mutant.tests}", project_root)
    assert run.returncode == 1 and " failed" in run.stdout, run.stdout[-4000:] + run.stderr[-2000:]
    assert "error" not in run.stdout.splitlines()[-1], f"it could not even be tried: {run.stdout[-4000:]}"
