"""Triton's kernels compute correctly: the cases beside this file run in separate processes.

Whether kernels are interpreted is decided when Triton is imported, for all of the process: other tests run without it.
On a machine with a GPU the same cases run there, compiled.

Triton 3.6's interpreter does not work with numpy 2.4 and newer, which no longer make a Python number of an array of one
element: 26 cases fail with "only 0-dimensional arrays can be converted to Python scalars". Interpret with an older
numpy there; compiled kernels do not care.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.needs_triton import needs_triton
from engine.ops_settings import SMALL
from engine.plan_builder import Dealer, plan_of
from labengine.config import GroupSpec
from labengine.engine import triton_sampler
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention import triton as triton_attention
from labengine.engine.attention.flash_attn import FlashStep, torch_store
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.attention.triton import TritonAttention, TritonStep, take_trial_steps, write_kv
from labengine.engine.backend_choice import choose_ops
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.ops import triton as triton_ops
from labengine.engine.sampler import sampling_line
from labengine.engine.step_tensors import step_tensors
from labengine.engine.trial_launch import launch_refusal

needs_triton()

CPU = torch.device("cpu")
CASES = ("attention", "ops", "ops_models", "model", "sampler")
GRAPHS = ("graphs", "pieces")
"""Where there is a GPU, test_cuda.py has real graphs."""

BACKENDS_WITH_TRIALS = (triton_attention, triton_ops, triton_sampler)

SAMPLE = (
    "not (triton_graphs_cases or triton_pieces_cases) or (gemma3 and (writes_nowhere or chunks_and_decodes_by_pieces))"
)
"""What runs at every change: one test of graphs and one of pieces, for the model with windows. The others are in the
sweep."""


def run_cases(project_root: Path, *cases: str, interpreted: bool, only: str, names: str = "") -> Counter[str]:
    """Run triton_{case}_cases.py of each, all in one process: what they import takes its time.

    only: the marks, names: the names of the tests to run, as pytest's -m and -k have them. Returns the number of
    passed tests of each case; every case has some.
    """
    files = [f"tests/engine/triton_{case}_cases.py" for case in cases]
    options = ["-q", "-rp", "-p", "no:cacheprovider", "-m", only, "-k", names]
    command = [sys.executable, "-m", "pytest", *options, *files]
    environment = {**os.environ, "TRITON_INTERPRET": "1" if interpreted else "0", "OMP_NUM_THREADS": "1"}
    child = subprocess.run(command, cwd=project_root, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stdout[-8000:] + child.stderr[-2000:]
    assert " skipped" not in child.stdout
    passed = Counter(re.findall(r"^PASSED tests/engine/triton_(\w+)_cases\.py::", child.stdout, re.MULTILINE))
    assert {*passed} == {*cases}, passed
    return passed


@pytest.mark.journey
@pytest.mark.timeout(900)
def test_interpreted(project_root: Path) -> None:
    passed = run_cases(project_root, *CASES, *GRAPHS, interpreted=True, only="not sweep", names=SAMPLE)
    assert [passed[case] for case in GRAPHS] == [1, 1]


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_interpreted_in_every_combination(project_root: Path) -> None:
    run_cases(project_root, *CASES, interpreted=True, only="sweep")
    run_cases(project_root, *GRAPHS, interpreted=True, only="not sweep", names="not llama")


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case: str, project_root: Path) -> None:
    run_cases(project_root, case, interpreted=False, only="sweep or not sweep")


def setting(device: str = "cuda", dtype: torch.dtype = torch.bfloat16, head_dim: int = 128) -> AttentionSetting:
    return AttentionSetting(torch.device(device), dtype, 16, 8, head_dim, (16,))


def refusal(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], unsuitable: AttentionSetting) -> str | None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    return TritonAttention.unsupported(unsuitable)


def test_refusals_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    half = setting(dtype=torch.float16)
    assert refusal(monkeypatch, (9, 0), setting()) is None
    assert refusal(monkeypatch, (7, 5), half) is None
    for capability, asked, facts in (
        ((7, 5), setting(), "bfloat16 .* 8.0.* 7.5"),
        ((7, 0), half, "float16 .* 7.5.* 7.0"),
        ((9, 0), setting("cpu"), "CUDA GPU.* cpu"),
        ((9, 0), setting(head_dim=320), "320.* 256"),
        ((9, 0), setting(dtype=torch.float64), "only in float16, bfloat16, float32"),
    ):
        assert re.search(facts, refusal(monkeypatch, capability, asked) or ""), facts


def test_a_machine_that_cannot_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without gcc or Python.h, which Triton needs for its launcher: the reason is told, and torch computes."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def without_compiler(device: torch.device, launch: object) -> str | None:
        return launch_refusal(CPU, _without_compiler)

    for module in BACKENDS_WITH_TRIALS:
        module._trial.cache_clear()
        monkeypatch.setattr(module, "launch_refusal", without_compiler)
    reason = "a trial launch failed (RuntimeError: Failed to find C compiler.)"
    here = replace(setting(), device=torch.device("cuda:7"))
    assert TritonAttention.refusal(here) == reason
    assert choose_ops(replace(SMALL, device=here.device))[1].endswith(f"; not triton: {reason})")
    assert sampling_line(here.device) == f"torch (op by op; not triton: {reason})"
    for module in BACKENDS_WITH_TRIALS:
        module._trial.cache_clear()


def _without_compiler() -> None:
    raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")


def test_a_full_gpu_is_no_refusal() -> None:
    """It would be remembered for all labs to come."""

    def launch() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        launch_refusal(CPU, launch)


@pytest.mark.parametrize("block_size", [1, 16])
def test_trial_steps_are_steps_that_a_backend_can_take(block_size: int) -> None:
    """By torch here; by Triton's interpreter in triton_attention_cases.py."""
    small = AttentionSetting(CPU, torch.float32, 4, 2, 16, (block_size,))
    assert launch_refusal(CPU, lambda: take_trial_steps(TorchGather(small))) is None


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labengine.engine.attention.triton.find_spec", lambda name: None)
    assert TritonAttention.refusal(setting()) == "Triton is not installed (pip install triton)"


def test_the_interpreter_is_for_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert TritonAttention.refusal(setting("cpu")) is None


def test_a_write_of_ones_own_is_never_left_out() -> None:
    """The kernel that rotates may replace the backends' own write, but not any other write."""

    class Own(TritonStep):
        def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
            super().write(-keys, values, cache)

    class OwnFlash(FlashStep):
        def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
            super().write(-keys, values, cache)

    slots = torch.arange(3, dtype=torch.int32)
    step = step_tensors(plan_of(Dealer(4, 4).request([1, 2, 3]).take(3)), [GroupSpec(4)], CPU)
    group = step.groups[0]
    assert TritonStep(step, group, []).plain_slots is group.slots and Own(step, group, []).plain_slots is None
    assert FlashStep(slots, write_kv, lambda *_: slots).plain_slots is slots
    assert FlashStep(slots, torch_store, lambda *_: slots).plain_slots is None
    assert OwnFlash(slots, write_kv, lambda *_: slots).plain_slots is None
    assert TorchGather(setting("cpu")).prepare(step, group).plain_slots is None
