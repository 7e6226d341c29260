"""Live: the finder on nano-vLLM's own scheduler finds issue 219 again.

LABENGINE_NANO_VLLM=path/to/nano-vllm LABENGINE_NANO_PYTHON=path/to/python pytest tests/differential/test_find_nano.py

The interpreter, by default this one, needs xxhash and numpy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from differential.nano_upstream import VARIABLE, find_checkout
from labengine.finder.engines.search import find_in_engine
from waiting import PATIENCE

MAX_WORKLOADS = 300


def test_a_lost_block_is_found(tmp_path: Path) -> None:
    """The second of two equal blocks takes the place in the map, and is given away: a later request finds neither."""
    checkout = find_checkout()
    python = os.environ.get("LABENGINE_NANO_PYTHON", sys.executable)
    if checkout is None or subprocess.run([python, "-c", "import numpy, xxhash"], capture_output=True).returncode:
        pytest.skip(f"set {VARIABLE} to a checkout of nano-vLLM, and LABENGINE_NANO_PYTHON to a Python with xxhash")
    found = find_in_engine("nano-vllm", python, seconds=PATIENCE, max_workloads=MAX_WORKLOADS, checkout=str(checkout))
    print(found)
    (finding,) = found.findings
    assert finding.kind == "worse" and found.num_conforming + 1 == found.num_workloads
    script = tmp_path / "script.py"
    script.write_text(finding.to_script())
    run = subprocess.run(
        [python, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, VARIABLE: str(checkout)},
    )
    assert run.returncode == 1 and "SYMPTOM: request" in run.stderr
