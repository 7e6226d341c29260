"""Live: the finder on vLLM 0.32's own schedulers; broken copies are found, and the printed scripts show them.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_find_vllm.py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from differential import vllm_streams, vllm_upstream_broken_text
from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from labengine.finder.engines.scopes import vllm_scopes
from labengine.finder.engines.search import find_in_engine
from waiting import PATIENCE

NUM_WORKLOADS = 200
MAX_SECONDS = 60


@pytest.fixture(scope="module")
def python() -> str:
    found = named_interpreter()
    if found is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}; the judging was tested on recorded streams")
    return found


def output_of(python: str, script: str, path: Path) -> tuple[int, str]:
    """Run a script in the engine's interpreter, with nothing of labengine's in reach."""
    path.write_text(script)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-I", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, cwd=path.parent)
    return run.returncode, run.stdout + run.stderr


def test_vllm_conforms(python: str) -> None:
    found = find_in_engine("vllm", python, seconds=PATIENCE, max_workloads=NUM_WORKLOADS, seed=3, with_connector=False)
    print(found)
    assert not found and found.num_conforming == found.num_workloads == NUM_WORKLOADS


def test_a_failed_load_waits_for_ever_in_this_release(python: str, tmp_path: Path) -> None:
    """The request reserves blocks for the load that has failed, and then lacks them itself: docs/engine_bugs.md."""
    scopes = [scope for scope in vllm_scopes() if scope.transfers == (1, 0, 2, 0)]
    found = find_in_engine("vllm", python, seconds=PATIENCE, scopes=scopes)
    (finding,) = found.findings
    assert finding.kind == "liveness" and len(finding.case.workload) <= 4
    status, said = output_of(python, finding.to_script(), tmp_path / "script.py")
    assert status == 1 and "SYMPTOM: after 400 more steps" in said


@pytest.mark.parametrize("name", vllm_streams.BROKEN_RUNS)
def test_broken_copies_are_found_and_shown(name: str, python: str, tmp_path: Path) -> None:
    patch = tmp_path / "patch.py"
    patch.write_text(vllm_upstream_broken_text.patch_of(name))
    found = find_in_engine("vllm", python, seconds=PATIENCE, patch=str(patch))
    print(found)
    (finding,) = found.findings
    assert finding.seconds < MAX_SECONDS and len(finding.case.workload) <= 5
    status, said = output_of(python, finding.to_script(), tmp_path / "script.py")
    assert status == 1 and ("SYMPTOM: " if finding.kind != "raises" else f"\n{finding.finding.rule}") in said
