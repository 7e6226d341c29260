"""The package in a browser's Python, without a browser: Pyodide on Node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from tools.site import live_page as site
from waiting import PATIENCE


@pytest.mark.journey
def test_a_lab_steps_runs_and_answers(tmp_path: Path) -> None:
    site.copy_pyodide(tmp_path / "pyodide")
    site.write_packages(tmp_path / "labengine.zip")
    command = [sys.executable, "-m", "tools.node", "node", str(Path(__file__).with_name("smoke.js"))]
    command += [str(tmp_path / "pyodide"), str(tmp_path / "labengine.zip")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["refusal"].startswith("the model 'smollm2' needs torch, transformers,")
    assert found["why"].startswith("Why is #0 free?") and "Scheduler." in found["why"], "with the method that decided"
    assert found["runner"].startswith("labengine.ModelRunner needs torch, ")
    assert "does not end" in found["checked"]
    assert found["finding"].startswith("nano-vllm-2025-07 + AppendsWhenFull breaks a rule (slot)")
    figures = {name: found[name] for name in ("platform", "used", "finished", "violations", "verdict")}
    assert figures == {"platform": "emscripten", "used": 5, "finished": 2, "violations": 0, "verdict": True}
