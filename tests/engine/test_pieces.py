"""Prompts and mixed steps by recorded pieces give what eager ones give; recorded here by running again."""

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
from engine.test_graphs import BLOCK_SIZE, CPU, NUM_BLOCKS, pool_of
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionBackend, AttentionSetting
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.attention.torch_static import StaticTorch
from labengine.engine.forward.eager import EagerForward
from labengine.engine.forward.graphs import GraphedForward
from labengine.engine.forward.pieces import PiecewiseForward, StaticRows, longest_piece, piece_sizes
from labengine.engine.model import PagedModel
from labengine.engine.model_runner import ModelRunner
from labengine.engine.step_tensors import StepStaging, step_tensors

MAX_TOKENS = 40


@dataclass
class Setup:
    """One model twice over one pool: by pieces, and module by module with another attention backend."""

    runner: ModelRunner
    pieces: PiecewiseForward
    eager: EagerForward
    recorder: RunAgain
    staging: StepStaging
    dealer: Dealer

    @torch.inference_mode()
    def by_both(self, plan: StepPlan) -> tuple[Tensor, Tensor]:
        """Compute the plan by pieces, then module by module; logits, then the numbers of all slots, are equal.

        The slots that it writes are NaN before each of the two.
        """
        results = []
        for forward in (self.pieces, self.eager):
            step = self.staging.step_tensors(plan)
            for layer in range(self.runner.num_layers):
                cache, group = self.runner.kv_tensors.layer(layer), self.runner.kv_tensors.layer_groups[layer]
                for pool in (cache.keys, cache.values):
                    pool.flatten(0, 1)[step.groups[group].slots.long()] = torch.nan
            results.append((forward(step).clone(), pool_of(self.runner)))
        (ours, our_pool), (theirs, their_pool) = results
        assert ours.shape == theirs.shape and ours.isfinite().all()
        assert torch.allclose(ours, theirs, atol=1e-4) and torch.allclose(our_pool, their_pool, atol=1e-4)
        return ours, our_pool

    def requests(self, *lengths: int) -> list[HandMadeRequest]:
        """Requests of which nothing is computed."""
        return [self.dealer.request([(7 * r + i) % 101 for i in range(length)]) for r, length in enumerate(lengths)]


Make = Callable[..., Setup]


@pytest.fixture(params=[CapturableTorch, StaticTorch])
def backend(request: pytest.FixtureRequest) -> type[AttentionBackend]:
    """Writes KV in the pieces, and attends between them; triton_pieces_cases.py puts another one here."""
    kind: type[AttentionBackend] = request.param
    return kind


@pytest.fixture(params=["llama", "gemma3"])
def make(
    request: pytest.FixtureRequest,
    backend: type[AttentionBackend],
    tiny_model: Callable[..., Path],
    tiny_gemma: Path,
) -> Make:
    model_dir = tiny_gemma if request.param == "gemma3" else tiny_model(request.param)

    def setup(max_tokens: int = MAX_TOKENS, fails_at: int | None = None) -> Setup:
        runner = ModelRunner.load(
            model_dir, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, device="cpu", attention="torch"
        )
        config = runner.model.config
        setting = AttentionSetting(
            CPU, torch.float32, config.num_heads, config.num_kv_heads, config.head_dim, (BLOCK_SIZE,)
        )
        eager, recorded = (
            EagerForward(runner.model, runner.kv_tensors, kind(setting), kind.name) for kind in (TorchGather, backend)
        )
        poison(runner, range(NUM_BLOCKS))
        recorder = RunAgain(fails_at)
        pieces = PiecewiseForward(recorded, runner.groups, max_tokens, recorder)
        dealer = Dealer(NUM_BLOCKS, runner.groups, 0)
        return Setup(runner, pieces, eager, recorder, StepStaging(runner.groups, CPU), dealer)

    return setup


def test_chunks_and_decodes_by_pieces(make: Make) -> None:
    """Prompts, then chunks of them with decodes, in batches that grow and shrink."""
    setup = make()
    a, b, c, d = setup.requests(30, 21, 9, 25)
    setup.by_both(plan_of(a.take(20)))
    setup.by_both(plan_of(a.take(1), b.take(14), c.take(3, samples=False)))
    setup.by_both(plan_of(c.take(2), a.take(1), d.take(19), b.take(1)))
    setup.by_both(plan_of(a.take(1), b.take(2)))
    setup.by_both(plan_of(d.take(5), a.take(1), b.take(1)))
    num_pieces = setup.runner.num_layers + 1
    assert setup.recorder.recorded == [40] * num_pieces + [32] * num_pieces
    assert setup.recorder.replayed == [32] * 5 * num_pieces


@pytest.mark.parametrize(("num_tokens", "size"), [(1, 32), (31, 32), (32, 32), (33, 40), (40, 40), (41, None)])
def test_sizes_at_their_borders(make: Make, num_tokens: int, size: int | None) -> None:
    setup = make()
    (prompt,) = setup.requests(50)
    setup.by_both(plan_of(prompt.take(num_tokens)))
    num_pieces = setup.runner.num_layers + 1
    assert setup.recorder.replayed == ([] if size is None else [size] * num_pieces)


def test_a_chunk_that_samples_nothing(make: Make) -> None:
    setup = make()
    (prompt,) = setup.requests(20)
    ours, _ = setup.by_both(plan_of(prompt.take(9, samples=False)))
    assert ours.shape == (0, 101)


def test_rows_that_a_larger_step_left_write_nothing(make: Make) -> None:
    """The slots of a request that is gone belong to others by now."""
    setup = make()
    large, small = setup.requests(30, 8)
    setup.by_both(plan_of(large.take(30)))
    poison(setup.runner, [block for table in large.tables for block in table])
    before = pool_of(setup.runner)
    plan = plan_of(small.take(6))
    with torch.inference_mode():
        step = setup.staging.step_tensors(plan)
        setup.pieces(step)
    changed = (pool_of(setup.runner) != before).any(-1).nonzero().flatten().tolist()
    assert set(changed) == {slot for group in step.groups for slot in group.slots.tolist()}


def test_recording_writes_nothing(make: Make) -> None:
    """Not even into block 0, which may be a request's: a fork records its graphs over no memory but its own."""
    setup = make()
    assert (pool_of(setup.runner) == 1e9).all()


def test_an_interrupted_load_leaves_no_row_that_passes_for_padding(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make()
    large, small = setup.requests(30, 8)

    def interrupted(targets: list[Tensor], sources: list[Tensor]) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(torch, "_foreach_copy_", interrupted)
        setup.pieces(setup.staging.step_tensors(plan_of(large.take(30))))
    before = pool_of(setup.runner)
    with torch.inference_mode():
        step = setup.staging.step_tensors(plan_of(small.take(6)))
        setup.pieces(step)
    changed = (pool_of(setup.runner) != before).any(-1).nonzero().flatten().tolist()
    assert set(changed) == {slot for group in step.groups for slot in group.slots.tolist()}


@pytest.mark.parametrize("fails_at", [0, 2])
def test_without_a_recording_that_fails_the_forward_is_eager(make: Make, fails_at: int) -> None:
    setup = make(fails_at=fails_at)
    (prompt,) = setup.requests(20)
    setup.by_both(plan_of(prompt.take(9)))
    assert setup.recorder.replayed == []
    description = setup.pieces.describe()["forward"]
    assert description.startswith(
        "no CUDA graphs for other steps: operation not permitted when stream is capturing; eager"
    )


def test_pieces_beside_decodes(make: Make) -> None:
    """Decodes run through whole graphs, everything else through pieces; status() reports both."""
    setup = make()
    recorder = RunAgain()
    graphed = GraphedForward(setup.pieces._eager, setup.runner.groups, 60, 2, recorder, CPU, others=setup.pieces)
    first, second = setup.requests(12, 12)
    with torch.inference_mode():
        graphed(setup.staging.step_tensors(plan_of(first.take(6), second.take(8))))
        assert recorder.replayed == [] and setup.recorder.replayed
    lines = graphed.describe()["forward"]
    assert "decodes of 1 and 2 requests, in " in lines
    assert "between attentions for other steps of up to 40 tokens (2 sizes), in " in lines
    graphed.release()
    graphed.release()
    assert not setup.pieces.takes(setup.staging.step_tensors(plan_of(first.take(1), second.take(1))))
    assert not setup.runner.model.norm.weight.is_meta


def test_a_size_for_every_number_of_tokens() -> None:
    for max_tokens in range(1, 2100):
        sizes = piece_sizes(max_tokens)
        assert sizes == sorted(set(sizes)) and sizes[-1] == max_tokens
        assert all(larger - smaller <= max(32, smaller / 2) for smaller, larger in pairwise(sizes))
    assert piece_sizes(576) == [32, 64, 96, 128, 192, 256, 384, 512, 576]
    assert len(piece_sizes(2048)) == 12


def test_large_layers_keep_a_gpu_busy_by_themselves(tiny_runner: ModelRunner) -> None:
    assert longest_piece(tiny_runner.model, 8192) == 2048
    assert longest_piece(tiny_runner.model, 100) == 100
    with torch.device("meta"):
        large = PagedModel(tiny_runner.model.config)
        large.layers[0].mlp.down.weight = torch.nn.Parameter(torch.empty(20_000, 10_000))
    assert 200 < longest_piece(large, 8192) < 250


def test_static_rows_are_decodes_without_a_context(tiny_runner: ModelRunner) -> None:
    static = StaticRows(tiny_runner.groups, 8, CPU)
    (prompt,) = [Dealer(64, 4).request([9, 8, 7, 6, 5])]
    step = step_tensors(plan_of(prompt.take(5)), tiny_runner.groups, CPU)
    static.load(step)
    rows = static.rows(8)
    assert rows.is_decode and rows.contexts.tolist() == [0] * 8
    assert rows.token_ids.tolist()[:5] == [9, 8, 7, 6, 5] and rows.positions.tolist()[:5] == [0, 1, 2, 3, 4]
    assert rows.groups[0].slots.tolist() == [*step.groups[0].slots.tolist(), -1, -1, -1]
