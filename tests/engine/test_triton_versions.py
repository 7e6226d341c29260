"""The kernels compile with the oldest Triton that the extra `gpu` allows, and with the newest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.needs_triton import needs_triton

needs_triton()

OLDEST, NEWEST = "triton==3.2.0", "triton>=3.9"


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kernels_compile(version: str, project_root: Path, tmp_path: Path) -> None:
    """The sample of test_triton_compiles.py, in a process that imports that Triton before the environment's own."""
    folder = tmp_path / "triton"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), version]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{version} cannot be installed: {done.stderr[-300:]}")
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not sweep",
         "tests/engine/test_triton_compiles.py"],
        cwd=project_root,
        env={**os.environ, "PYTHONPATH": str(folder), "TRITON_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-4000:]
    assert " passed" in found.stdout and " skipped" not in found.stdout
