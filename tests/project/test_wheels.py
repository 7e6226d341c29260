"""`make wheels`: wheels with kernels for each platform."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from checkout import ROOT
from engine.native.test_on_arm import COMPARISONS
from labengine.engine.native.compile import SOURCES
from labengine.engine.native.instruction_set import INSTRUCTION_SETS, machine
from tools.wheels import PLATFORMS, Platform, compiler, environment


def test_some_wheel_brings_each_set_of_instructions() -> None:
    brought = {name for platform in PLATFORMS for name in platform.processors}
    assert brought == {*INSTRUCTION_SETS}


@pytest.mark.sweep
@pytest.mark.timeout(3600)  # Zig compiles each target's C library too: ten minutes on an idle core
def test_they_are_built_and_this_machines_computes_the_same(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.wheels", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    for platform in PLATFORMS:
        (wheel,) = tmp_path.glob(f"labengine-*-py3-none-{platform.tag}.whl")
        names = [Path(name) for name in ZipFile(wheel).namelist() if name.endswith(".so")]
        assert {name.stem for name in names} == {*platform.processors}
    (plain,) = tmp_path.glob("labengine-*-py3-none-any.whl")
    assert not [name for name in ZipFile(plain).namelist() if name.endswith(".so")]
    if sys.platform == "linux":
        assert run.stdout.count("the same") >= 1


REFERENCES = ROOT / "tests" / "engine" / "native" / "against_references.c"
RUNNERS = {
    "x86_64-linux-gnu.2.28": [],
    "aarch64-linux-gnu.2.28": ["qemu-aarch64-static", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"],
    "x86_64-windows-gnu": ["wine"],
}
"""What runs a program for each target on a Linux machine of x86-64; there is nothing for macOS."""
BUILT = [(platform, isa) for platform in PLATFORMS if platform.target in RUNNERS for isa in platform.processors]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Zig's compiler."""
    return environment(tmp_path_factory.mktemp("tools"))


@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.skipif(machine() != "x86_64" or sys.platform != "linux", reason="what runs them is for Linux on x86-64")
@pytest.mark.parametrize(("platform", "isa"), BUILT, ids=lambda value: getattr(value, "tag", value))
def test_what_the_wheels_compiler_makes_computes(
    platform: Platform, isa: str, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparisons of tests/engine/native, with the compiler and flags that the wheels' kernels are made with."""
    runner = RUNNERS[platform.target]
    if runner and shutil.which(runner[0]) is None:
        pytest.skip(f"there is no {runner[0]} (make emulators installs it on Debian)")
    if not runner and (lacking := INSTRUCTION_SETS[isa].lacking()):
        pytest.skip(f"this processor lacks {', '.join(lacking)}")
    program = tmp_path / "against_references.exe"
    command = compiler(tools, platform, isa)
    command = [word for word in command if word not in ("-shared", "-fPIC")]
    subprocess.run([*command, "-w", "-I", str(SOURCES), str(REFERENCES), "-o", str(program), "-lm"], check=True)
    monkeypatch.setenv("WINEPREFIX", str(tools.parents[1] / "wine"))
    monkeypatch.setenv("WINEDEBUG", "-all")
    run = subprocess.run([*runner, str(program)], capture_output=True, text=True)
    assert run.returncode == 0 and f"{COMPARISONS} comparisons" in run.stdout, run.stdout[-500:] + run.stderr[-500:]
