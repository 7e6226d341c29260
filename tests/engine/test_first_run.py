"""The first run on a device, as far as it goes without one: its stages select tests, and its checks can fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import device_checks
import torch
from first_run import PYTEST, Stage, report, run_first, stages
from workload import make_model

from labengine import StaticRunner

EVERY_GPU_TEST = "all gpu tests"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    make_model(directory, device_checks.TINY)
    return directory


def test_kernels_come_before_models_and_figures_last() -> None:
    names = [stage.name for stage in stages()]
    assert names[:3] == ["kernels", "sampler", "compute-sanitizer on the kernels"]
    assert names.index("tiny models") < names.index("graphs") < names.index(EVERY_GPU_TEST) < names.index("loads")
    assert [name.removeprefix("figures: ") for name in names[-4:]] == ["limits", "kernels", "workload", "profile"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", [stage.name for stage in stages(figures=False) if "pytest" in stage.command])
def test_a_stages_tests_exist(name: str) -> None:
    (stage,) = [stage for stage in stages() if stage.name == name]
    command = stage.command[stage.command.index(sys.executable) :]
    done = subprocess.run([*command, "--collect-only"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def python(name: str, code: str, needs: str | None = None, minutes: float = 1) -> Stage:
    return Stage(name, (sys.executable, "-c", code), minutes, needs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests of a GPU run where there is one")
def test_a_stage_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    selected = [
        python("good", "print('3 | passed')"),
        python("bad", "print('one failed'); raise SystemExit(9)"),
        Stage("skipped", (*PYTEST, "-m", "gpu", "tests/engine/test_sampler.py"), 10),
        python("absent", "", needs="no-such-sanitizer"),
        python("endless", "import time; print('begun', flush=True); time.sleep(60)", minutes=0.05),
        python("last", "print('still run')"),
    ]
    log, said = tmp_path / "log", []
    outcomes = run_first(selected, log, said.append)
    assert [(outcome.verdict, outcome.words) for outcome in outcomes] == [
        ("passed", "3 | passed"),
        ("failed (9)", "one failed"),
        ("failed (nothing was tested)", outcomes[2].words),
        ("left out", "no-such-sanitizer is not installed"),
        ("failed (no end after 0.05 minutes)", "begun"),
        ("passed", "still run"),
    ]
    assert " skipped" in outcomes[2].words
    assert len(said) == 12 and log.read_text().count("\n===== ") == 5
    assert "| good | passed | 0 | 3 / passed |" in report(outcomes)


def test_checks_on_a_cpu(model: Path) -> None:
    assert device_checks.loads(model, "cpu", 2).startswith("2 loads")
    assert device_checks.threads(model, ("cpu", "cpu")) == "a background run on cpu gives the tokens of cpu"
    words = device_checks.wide_tables(model, "cpu", rows=9, width=600, runner=StaticRunner)
    assert words.startswith("9 rows with tables of 600 columns")


def test_checks_fail() -> None:
    mib = 2**20
    device_checks.require_no_growth([100 * mib] * 5 + [110 * mib] * 35)
    with pytest.raises(AssertionError, match="memory grew by 35 MiB"):
        device_checks.require_no_growth([(100 + load) * mib for load in range(40)])
    with pytest.raises(AssertionError, match="1 of 2 answers differ, first that of request 1"):
        device_checks.require_equal([(1,), (2,)], [(1,), (3,)])


def test_decodes_that_are_not_recorded_are_no_check(model: Path) -> None:
    with pytest.raises(AssertionError, match="not recorded"):
        device_checks.wide_tables(model, "cpu", rows=2, width=100)
