"""The first run on a device, as far as it goes without one: its stages select tests, and its checks can fail."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import device_checks
import torch
from first_run import KERNEL_CASES, PYTEST, Stage, report, run_first, stages
from workload import make_model

from labengine import ModelRunner, StaticRunner
from labengine.core.step_plan import StepPlan
from labengine.engine import model_runner
from labengine.engine.step_tensors import StepTensors

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


def test_the_sanitizer_runs_the_cases_of_every_kernel() -> None:
    """The cases of complete models launch the same kernels, and take too long under it."""
    found = {path.name for path in (ROOT / "tests" / "engine").glob("triton_*_cases.py")}
    models = {f"triton_{name}_cases.py" for name in ("model", "ops_models", "graphs")}
    assert {Path(case).name for case in KERNEL_CASES} == found - models


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
        python("for two", "print('left out: there is one GPU')"),
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
        ("left out", "there is one GPU"),
        ("failed (no end after 0.05 minutes)", "begun"),
        ("passed", "still run"),
    ]
    assert " skipped" in outcomes[2].words
    assert len(said) == 14 and log.read_text().count("\n===== ") == 6
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


# -- a step without memory ---------------------------------------------------------------------------------------------


class FullMemory:
    """Stands in for a device whose memory is taken: steps fail as long as the ballast is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: int = 2) -> None:
        self._pieces = pieces
        self._ballast: list[torch.Tensor] = []
        self.num_failures = 0
        monkeypatch.setattr(ModelRunner, "step_tensors", self._guarded(ModelRunner.step_tensors))

    def fill(self, device: str) -> list[torch.Tensor]:
        self._ballast = [torch.empty(1, device=device) for _ in range(self._pieces)]
        return self._ballast

    def _guarded(self, step_tensors: Any) -> Any:
        def guarded(runner: ModelRunner, plan: StepPlan) -> StepTensors:
            if self._ballast:
                self.num_failures += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            found: StepTensors = step_tensors(runner, plan)
            return found

        return guarded


def without_memory(model: Path, memory: FullMemory) -> str:
    return device_checks.full_memory(model, "cpu", length=90, num_blocks=32, fill=memory.fill)


def test_a_step_without_memory_is_taken_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FullMemory(monkeypatch)
    words = without_memory(model, memory)
    assert memory.num_failures == 1
    assert "32 blocks" in words and "; without memory: cpu has too little memory for this step" in words


def test_the_check_of_full_memory_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="a prompt of 90 tokens was computed without memory"):
        without_memory(model, FullMemory(monkeypatch, pieces=0))
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="no advice in: CUDA out of memory"):
        patch.setattr(model_runner, "AdviceWhenFull", lambda kv: nullcontext())
        without_memory(model, FullMemory(patch))
    tokens = iter([[(1,)]])
    monkeypatch.setattr(device_checks, "tokens_of", lambda lab, lengths: next(tokens))
    with pytest.raises(AssertionError, match="1 of 1 answers differ"):
        without_memory(model, FullMemory(monkeypatch))


# -- figures -----------------------------------------------------------------------------------------------------------


def command() -> ModuleType:
    """The command benchmarks/gpu."""
    path = ROOT / "benchmarks" / "gpu" / "__main__.py"
    spec = importlib.util.spec_from_file_location("benchmarks_gpu", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command, with limits that need no GPU and without a model."""
    module = command()
    limits = {"gpu": "none", "torch": "2", "copied_bytes_per_second": 1e12, "matmul_flops_per_second": 1e14}
    monkeypatch.setattr(module, "asked", lambda command, environment: limits if "limits" in command[0] else None)
    monkeypatch.setattr(module, "printed", lambda command, environment: None)
    monkeypatch.setattr(module, "made_model", lambda directory: 2**30)
    return module


def run_parts(benchmark: ModuleType, parts: str, model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return what the command exits with; None: 0."""
    monkeypatch.setattr(sys, "argv", ["gpu", "--only", parts, "--quick", "--model-dir", str(model_dir)])
    try:
        benchmark.main()
    except SystemExit as end:
        return end.code
    return None


def workload(about: str) -> dict[str, Any]:
    names = ["labengine, blocks of 16", "labengine, blocks of 256"]
    return {"tokens_per_second": {name: [100.0] for name in names}, "about": dict.fromkeys(names, about)}


def test_a_part_of_the_figures_that_fails_fails_the_stage(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other parts are still run, and the last line names those that failed."""
    assert run_parts(benchmark, "limits", tmp_path, monkeypatch) is None
    assert run_parts(benchmark, "kernels,profile", tmp_path, monkeypatch) == "failed: kernels, profile"
    monkeypatch.setattr(benchmark, "measured", lambda *_: workload("failed: it ended"))
    assert run_parts(benchmark, "workload", tmp_path, monkeypatch) == (
        "failed: workload (labengine, blocks of 16), workload (labengine, blocks of 256)"
    )


def test_figures_that_are_there_pass(benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "printed", lambda command, environment: "| a table |")
    monkeypatch.setattr(benchmark, "measured", lambda *_: workload("by Triton"))
    monkeypatch.setattr(benchmark, "profiled", lambda *_: [{"batch": 1}])
    assert run_parts(benchmark, "limits,kernels,workload,profile", tmp_path, monkeypatch) is None


def test_a_script_that_fails_gives_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print('[1]'); sys.exit(len(sys.argv) - 1)")
    assert command().asked([str(script)], {}) == [1] and command().printed([str(script)], {}) == "[1]\n"
    assert command().asked([str(script), "fails"], {}) is None and command().printed([str(script), "fails"], {}) is None
