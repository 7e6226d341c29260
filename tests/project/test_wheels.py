"""`make wheels`: wheels with kernels for each platform."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from checkout import ROOT
from labengine.engine.native.instruction_set import INSTRUCTION_SETS
from labengine.engine.native.prebuilt import prebuilt_name
from tools.wheels import PLATFORMS, Platform


def test_some_wheel_brings_each_set_of_instructions() -> None:
    brought = {name for platform in PLATFORMS for name in platform.processors}
    assert brought == {*INSTRUCTION_SETS} - {"scalar"}


def images_for(platform: Platform) -> set[str]:
    return {prebuilt_name(INSTRUCTION_SETS[name], platform.system) for name in platform.processors}


@pytest.mark.sweep
def test_they_are_built_and_this_machines_computes_the_same(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tools.wheels", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    for platform in PLATFORMS:
        (wheel,) = tmp_path.glob(f"labengine-*-py3-none-{platform.tag}.whl")
        names = [Path(name) for name in ZipFile(wheel).namelist() if name.endswith(".so")]
        assert {name.stem.rpartition("-")[0] for name in names} == images_for(platform)
    (plain,) = tmp_path.glob("labengine-*-py3-none-any.whl")
    assert not [name for name in ZipFile(plain).namelist() if name.endswith(".so")]
    if sys.platform == "linux":
        assert run.stdout.count("the same") >= 1
