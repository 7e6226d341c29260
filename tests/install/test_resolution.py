"""Every platform, Python and build of torch has a solution, made only of wheels and of the pinned versions."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from checkout import ROOT
from install.pins import CONSTRAINTS, pins
from install.wheels import write_wheel
from tools.lock import EXTRAS

PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin", "x86_64-pc-windows-msvc")
PYTHONS = ("3.11.2", "3.12", "3.13", "3.14")  # 3.11.2 is Debian 12's
OF_TORCH = ("nvidia-", "cuda-")
"""What torch's CUDA build brings along and pins by itself."""

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def cpu_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in for the CPU build of torch: the same requirements without CUDA's libraries."""
    folder = tmp_path_factory.mktemp("cpu-build")
    ours = [line for line in requires("torch") or [] if "extra ==" not in line]
    needs = [line for line in ours if not line.startswith((*OF_TORCH, "triton"))]
    write_wheel(folder, "torch", f"{pins()['torch'][0].version}+cpu", needs)
    return folder


def resolved(platform: str, python: str, *flags: str) -> dict[str, str]:
    """Return name -> version of all that would be installed, with the public index and no settings of this machine."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--no-config", "--quiet", "--no-header", "--no-annotate"]
    command += ["pyproject.toml", *(f"--extra={extra}" for extra in EXTRAS), f"--constraint={CONSTRAINTS}"]
    command += ["--only-binary=:all:", "--index-strategy=unsafe-best-match"]
    command += [f"--python-platform={platform}", f"--python-version={python}", *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    environment["MACOSX_DEPLOYMENT_TARGET"] = "14.0"  # torch is made for no older one
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(line.partition(" ;")[0].strip().split("==") for line in done.stdout.splitlines())


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("build", ["index", "cpu"])
def test_there_is_one_solution_and_it_is_pinned(build: str, platform: str, python: str, cpu_build: Path) -> None:
    found = resolved(platform, python, *([f"--find-links={cpu_build}"] if build == "cpu" else []))
    of_torch = {name for name in found if name.startswith(OF_TORCH)}
    assert bool(of_torch) == (build == "index" and "linux" in platform)
    assert found["torch"].endswith("+cpu") == (build == "cpu")
    loose = {
        name: version
        for name, version in found.items()
        if name not in of_torch and version.partition("+")[0] not in [pin.version for pin in pins().get(name, [])]
    }
    assert loose == {}


def test_the_lock_is_what_make_lock_would_write(tmp_path: Path) -> None:
    for name in ("constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    command = [sys.executable, "-m", "tools.lock"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert (tmp_path / "constraints.txt").read_text() == CONSTRAINTS.read_text()
