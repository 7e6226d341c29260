"""Live: upstream's own code on the scenarios' requests, as it was recorded.

LABENGINE_NANO_VLLM=nano-vllm LABENGINE_MINI_SGLANG=mini-sglang LABENGINE_SGLANG=wheel
LABENGINE_VLLM_PYTHON=vllm/bin/python pytest tests/differential/test_scenarios_upstream.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from record_scenarios import RECORDED, TESTS


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("LABENGINE_NANO_VLLM", "--nano-vllm"),
        ("LABENGINE_MINI_SGLANG", "--mini-sglang"),
        ("LABENGINE_SGLANG", "--sglang"),
        ("LABENGINE_VLLM_PYTHON", "--vllm"),
    ],
)
def test_the_runs_are_those_that_were_recorded(variable: str, option: str, tmp_path: Path) -> None:
    if not os.environ.get(variable):
        pytest.skip(f"set {variable} to run upstream's code; its recorded rows are held against the columns")
    kept = RECORDED.read_text()
    try:
        command = [sys.executable, str(TESTS / "record_scenarios.py"), option, os.environ[variable]]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert RECORDED.read_text() == kept
    finally:
        RECORDED.write_text(kept)
