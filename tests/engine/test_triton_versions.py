"""The kernels compile, and need no more than ptxas's limits allow, with the oldest Triton of the extra `gpu` and the
newest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.needs_triton import needs_triton

needs_triton()

OLDEST, NEWEST = "triton==3.2.0", "triton>=3.9"
REPORTS = "test_registers_and_shared_memory and half"
"""Of the sweep of test_triton_compiles.py, the precision that is served; docs/benchmarks.md tells what differs."""

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with that Triton, to be imported before the environment's own."""
    folder = tmp_path_factory.mktemp("triton")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), request.param]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{request.param} cannot be installed: {done.stderr[-300:]}")
    return folder


@pytest.mark.parametrize("selected", [("-m", "not sweep"), ("-k", REPORTS)], ids=["sample", "ptxas reports"])
def test_kernels_compile(selected: tuple[str, str], installed: Path, project_root: Path, tmp_path: Path) -> None:
    """The tests of test_triton_compiles.py, in a process that imports that Triton."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *selected]
    found = subprocess.run(
        [*command, "tests/engine/test_triton_compiles.py"],
        cwd=project_root,
        env={**os.environ, "PYTHONPATH": str(installed), "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-4000:]
    assert " passed" in found.stdout and " skipped" not in found.stdout
