"""An "interpreter" that drives the fake vLLM of stub_engine.py, whichever engine it is asked to drive."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from checkout import ROOT

DRIVE = """
import sys
sys.path[:0] = [{inside!r}, {support!r}]
import driver, stub_engine
sys.modules["vllm_scheduler"] = stub_engine
driver.WORKLOAD_S, driver.looks.NUM_ASLEEP, driver.memory_limit.MEMORY_BYTES = {seconds}, 10, 2**26
driver.main("vllm")
"""


def stub_python(folder: Path, seconds: float = 2.0) -> str:
    """Return the path of an interpreter for `labengine.drive("vllm", python)`. seconds: limit of a call."""
    support, inside = ROOT / "tests" / "support", ROOT / "labengine" / "driven" / "inside"
    code, python = folder / "drive.py", folder / "python"
    code.write_text(DRIVE.format(inside=str(inside), support=str(support), seconds=seconds))
    lines = (
        "#!/bin/sh",
        f"export STUB_OF_VLLM={support / 'fake_vllm.py'}",
        f'[ "$2" ] && exec {sys.executable} -S {code}',
        f'exec {sys.executable} "$@"',
    )
    python.write_text("\n".join(lines) + "\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return str(python)
