"""Decodes through graphs give what eager decodes give. Recorded here by a fake recorder; by CUDA in test_cuda.py.

The numbers are those of the bugs that engines really had here: see "graph" in the names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.capturable_torch import CapturableTorch, RunAgain
from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from engine.reference import poison
from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionBackend, AttentionSetting
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.attention.torch_static import StaticTorch
from labengine.engine.forward.eager import EagerForward
from labengine.engine.forward.graphs import GraphedForward, graph_sizes, longest_context, refusal
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.model_runner import ModelRunner
from labengine.engine.step_tensors import StepStaging, step_tensors

CPU = torch.device("cpu")
NUM_BLOCKS, BLOCK_SIZE = 96, 4


@dataclass
class Setup:
    """One model twice over one pool: by graphs where it may, and module by module with another attention backend."""

    runner: ModelRunner
    graphed: GraphedForward
    eager: EagerForward
    recorder: RunAgain
    staging: StepStaging

    @torch.inference_mode()
    def logits(self, plan: StepPlan) -> tuple[Tensor, Tensor]:
        """The plan computed both ways; the same KV is written to the same slots twice."""
        step = self.staging.step_tensors(plan)
        return self.graphed(step).clone(), self.eager(step)

    def prefilled(self, dealer: Dealer, *lengths: int) -> list[HandMadeRequest]:
        """Requests with all computed but their last few tokens."""
        requests = [dealer.request([(7 * r + i) % 101 for i in range(length)]) for r, length in enumerate(lengths)]
        for request in requests:
            self.logits(plan_of(request.take(len(request.token_ids) - DECODES)))
        return requests


DECODES = 4
"""Tokens that `prefilled` leaves to be decoded."""

Make = Callable[..., Setup]


@pytest.fixture(params=[CapturableTorch, StaticTorch])
def capturable(request: pytest.FixtureRequest) -> type[AttentionBackend]:
    """The backend whose decodes are recorded; triton_graphs_cases.py puts another one here."""
    backend: type[AttentionBackend] = request.param
    return backend


@pytest.fixture(params=["llama", "gemma3"])
def make(
    request: pytest.FixtureRequest, capturable: type[AttentionBackend], tiny_llama: Path, tiny_gemma: Path
) -> Make:
    model_dir = tiny_gemma if request.param == "gemma3" else tiny_llama

    def setup(max_num_seqs: int, max_context: int = 100, fails_at: int | None = None) -> Setup:
        runner = ModelRunner.load(
            model_dir, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, device="cpu", attention="torch"
        )
        config = runner.model.config
        heads = (config.num_heads, config.num_kv_heads, config.head_dim)
        setting = AttentionSetting(CPU, torch.float32, *heads, (BLOCK_SIZE,))
        eager, recorded = (
            EagerForward(runner.model, runner.kv_tensors, backend(setting), backend.name)
            for backend in (TorchGather, capturable)
        )
        poison(runner, range(NUM_BLOCKS))
        recorder = RunAgain(fails_at)
        graphed = GraphedForward(recorded, runner.groups, max_context, max_num_seqs, recorder, CPU)
        return Setup(runner, graphed, eager, recorder, StepStaging(runner.groups, CPU))

    return setup


def dealer_for(setup: Setup, seed: int = 0) -> Dealer:
    return Dealer(NUM_BLOCKS, setup.runner.groups, seed)


def test_decodes_of_every_size_run_through_the_smallest_graph_that_holds_them(make: Make) -> None:
    setup = make(6)
    assert setup.recorder.recorded == [6, 4, 2, 1], "the largest first"
    requests = setup.prefilled(dealer_for(setup), 9, 17, 6, 12, 7)
    for number in (5, 3, 4, 1):
        ours, theirs = setup.logits(plan_of(*(request.take(1) for request in requests[:number])))
        assert torch.allclose(ours, theirs, atol=1e-4)
        assert ours.shape == (number, 101) and ours.isfinite().all()
    assert setup.recorder.replayed == [6, 4, 4, 1]


def test_graphs_of_all_sizes_share_their_logits(make: Make) -> None:
    """A tensor for each size would be six times as much as for the largest: 938 MB at 256 requests of 152k tokens."""
    setup = make(6)
    with torch.inference_mode():
        results = {size: recording() for size, recording in setup.graphed._recordings.items()}
    assert [len(results[size]) for size in (6, 4, 2, 1)] == [6, 4, 2, 1]
    assert len({logits.untyped_storage().data_ptr() for logits in results.values()}) == 1


def test_a_graph_for_every_number_of_requests() -> None:
    """Sizes that leave a gap below max_num_seqs ended an engine with StopIteration (nano-vLLM 216)."""
    for max_num_seqs in range(1, 600):
        sizes = graph_sizes(max_num_seqs)
        assert sizes == sorted(set(sizes)) and sizes[0] == 1 and sizes[-1] == max_num_seqs
        assert all(larger - smaller <= max(8, smaller / 2) for smaller, larger in pairwise(sizes))
    assert graph_sizes(12) == [1, 2, 4, 8, 12]
    assert len(graph_sizes(512)) == 23


def pool_of(runner: ModelRunner) -> Tensor:
    """[num_blocks * block_size, all numbers of a slot]; NaN is made a number, so that it equals itself."""
    layers = [runner.kv_tensors.layer(layer) for layer in range(runner.num_layers)]
    kv = torch.stack([torch.stack((layer.keys, layer.values)) for layer in layers]).nan_to_num(nan=1e9)
    return kv.permute(2, 3, 0, 1, 4, 5).flatten(0, 1).flatten(1)


def test_padding_of_a_graph_writes_nowhere(make: Make) -> None:
    """Slot -1 is not an index from the end (vLLM 43810), and block 0 is a block like any other (SGLang 32477)."""
    setup = make(8)
    requests = setup.prefilled(dealer_for(setup), 6, 6, 6)
    for _ in range(2):  # the first step leaves three rows filled, the second one
        before = pool_of(setup.runner)
        plan = plan_of(*(request.take(1) for request in requests))
        step = setup.staging.step_tensors(plan)
        setup.graphed(step)
        changed = (pool_of(setup.runner) != before).any(-1).nonzero().flatten().tolist()
        assert sorted(changed) == sorted(slot for group in step.groups for slot in group.slots.tolist())
        requests = requests[:1]


def test_padding_of_a_graph_reads_nothing(make: Make) -> None:
    """Every slot that no request has written is NaN, block 0 and the last one too."""
    setup = make(8)
    dealer = dealer_for(setup)
    requests = setup.prefilled(dealer, 9, 6, 7)
    ours, theirs = setup.logits(plan_of(*(request.take(1) for request in requests)))
    assert ours.isfinite().all() and torch.allclose(ours, theirs, atol=1e-4)
    with torch.inference_mode():
        assert setup.graphed._recordings[4]()[3].isfinite().all(), "a row of padding attends to zeros, not to NaN"


def test_rows_that_a_larger_step_left_in_a_graph_become_padding(make: Make) -> None:
    """Stale contexts and slots of requests that are gone would write into blocks that are others' by now."""
    setup = make(4)
    requests = setup.prefilled(dealer_for(setup), 9, 13, 6)
    setup.logits(plan_of(*(request.take(1) for request in requests)))
    poison(setup.runner, [block for request in requests[1:] for table in request.tables for block in table])
    before = pool_of(setup.runner)
    static = setup.graphed._static
    assert static is not None
    rows = static.rows(4)
    step = setup.staging.step_tensors(plan_of(requests[0].take(1)))
    setup.graphed(step)
    assert rows.contexts.tolist()[1:] == [0, 0, 0] and rows.token_ids.tolist()[1:] == [0, 0, 0]
    assert all(group.slots.tolist()[1:] == [-1, -1, -1] for group in rows.groups)
    changed = (pool_of(setup.runner) != before).any(-1).nonzero().flatten().tolist()
    assert sorted(changed) == sorted(group.slots.item() for group in step.groups)


def test_stale_columns_of_a_graphs_tables_are_not_read(make: Make) -> None:
    """A long request's row is taken over by a short one, whose table is narrower (nano-vLLM 190)."""
    setup = make(2)
    dealer = dealer_for(setup)
    (long,) = setup.prefilled(dealer, 40)
    setup.logits(plan_of(long.take(1)))
    poison(setup.runner, [block for table in long.tables for block in table])
    (short,) = setup.prefilled(dealer, 6)
    ours, theirs = setup.logits(plan_of(short.take(1)))
    assert ours.isfinite().all() and torch.allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("max_context", [16, 17, 19, 20])
def test_the_last_position_has_a_column_in_the_graph(make: Make, max_context: int) -> None:
    """And the one behind it, which a table one column short would have answered with garbage, runs eagerly."""
    setup = make(2, max_context)
    (request,) = setup.prefilled(dealer_for(setup), max_context + DECODES)
    request.num_computed -= 1
    for by_graph in (True, False):
        ours, theirs = setup.logits(plan_of(request.take(1)))
        assert torch.allclose(ours, theirs, atol=1e-4)
        assert bool(setup.recorder.replayed) == by_graph
        setup.recorder.replayed.clear()


def test_what_no_graph_holds_runs_eagerly(make: Make) -> None:
    setup = make(2)
    first, second, third = setup.prefilled(dealer_for(setup), 9, 13, 8)
    plans = {
        "a chunk": plan_of(first.take(2)),
        "a chunk beside a decode": plan_of(first.take(1), second.take(2)),
        "a chunk of one token that samples nothing": plan_of(second.take(1, samples=False)),
        "one that samples beside one that does not": plan_of(second.take(1), third.take(1, samples=False)),
        "more than max_num_seqs": plan_of(*(dealer_for(setup, 1).request([5]).take(1) for _ in range(3))),
    }
    for name, plan in plans.items():
        ours, theirs = setup.logits(plan)
        assert torch.allclose(ours, theirs, atol=1e-4), name
    assert setup.recorder.replayed == []


@pytest.mark.parametrize("fails_at", [0, 2])
def test_without_a_recording_that_fails_the_forward_is_eager(make: Make, fails_at: int) -> None:
    setup = make(4, fails_at=fails_at)
    (request,) = setup.prefilled(dealer_for(setup), 9)
    ours, theirs = setup.logits(plan_of(request.take(1)))
    assert torch.allclose(ours, theirs, atol=1e-4)
    assert setup.recorder.replayed == []
    description = setup.graphed.describe()["forward"]
    assert description.startswith("no CUDA graphs: operation not permitted when stream is capturing; eager")


def test_an_interrupt_while_recording_is_not_swallowed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunAgain, "record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make(2)


def test_a_runner_lets_its_graphs_go_before_the_weights(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make(2)
    weight_was_there = []

    def release() -> None:
        weight_was_there.append(not setup.runner.model.norm.weight.is_meta)
        GraphedForward.release(setup.graphed)

    monkeypatch.setattr(setup.runner, "_forward", setup.graphed)
    monkeypatch.setattr(setup.graphed, "release", release)
    setup.runner.release()
    setup.runner.release()
    assert weight_was_there == [True, False]
    assert setup.runner.model.norm.weight.is_meta and not setup.graphed._recordings


class CurrentDevice:
    """Replaces torch.cuda.device, which selects the current GPU."""

    index = 0

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._before, CurrentDevice.index = CurrentDevice.index, self._device.index

    def __exit__(self, *_: object) -> None:
        CurrentDevice.index = self._before


def test_the_models_gpu_is_the_current_one_while_it_computes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging, graphs, eager steps and sampling; and afterwards the notebook's own is current again."""
    setup = make(2)
    (request,) = setup.prefilled(dealer_for(setup), 9)
    seen: list[tuple[str, int]] = []

    def watch(owner: object, name: str) -> None:
        method = getattr(owner, name)

        def watched(*arguments: object) -> object:
            seen.append((name, CurrentDevice.index))
            return method(*arguments)

        monkeypatch.setattr(owner, name, watched)

    monkeypatch.setattr(torch.cuda, "device", CurrentDevice)
    monkeypatch.setattr(setup.runner.kv_tensors, "device", torch.device("cuda:1"))
    monkeypatch.setattr(setup.runner, "_forward", setup.graphed)
    watch(setup.runner._staging, "step_tensors")
    watch(setup.graphed, "_others")
    watch(setup.graphed, "argmax")
    monkeypatch.setitem(setup.graphed._recordings, 1, _noting(seen, setup.graphed._recordings[1]))
    for number in (1, 2):
        plan = plan_of(request.take(number))
        setup.runner.sample(plan, setup.runner.forward(plan))
        assert CurrentDevice.index == 0
    names = ["step_tensors", "replay", "argmax", "step_tensors", "_others", "argmax"]
    assert seen == [(name, 1) for name in names]


def _noting(seen: list[tuple[str, int]], recording: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def replay() -> Tensor:
        seen.append(("replay", CurrentDevice.index))
        return recording()

    return replay


def test_an_interrupted_load_leaves_no_row_that_passes_for_padding() -> None:
    """Whatever was copied before the interrupt is cleared by the next step, if that one is smaller."""
    spec = GroupSpec(4)
    static = StaticStep([spec], 4, 20, CPU)
    dealer = Dealer(20, 4)
    three = step_tensors(plan_of(*(dealer.request([9]).take(1) for _ in range(3))), [spec], CPU)
    one = step_tensors(plan_of(dealer.request([8]).take(1)), [spec], CPU)
    broken = three.groups[0].block_tables
    object.__setattr__(three.groups[0], "block_tables", torch.empty(3, 5, dtype=torch.int32, device="meta"))
    with pytest.raises(NotImplementedError):
        static.load(three)
    static.load(one)
    rows = static.rows(4)
    assert rows.groups[0].slots.tolist()[1:] == [-1, -1, -1] and rows.contexts.tolist() == [1, 0, 0, 0]
    assert broken.shape[0] == 3


def test_how_long_a_request_can_get() -> None:
    full, window = GroupSpec(4), GroupSpec(4, "sliding_window", 8)
    assert longest_context(512, [full], 1000) == 512
    assert longest_context(512, [window, full], 100) == 400
    assert longest_context(512, [window], 100) == 512, "blocks before the window are given back"


def test_who_can_be_recorded() -> None:
    setting = AttentionSetting(CPU, torch.float32, 4, 4, 16, (4,))
    cuda = torch.device("cuda")
    assert refusal(cuda, CapturableTorch(setting)) is None
    assert "torch attention" in (refusal(cuda, TorchGather(setting)) or "")
    assert "the model is on cpu" in (refusal(CPU, CapturableTorch(setting)) or "")
