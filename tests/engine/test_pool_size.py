"""What counts as free: on a GPU also what torch keeps for later, on a CPU no more than the container may have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

from engine.plan_builder import Dealer, plan_of
from labengine.config import ConfigError
from labengine.core.step_plan import StepPlan
from labengine.engine import model_runner, pool_size
from labengine.engine.forward.graphs import RecordedForward, Recorder, RunAgain
from labengine.engine.model_runner import ModelRunner
from labengine.engine.pool import PoolPlan
from labengine.engine.pool_size import fitting_blocks, free_memory, left_to_cgroup, require_memory, trial_blocks
from labengine.engine.static_runner import StaticRunner
from labengine.engine.step_limits import StepLimits
from labengine.engine.trial_memory import most_bytes
from labengine.engine.weights import Weights

CPU, CUDA = torch.device("cpu"), torch.device("cuda:1")
MIB = 2**20


def write(folder: Path, **files: object) -> Path:
    """Files by name, with "__" for a slash and "_" behind `memory` for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("memory_", "memory.", 1)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


def test_a_container_by_version_2(tmp_path: Path) -> None:
    write(tmp_path, memory_max=800, memory_current=300)
    assert left_to_cgroup(tmp_path) == 500
    write(tmp_path, memory_stat="anon 100\nfile 180\ninactive_file 120\nactive_file 60\nslab 7")
    assert left_to_cgroup(tmp_path) == 680, "pages of files make room"
    write(tmp_path, memory_stat="active_file 5000")
    assert left_to_cgroup(tmp_path) == 800, "never more than the limit"
    write(tmp_path, memory_stat="", memory_current=900)
    assert left_to_cgroup(tmp_path) == 0


def test_a_container_by_version_1(tmp_path: Path) -> None:
    write(tmp_path, memory__memory_limit_in_bytes=800, memory__memory_usage_in_bytes=300)
    assert left_to_cgroup(tmp_path) == 500
    write(tmp_path, memory__memory_stat="inactive_file 9\ntotal_inactive_file 40\ntotal_active_file 2")
    assert left_to_cgroup(tmp_path) == 542, "what is inside counts with it"


@pytest.mark.parametrize(
    "files", [{}, {"max": "max", "current": 300}, {"max": 800}, {"max": "", "current": 3}, {"max": 8, "current": "?"}]
)
def test_where_no_limit_is_set(tmp_path: Path, files: dict[str, object]) -> None:
    write(tmp_path, **{f"memory_{name}": text for name, text in files.items()})
    assert left_to_cgroup(tmp_path) is None
    assert left_to_cgroup(tmp_path / "absent") is None


def test_the_smaller_of_machine_and_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_size, "CGROUPS", tmp_path)
    assert free_memory(CPU) == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    write(tmp_path, memory_max=20 * MIB, memory_current=4 * MIB)
    assert free_memory(CPU) == 16 * MIB
    assert fitting_blocks(16, MIB, CPU, enough=100) == (8, "auto: 50% of free memory")
    with pytest.raises(ConfigError, match="at most 16 blocks fit"):
        require_memory(17, 16, MIB, CPU)
    write(tmp_path, memory_max=2**60)
    assert free_memory(CPU) < 2**50


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A fake GPU of 100 MiB, 20 of them free; gives the figures of torch's allocator."""
    statistics: dict[str, int] = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20 * MIB, 100 * MIB))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: statistics)
    return statistics


def test_what_torch_keeps_on_a_gpu_is_free(gpu: dict[str, int]) -> None:
    """After a lab is closed, its memory may stay reserved; the next pool may have it."""
    assert free_memory(CUDA) == 20 * MIB, "before torch has allocated anything"
    gpu.update({"reserved_bytes.all.current": 70 * MIB, "active_bytes.all.current": 8 * MIB})
    gpu["inactive_split_bytes.all.current"] = 2 * MIB  # beside tensors in use: not given back
    assert free_memory(CUDA) == 80 * MIB
    assert fitting_blocks(16, MIB, CUDA, enough=1)[0] == 39, "half of what is free but for a fiftieth: a fork fits"
    num_blocks, reason = fitting_blocks(16, MIB, CUDA, enough=1, step_bytes=10 * MIB)
    assert num_blocks == 28 and "half of cuda:1" in reason, "and 11 for the steps of each"
    with pytest.raises(ConfigError, match="not one block"):
        fitting_blocks(16, MIB, CUDA, enough=1, step_bytes=40 * MIB)
    assert trial_blocks(16, MIB, CUDA, 160) == 10 and trial_blocks(16, MIB, CUDA, 10_000) == 20
    require_memory(80, 16, MIB, CUDA)
    with pytest.raises(ConfigError, match="at most 80 blocks fit"):
        require_memory(81, 16, MIB, CUDA)


class FakeMemory:
    """The memory of a GPU, as torch.cuda has it."""

    total = 1000 * MIB

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved, self.most, self.beside = 300 * MIB, 700 * MIB, 50 * MIB
        self.parts: dict[str, int] = {}
        """The most bytes that each part has needed so far: torch keeps them reserved for it."""
        parts: dict[str, object] = {
            "memory_reserved": lambda device: self.reserved,
            "max_memory_reserved": lambda device: self.most,
            "reset_peak_memory_stats": lambda device: self.take(0),
            "mem_get_info": lambda device: (self.total - self.reserved - self.beside, self.total),
            "memory_stats": lambda device: {},
            "synchronize": lambda device: None,
            "empty_cache": lambda: None,
        }
        for name, part in parts.items():
            monkeypatch.setattr(torch.cuda, name, part)

    def take(self, num_bytes: int) -> None:
        """Reserve, and forget the former peak."""
        self.reserved += num_bytes
        self.most = self.reserved

    def need(self, part: str, num_bytes: int) -> None:
        """Reserve what a part needs and has not yet."""
        more = max(0, num_bytes - self.parts.get(part, 0))
        self.parts[part] = self.parts.get(part, 0) + more
        self.take(more)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> FakeMemory:
    return FakeMemory(monkeypatch)


def test_the_peak_of_a_trial_counts_and_what_is_beside_torch(memory: FakeMemory) -> None:
    def work() -> None:
        memory.take(80 * MIB)
        memory.reserved -= 60 * MIB
        memory.beside += 7 * MIB

    assert most_bytes(CUDA, work) == 87 * MIB


def test_a_trial_that_does_not_fit_says_what_to_lower(memory: FakeMemory) -> None:
    def work() -> None:
        raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")

    with pytest.raises(ConfigError, match=r"lower max_num_batched_tokens, max_num_seqs or max_model.*2\.00 GiB"):
        most_bytes(CUDA, work)


@pytest.mark.parametrize(("limits", "lengths"), [
    ((4, 64, 512), [[64], [16] * 4, [1] * 4]),
    ((3, 10**4, 512), [[512], [512] * 3, [1] * 3]),
    ((3, 10**4, 100), [[100], [100] * 3, [1] * 3]),
    ((16, 5, 512), [[5], [1] * 5, [1] * 5]),
])  # fmt: skip
def test_the_largest_steps_are_steps_that_a_runner_takes(
    limits: tuple[int, int, int], lengths: list[list[int]], memory: FakeMemory, tiny_gemma: Path
) -> None:
    """With the longest contexts, on the pool of a trial, which is gone after it; the weights stay for the runner."""
    taken: list[list[int]] = []

    class Trial(ModelRunner):
        def forward(self, plan: StepPlan) -> Tensor:
            taken.append([request.num_tokens for request in plan.scheduled])
            assert {request.end for request in plan.scheduled} == {limits[2]}
            return super().forward(plan)

    weights, pool = loaded(Trial, tiny_gemma)
    Trial._step_bytes(weights, pool, StepLimits(*limits), {})
    assert taken == lengths
    assert not weights.is_used and not weights.model.norm.weight.is_meta


def loaded(kind: type[ModelRunner], model_dir: Path) -> tuple[Weights, PoolPlan]:
    """Weights without a runner, and a plan of a pool for them."""
    attention = None if kind.attention else "torch"
    runner = kind.load(model_dir, num_blocks=64, block_size=4, device="cpu", attention=attention)
    runner._discard()
    return runner._weights, runner._pool


def test_what_the_largest_steps_need_is_graphs_forward_and_sampling(memory: FakeMemory, tiny_llama: Path) -> None:
    """By torch and beside it. The bytes of each part tell the step that needs the most of it."""

    class CountingRecorder(RunAgain):
        def record(self, run: Callable[[], Tensor]) -> RecordedForward:
            recorded = super().record(run)
            memory.take(1000 * len(recorded()))
            memory.beside += 10**8
            return recorded

    class Trial(StaticRunner):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            memory.take(self.kv_tensors.num_bytes)

        @classmethod
        def recorder(cls, device: torch.device) -> Recorder:
            return CountingRecorder()

        def forward(self, plan: StepPlan) -> Tensor:
            memory.need("activations", 10**5 * plan.num_tokens)
            memory.need("gathered", 10**3 * sum(request.end for request in plan.scheduled))
            return super().forward(plan)

        def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
            is_cut = [request.sampling.top_p is not None for request in plan.sampling]
            memory.need("sampling", sum(is_cut))
            return super().sample(plan, logits)

    limits = StepLimits(max_num_seqs=4, max_num_batched_tokens=50, max_model_len=300)
    weights, pool = loaded(Trial, tiny_llama)
    graphs = 3 * 10**8 + 1000 * (4 + 2 + 1)
    assert Trial._step_bytes(weights, pool, limits, {}) == graphs + 10**5 * 50 + 10**3 * 4 * 300 + 4


@pytest.mark.parametrize(("free_blocks", "longest"), [(1000, 512), (40, 80), (4, 8)])
def test_a_context_is_no_longer_than_the_pool_will_be(
    free_blocks: int, longest: int, memory: FakeMemory, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial's pool takes a quarter of the free memory, the lab's pool at most half."""
    ends: set[int] = set()

    class Trial(ModelRunner):
        def forward(self, plan: StepPlan) -> Tensor:
            ends.update(request.end for request in plan.scheduled)
            return super().forward(plan)

    weights, pool = loaded(Trial, tiny_llama)
    monkeypatch.setattr(pool_size, "free_memory", lambda device: free_blocks * pool.block_bytes)
    Trial._step_bytes(weights, pool, StepLimits(4, 64, 512), {})
    assert ends == {longest}


def test_a_step_without_memory_says_what_to_lower(tiny_runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the forward pass and in sampling; the next step, if it needs less, is taken."""
    plan = plan_of(Dealer(8, tiny_runner.groups).request([1, 2, 3]).take(3))
    logits = tiny_runner.forward(plan)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")

    expected = r"KV pool .* \d+ blocks.* num_blocks.* \(tried to allocate 2.00 GiB\)"
    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError, match=expected):
        patch.setattr(tiny_runner, "_forward", full)
        tiny_runner.forward(plan)
    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError, match=expected):
        patch.setattr(model_runner, "sample", full)
        tiny_runner.sample(plan, logits)
    assert len(tiny_runner.sample(plan, tiny_runner.forward(plan))) == 1


@pytest.mark.parametrize(("device", "calls"), [(CUDA, ["empty_cache"]), (CPU, [])])
def test_a_released_runner_gives_a_gpus_memory_back(
    tiny_runner: ModelRunner, device: torch.device, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all is let go: the pool is gone by then, else nothing would be given back."""
    done: list[str] = []

    def empty_cache() -> None:
        assert not tiny_runner.kv_tensors._tensors and tiny_runner.model.norm.weight.is_meta
        done.append("empty_cache")

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    monkeypatch.setattr(tiny_runner.kv_tensors, "device", device)
    tiny_runner.release()
    assert done == calls
