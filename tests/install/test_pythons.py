"""`make setup` on the oldest and the newest Python that is there, and the core's tests in what it installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from checkout import ROOT

NAMES = ("python3.11", "python3.12", "python3.13", "python3.14")
TESTS = (
    "tests/core",
    "tests/check",
    "tests/project/test_laziness.py",
    "tests/differential/test_golden_nano.py",
    "tests/differential/test_golden_vllm.py",
)
VERSION = "import ensurepip, sys, venv; print(*sys.version_info[:3], sep='.')"

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(3600)]


def pythons() -> dict[str, Path]:
    """Return the interpreters on PATH and of pyenv that are new enough and can make an environment, by version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    places = [*os.get_exec_path(), *map(str, sorted(pyenv.glob("versions/*/bin")))]
    paths = [Path(found) for place in places for name in NAMES if (found := shutil.which(name, path=place))]
    found = {version: path for path in paths if (version := version_of(path))}
    return dict(sorted(found.items(), key=lambda one: tuple(map(int, one[0].split(".")))))


def version_of(python: Path) -> str:
    """Return its version; "" if it cannot make an environment, or does not run (pyenv's shims)."""
    return subprocess.run([python, "-c", VERSION], capture_output=True, text=True).stdout.strip()


def run(*command: str | Path) -> str:
    """Run without what the tests' own environment and make have set, and return what is printed."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_setup_and_the_core_on_the_oldest_and_the_newest_python(tmp_path: Path) -> None:
    found = [*pythons().items()]
    assert found, "not even the one that runs this"
    for version, interpreter in dict((found[0], found[-1])).items():
        environment = tmp_path / version
        run("make", "setup", f"PYTHON={interpreter}", f"VENV={environment}")
        python = environment / "bin" / "python"
        assert version_of(python) == version
        run(python, "-m", "pip", "check")
        assert " passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)
        print(f"Python {version}: set up, and the core's tests pass")
        shutil.rmtree(environment)
