"""Code that needs a GPU calls what there is: without a card no other test runs it, and `make lint` reads no tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OUTDATED = ("call-arg", "call-overload", "attr-defined", "name-defined")
"""mypy's codes for a name or a signature that has changed. Its other findings there are about annotations."""
PATHS = (".", "tests", "tests/support", "benchmarks/gpu", "widgets", "vllm_tap")


def files_for_a_gpu(root: Path) -> list[Path]:
    marked = [path for path in (root / "tests").rglob("test_*.py") if "pytest.mark.gpu" in path.read_text()]
    return sorted({*marked, *root.glob("tests/engine/triton_*.py"), *root.glob("benchmarks/gpu/*.py")})


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_calls_match_signatures(project_root: Path) -> None:
    files = files_for_a_gpu(project_root)
    names = {path.name for path in files}
    assert names >= {"test_cuda.py", "test_sampler.py", "test_overlap.py", "triton_sampler_cases.py", "engines.py"}
    options = ["--explicit-package-bases", "--implicit-reexport", "--cache-dir", ".mypy_cache/on_a_gpu"]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(str(project_root / path) for path in PATHS)}
    child = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=project_root, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert f"{len(files)} source files" in child.stdout, child.stdout + child.stderr
    codes = tuple(f"[{code}]" for code in OUTDATED)
    assert [line for line in child.stdout.splitlines() if line.endswith(codes)] == []
