""" "Interpreters" that drive engines with lower limits, and one whose engine is a fake vLLM."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from checkout import ROOT

DRIVE = """
import sys
sys.path[:0] = [{inside!r}, {support!r}]
import copies, driver
driver.WORKLOAD_S, driver.looks.NUM_ASLEEP = {seconds}, 10
{more}
(copies if len(sys.argv) > 2 else driver).main(*sys.argv[1:])
"""
STUB = """
import stub_engine
sys.modules["vllm_scheduler"] = stub_engine
driver.memory_limit.MEMORY_BYTES = 2**26
"""


def stub_python(folder: Path, seconds: float = 2.0, more: str = "") -> str:
    """Return the path of an interpreter for `labengine.drive("vllm", python)`, which drives the fake vLLM.

    seconds: limit of a call. more: Python that runs first.
    """
    stub = f"STUB_OF_VLLM={ROOT / 'tests' / 'support' / 'fake_vllm.py'}"
    return quick_python(folder, f"{sys.executable} -S", seconds, STUB + more, f"export {stub}")


def quick_python(folder: Path, python: str, seconds: float, more: str = "", setting: str = "") -> str:
    """Return the path of an interpreter whose driver limits a call to these seconds.

    python: the interpreter itself. more: Python that runs before the driver. setting: shell for the environment.
    """
    inside, support = ROOT / "labengine" / "driven" / "inside", ROOT / "tests" / "support"
    code, file = folder / "drive.py", folder / "python"
    code.write_text(DRIVE.format(inside=str(inside), support=str(support), seconds=seconds, more=more))
    drives = f'case "$1" in *inside/driver.py | *inside/copies.py) shift; exec {python} {code} "$@";; esac'
    file.write_text("\n".join(("#!/bin/sh", setting, drives, f'exec {python.split()[0]} "$@"', "")))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)
