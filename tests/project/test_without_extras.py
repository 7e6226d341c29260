"""Without the extras `models` and `lab`, everything simulated works; what does not says what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from checkout import ROOT
from labengine.core.editions import EDITIONS
from labengine.system.extras import EXTRAS, how_to_install
from waiting import PATIENCE

ROOMS = ("tests/core", "tests/check", "tests/widgets/words", "tests/widgets/why")


def run_without_extras(*arguments: str) -> str:
    """Run this Python, in which no package of an extra can be imported, and return what it prints."""
    paths = [str(ROOT / folder) for folder in ("tests/support", "", "widgets")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_extras_are_those_of_pyproject() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    module_of = {"pyzmq": "zmq", "prometheus-client": "prometheus_client"}
    names = {extra: [Requirement(line).name for line in optional[extra]] for extra in EXTRAS}
    brought = {extra: tuple(module_of.get(name, name) for name in names[extra]) for extra in EXTRAS}
    assert brought == EXTRAS


SIMULATED = """
import without_extras
import labengine
from labengine.core.editions import EDITIONS
from labengine_widgets.feed.payload import json_bytes

for edition in EDITIONS:
    with labengine.Lab("simulated", num_blocks=24, block_size=4, edition=edition) as lab:
        for _ in "AB":
            lab.add("Once upon a time there was a king who had a daughter", max_tokens=4)
        lab.show()
        lab.step()
        lab.start()
        lab.pause()
        lab.run()
        print(edition, lab.why(block=0))
        lab.export_html(f"{folder}/{edition}.html")
        print("charts", lab.view("charts").arrangement["views"])
with labengine.Lab("simulated", num_blocks=8, block_size=4, external=f"{folder}/kv") as lab:
    lab.generate(["a b c d e f g h i"] * 2, max_tokens=2)
    print(lab.external.describe())
print("json", json_bytes({"text": "\\ud800", "number": 2**70}))
print("verdict", labengine.bug("nano-vllm-219").verdict().reproduced)
print("search", labengine.find("labengine", seconds=1, max_workloads=1, workers=2, show_progress=False).kinds)
"""


@pytest.mark.journey
def test_a_simulated_lab_does_everything(tmp_path: Path) -> None:
    printed = run_without_extras("-c", f"folder = {str(tmp_path)!r}\n{SIMULATED}")
    assert "search ('rule', 'raises'" in printed
    assert printed.count("charts ['charts']") == len(EDITIONS)
    assert "verdict True" in printed and 'json b\'{"text":"\\\\ud800"' in printed
    why = r"^[\w.+-]+ Why is #0(?: free|'s ref count 1)\?"  # a tree still refers to it
    assert len(re.findall(why, printed, re.MULTILINE)) == len(EDITIONS), printed
    assert len(list(tmp_path.glob("*.html"))) == len(EDITIONS) and len(list(tmp_path.glob("kv/**/*.safetensors"))) == 2


REFUSED = """
import without_extras
import labengine

def refused(call):
    try:
        call()
    except labengine.ConfigError as error:
        print("refused:", error)

refused(lambda: labengine.Lab("smollm2"))
refused(lambda: labengine.Lab("./my_model"))
refused(lambda: labengine.model_path("smollm2"))
refused(lambda: labengine.bug("nano-vllm-190").verdict())
with labengine.Lab("simulated", num_blocks=8) as lab:
    refused(lab.events_frame)
"""


def test_what_needs_an_extra_says_which_in_one_sentence(tmp_path: Path) -> None:
    refusals = [line for line in run_without_extras("-c", REFUSED).splitlines() if line.startswith("refused: ")]
    models, lab = (how_to_install(extra) for extra in ("models", "lab"))
    assert [line.count(models) for line in refusals] == [1, 1, 1, 1, 0], refusals
    assert [line.count(lab) for line in refusals] == [0, 0, 0, 0, 1], refusals
    assert refusals[0].startswith("refused: the model 'smollm2' needs torch, transformers,")
    assert "; without it, Lab('simulated')" in refusals[0]


VERDICTS = """
import without_extras
import labengine
from labengine.scenarios.tiny_model import TinyModelScenario

for scenario in labengine.bugs():
    if not isinstance(scenario, TinyModelScenario):
        print(scenario.id, "verdict", scenario.verdict().reproduced)
"""


@pytest.mark.sweep
def test_every_scenario_without_a_model_is_judged() -> None:
    judged = run_without_extras("-c", VERDICTS).splitlines()
    assert len(judged) > 40 and [line for line in judged if not line.endswith(" verdict True")] == []


@pytest.mark.sweep
def test_the_core_the_checks_and_the_words_need_no_extra() -> None:
    print(run_without_extras("-m", "pytest", "-q", "-p", "without_extras", "-p", "no:cacheprovider", *ROOMS))
