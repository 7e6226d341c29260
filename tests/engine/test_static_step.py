"""The static tensors of recorded decodes on a device with separate memory: the copies and their times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.late_gpu import CUDA, LateGpu
from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine import Lab, StaticRunner, StaticStep
from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.forward.choice import GraphStaging
from labengine.engine.forward.graphs import GraphedForward
from labengine.engine.step_tensors import StepStaging, StepTensors, step_tensors
from labengine.scenarios.tiny_model import tiny_model

CPU = torch.device("cpu")
GROUPS = (GroupSpec(4), GroupSpec(4, "sliding_window", 6))


class OnADevice(StaticStep):
    """Rows with a copy on a device, which the host's memory plays."""

    copies_always = True


class CopyingRunner(StaticRunner):
    static_step = OnADevice


class DeviceOps(TorchDispatchMode):
    """Notes the torch ops on a device's memory, which the host's plays. Views are free."""

    def __init__(self, *memories: Tensor) -> None:
        super().__init__()
        self.names: list[str] = []
        self._storages = {memory.untyped_storage().data_ptr() for memory in memories}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        touched = {tensor.untyped_storage().data_ptr() for tensor in tensors} & self._storages
        if touched and not func.is_view:
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def runner(tiny_gemma: Path) -> CopyingRunner:
    return CopyingRunner.load(tiny_gemma, num_blocks=96, block_size=4, max_num_seqs=4, device="cpu")


def static_of(runner: CopyingRunner) -> StaticStep:
    assert isinstance(runner._forward, GraphedForward) and runner._forward._static is not None
    return runner._forward._static


def prefilled(runner: CopyingRunner, *lengths: int) -> list[HandMadeRequest]:
    """Requests with all computed but their last four tokens."""
    dealer = Dealer(96, runner.groups)
    requests = [dealer.request([(7 * r + i) % 101 for i in range(length)]) for r, length in enumerate(lengths)]
    for request in requests:
        runner.forward(plan_of(request.take(len(request.token_ids) - 4)))
    return requests


@pytest.mark.parametrize("numbers", [(3, 3), (3, 1), (1, 4)])
def test_a_replayed_step_is_one_copy_to_the_device(
    numbers: tuple[int, ...], runner: CopyingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is computed or copied on the device before the graph, when the batch shrinks neither."""
    requests = prefilled(runner, 9, 17, 6, 30)
    static, staging = static_of(runner), runner._staging
    assert isinstance(staging, GraphStaging)
    for size in (1, 2, 4):
        logits = torch.zeros(size, runner.vocab_size)
        monkeypatch.setitem(runner._forward._recordings, size, lambda logits=logits: logits)  # type: ignore[attr-defined]
    for number in numbers:
        with DeviceOps(static._on_device, staging._on_device._memory._on_device) as ops:
            runner.forward(plan_of(*(request.take(1) for request in requests[:number])))
        assert ops.names == ["copy_"]


def loaded(static: StaticStep, requests: Sequence[HandMadeRequest]) -> StepTensors:
    """Load a decode of these requests; return it, in separate memory."""
    step = step_tensors(plan_of(*(request.take(1) for request in requests)), GROUPS, CPU)
    static.load(step)
    return step


def rows_of(step: StepTensors) -> list[Any]:
    """What a graph reads of each row: numbers, and the table's entries for the context."""
    numbers = [step.token_ids, step.positions, step.contexts, *(group.slots for group in step.groups)]
    tables = [
        [
            row[: -(-context // group.block_size)]
            for row, context in zip(group.block_tables.tolist(), contexts, strict=True)
        ]
        for group in step.groups
        for contexts in [step.contexts.tolist()]
    ]
    return list(zip(*(tensor.tolist() for tensor in numbers), *tables, strict=True))


def test_what_a_graph_reads_is_the_step_and_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches grow and shrink, and rows change hands: each step is complete once its copy is made."""
    random, gpu = Random(0), LateGpu(monkeypatch)
    static, dealer = StaticStep(GROUPS, 8, 200, CUDA), Dealer(4000, GROUPS)
    requests = [dealer.request([random.randrange(100) for _ in range(60)]) for _ in range(20)]
    for request in requests:
        request.num_computed = random.randint(0, 30)
    for _ in range(30):
        step = loaded(static, random.sample(requests, random.randint(1, 8)))
        gpu.finish()
        nothing = (0, 0, 0, -1, -1, [], [])
        assert rows_of(static.recorded_rows(8)) == rows_of(step) + [nothing] * (8 - step.num_requests)


def test_rows_are_not_changed_while_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is ahead of the device: the copy of the step before begins only when it is waited for."""
    gpu, dealer = LateGpu(monkeypatch), Dealer(400, GROUPS)
    static, requests = StaticStep(GROUPS, 4, 40, CUDA), [dealer.request([row] * 30) for row in range(4)]
    before = loaded(static, requests[:3])
    for number in (4, 1, 2):
        step = loaded(static, requests[:number])
        assert rows_of(static.recorded_rows(before.num_requests)) == rows_of(before)
        before = step
    gpu.finish()
    assert rows_of(static.recorded_rows(2)) == rows_of(before)


def test_the_copy_is_one_piece_of_the_rows_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of all rows, and the tables of those with a request in this step or in the one before."""
    gpu, dealer = LateGpu(monkeypatch), Dealer(4000, GROUPS)
    static, requests = StaticStep(GROUPS, 100, 400, CUDA), [dealer.request([7] * 9) for _ in range(80)]
    for number in (80, 3, 2):
        loaded(static, requests[:number])
    numbers, row = 5 * 128, 2 * 112  # 100 rows, and 100 columns, aligned
    assert gpu.sizes == [numbers + rows * row for rows in (80, 80, 3)]


def test_rows_and_tables_begin_where_kernels_load_them_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    LateGpu(monkeypatch)
    rows = StaticStep(GROUPS, 100, 399, CUDA).recorded_rows(100)
    numbers = [rows.token_ids, rows.positions, rows.contexts, *(group.slots for group in rows.groups)]
    tables = [group.block_tables for group in rows.groups]
    assert all((tensor.data_ptr() - rows.token_ids.data_ptr()) % 64 == 0 for tensor in numbers + tables)
    assert [(tuple(table.shape), table.stride()) for table in tables] == [((100, 100), (224, 1))] * 2


# -- a whole lab -------------------------------------------------------------------------------------------------------


class Unchanged(CopyingRunner):
    """An override, which finds a step's tensors on the device."""

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        return super().step_tensors(plan)


@pytest.mark.parametrize(("runner", "staging"), [(CopyingRunner, GraphStaging), (Unchanged, StepStaging)])
def test_the_tokens_are_those_of_one_memory(runner: type[StaticRunner], staging: type) -> None:
    labs = [
        Lab(tiny_model(), num_blocks=24, block_size=4, device="cpu", runner=each) for each in (runner, StaticRunner)
    ]
    for lab in labs:
        for prompt, max_tokens in (([5, 9, 14, 3, 77, 8], 12), ([21, 4, 60], 12), ([33, 2, 41, 11, 90, 17, 6], 8)):
            lab.add(token_ids=prompt, max_tokens=max_tokens, ignore_eos=True)
        lab.run()
    assert isinstance(labs[0].session.model.runner._staging, staging)
    ours, theirs = (lab.snapshot().requests for lab in labs)
    assert ours == theirs


def test_a_decode_that_no_graph_holds_is_staged_on_the_device(runner: CopyingRunner) -> None:
    requests = prefilled(runner, 9, 17, 6, 30, 12)
    staging = runner._staging
    assert isinstance(staging, GraphStaging)
    four, five = (plan_of(*(request.take(1) for request in requests[:number])) for number in (4, 5))
    on_host, on_device = staging._on_host._memory._host, staging._on_device._memory._host
    for plan, memory in ((four, on_host), (five, on_device)):
        step = runner.step_tensors(plan)
        assert step.token_ids.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()
