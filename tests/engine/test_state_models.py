"""Models with states against transformers: equal logits in fp32, whatever the chunks, the batch and the blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from engine.reference import largest_difference, poison, transformers_logits
from engine.state_models import models, save_state_model
from engine.test_xray import eager_weights, summed
from labengine.config import ConfigError, GroupSpec
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.model_runner import ModelRunner
from labengine.engine.static_runner import StaticRunner
from labengine.engine.step_limits import StepLimits
from labengine.engine.trial_memory import largest_plans
from labengine.engine.xray import attention_by_block
from labengine.record.snapshot import RequestState

TOLERANCE = 1e-4
TEXT = Random(3).choices(range(3, 101), k=80)
Directory = Callable[[str], Path]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    made: dict[str, Path] = {}

    def of(family: str) -> Path:
        if family not in made:
            made[family] = save_state_model(family, tmp_path_factory.mktemp("model"))
        return made[family]

    return of


@pytest.fixture(params=models())
def model_dir(request: pytest.FixtureRequest, directory: Directory) -> Path:
    return directory(request.param)


def load(model_dir: Path, num_blocks: int = 128, block_size: int = 4) -> ModelRunner:
    return ModelRunner.load(model_dir, num_blocks=num_blocks, block_size=block_size, device="cpu")


@pytest.mark.parametrize(("block_size", "chunk"), [(4, 200), (4, 1), (5, 7), (16, 66)])
def test_logits_equal_transformers_in_chunks_of_any_size(model_dir: Path, block_size: int, chunk: int) -> None:
    """Prompts of unlike lengths in one batch, prefilled in chunks and decoded; blocks hold NaN before a first write."""
    runner = load(model_dir, 100, block_size)
    texts = [Random(length).choices(range(3, 101), k=length) for length in (130, 67, 12, 9)]
    reference = transformers_logits(model_dir)
    worst = largest_difference(runner, texts, [reference(text) for text in texts], chunk=chunk, num_decodes=5)
    assert worst < TOLERANCE


def test_granite_with_a_rope(tmp_path: Path) -> None:
    model_dir = save_state_model("granitemoehybrid", tmp_path, position_embedding_type="rope")
    reference = transformers_logits(model_dir)
    assert largest_difference(load(model_dir), [TEXT], [reference(TEXT)], chunk=33, num_decodes=5) < TOLERANCE


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_the_language_model_of_a_multimodal_file(tmp_path: Path, family: str, is_tied: bool) -> None:
    """Qwen3.5's files hold a vision model besides, and name the layers below model.language_model."""
    model_dir = save_state_model(family, tmp_path, tie_word_embeddings=is_tied)
    runner, reference = load(model_dir), transformers_logits(model_dir)
    assert runner.model.config.tie_word_embeddings is is_tied
    worst = largest_difference(runner, [TEXT], [reference(TEXT)], chunk=33, num_decodes=5)
    assert worst < TOLERANCE


def test_families_and_groups(model_dir: Path) -> None:
    runner = load(model_dir)
    states = next(group for group in runner.groups if group.kind == "state")
    assert set(runner.groups) == {states, GroupSpec(4)} and states.block_size == 4
    kinds = [runner.groups[group].kind for group in runner.kv_tensors.layer_groups]
    assert kinds == ["state" if runner.kv_tensors.states(layer) else "full" for layer in range(len(kinds))]
    pool = runner.describe()["kv_pool"]
    state = runner.read_block(runner.groups.index(states), 0)
    state_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    assert f"{state_bytes / 1024:,.1f} of them for a state" in pool
    kv_bytes = kinds.count("full") * 2 * 4 * 2 * runner.model.config.head_dim * 4
    assert runner.kv_tensors.num_bytes == 128 * (state_bytes + kv_bytes)
    assert "not cpu: it cannot compute layers with a state" in runner.describe()["attention"]


def test_the_sums_stay_in_float32(directory: Directory) -> None:
    """In bfloat16 the convolution's inputs are bfloat16, as computed; sums over all tokens are float32."""
    runner = ModelRunner.load(directory("bamba"), num_blocks=4, block_size=4, device="cpu", dtype="bfloat16")
    dtypes = {name: tensor.dtype for name, tensor in runner.kv_tensors.states(0).items()}
    assert dtypes == {"conv": torch.bfloat16, "matrices": torch.float32}
    request = Dealer(4, runner.groups).request(TEXT[:9])
    assert runner.forward(plan_of(request.take(9))).isfinite().all()


# -- states and blocks -------------------------------------------------------------------------------------------------


def state_group(runner: ModelRunner) -> int:
    return next(group for group, spec in enumerate(runner.groups) if spec.kind == "state")


def moved(request: HandMadeRequest, group: int, block_id: int) -> HandMadeRequest:
    """The request with its state in another block."""
    tables = (*request.tables[:group], (block_id,), *request.tables[group + 1 :])
    return replace(request, tables=tables)


def last_row(runner: ModelRunner, request: HandMadeRequest, num_tokens: int) -> torch.Tensor:
    return runner.forward(plan_of(request.take(num_tokens)))[0].clone()


def test_a_copied_state_is_where_both_go_on(model_dir: Path) -> None:
    """What a prefix hit and a fork do: the state after 40 tokens is copied; the copy and the original go their ways."""
    runner = load(model_dir)
    group, reference = state_group(runner), transformers_logits(model_dir)
    request = Dealer(128, runner.groups).request(TEXT)
    last_row(runner, request, 40)
    block, other = request.tables[group][0], 127 if request.tables[group][0] != 127 else 126
    runner.copy_block(group, block, other)
    twin = moved(request, group, other)
    twin.token_ids = [*TEXT[:40], *TEXT[:40]]
    assert (last_row(runner, request, 40) - reference(TEXT)[-1]).abs().max() < TOLERANCE
    assert (last_row(runner, twin, 40) - reference(twin.token_ids)[-1]).abs().max() < TOLERANCE


def test_a_state_read_and_written_elsewhere_gives_the_same_bits(model_dir: Path) -> None:
    runner = load(model_dir)
    group = state_group(runner)
    request = Dealer(128, runner.groups).request(TEXT)
    last_row(runner, request, 40)
    state = runner.read_block(group, request.tables[group][0])
    expected = last_row(runner, request, 1)
    other = moved(request, group, 3 if request.tables[group][0] != 3 else 4)
    poison(runner, [request.tables[group][0]])
    runner.write_block(group, other.tables[group][0], state)
    other.num_computed = 40
    assert torch.equal(last_row(runner, other, 1), expected)


def test_a_first_chunk_does_not_read_its_block(model_dir: Path) -> None:
    """After preemption a request begins again in a block that holds any other state."""
    runner, reference = load(model_dir), transformers_logits(model_dir)
    request = Dealer(128, runner.groups).request(TEXT)
    for _ in range(2):
        request.num_computed = 0
        last_row(runner, request, 33)
        assert (last_row(runner, request, 47) - reference(TEXT)[-1]).abs().max() < TOLERANCE


def test_a_state_of_another_position_is_another_computation(model_dir: Path) -> None:
    """Nothing is healed behind the plan's back: a state that is one token behind gives other logits."""
    runner, reference = load(model_dir), transformers_logits(model_dir)
    request = Dealer(128, runner.groups).request(TEXT)
    last_row(runner, request, 39)
    request.num_computed = 40
    assert (last_row(runner, request, 1) - reference(TEXT)[40]).abs().max() > 100 * TOLERANCE


def test_no_other_block_is_written(model_dir: Path) -> None:
    runner = load(model_dir)
    group = state_group(runner)
    request = Dealer(128, runner.groups).request(TEXT)
    others = [block for block in range(128) if block != request.tables[group][0]]
    before = {layer: runner.kv_tensors.states(layer) for layer in range(runner.num_layers)}
    copies = {(layer, name): t[others].clone() for layer, states in before.items() for name, t in states.items()}
    last_row(runner, request, 30)
    last_row(runner, request, 1)
    for (layer, name), copied in copies.items():
        assert torch.equal(runner.kv_tensors.states(layer)[name][others], copied)


@pytest.mark.parametrize("run", [((-1, 0, 1),), ((5, 0, 4),), ((5, 1, 1),), (), ((5, 0, 1), (6, 0, 1))])
def test_runs_that_name_no_single_state_are_refused(
    directory: Directory, run: tuple[tuple[int, int, int], ...]
) -> None:
    runner = load(directory("lfm2"))
    group = state_group(runner)
    part = Dealer(128, runner.groups).request(TEXT).take(8)
    runs = (*part.slot_runs[:group], run, *part.slot_runs[group + 1 :])
    with pytest.raises(ValueError, match=rf"request 0: slot_runs of group {group}"):
        runner.forward(plan_of(replace(part, slot_runs=runs)))


def test_the_largest_steps_can_be_tried(model_dir: Path) -> None:
    """A GPU's pool is sized by them: several requests, longer than a block, on one state."""
    runner = load(model_dir)
    for plan in largest_plans(runner.groups, StepLimits(3, 24, 40), longest=40):
        assert runner.forward(plan).shape == (len(plan.scheduled), 101)


def test_an_automatic_pool_holds_what_requests_of_full_length_need(model_dir: Path) -> None:
    """A state group holds two blocks of a request: the state that a chunk begins with, and the one that it leaves."""
    settings = {"num_blocks": None, "block_size": 16, "device": "cpu", "max_num_seqs": 3, "max_model_len": 100}
    runner = ModelRunner.load(model_dir, **settings)
    assert runner.kv_tensors.num_blocks == 3 * (7 + 2)


# -- the X-ray ---------------------------------------------------------------------------------------------------------


def test_the_x_ray_shows_the_layers_that_attend(model_dir: Path) -> None:
    """Taken from the pool while the state is still the one before the token, else recomputed: equal to transformers."""
    runner = load(model_dir)
    request = Dealer(128, runner.groups).request(TEXT[:23])
    for _ in range(2):
        last_row(runner, request, 11)
    group = state_group(runner)
    tables = [(table[0],) * 6 if index == group else table for index, table in enumerate(request.tables)]
    state = RequestState("running", tuple(TEXT[:23]), 22, 22, tuple(tables))
    weights = eager_weights(model_dir, TEXT[:23])
    before = runner.read_block(group, request.tables[group][0])
    for position, source in ((22, "pool"), (21, "recomputed"), (4, "recomputed")):
        seen = attention_by_block(runner, state, position)
        assert seen.source == source
        assert [runner.groups[g].kind for g in seen.layer_groups] == ["full"] * len(weights)
        assert all(not runner.kv_tensors.states(layer) for layer in seen.layers)
        np.testing.assert_allclose(seen.mass, summed(weights, position, 4), atol=2e-5)
    after = runner.read_block(group, request.tables[group][0])
    assert all(torch.equal(before[name], after[name]) for name in before), "looking advances no state"


# -- what has no meaning for a state -----------------------------------------------------------------------------------


def test_a_layer_with_a_state_has_no_keys_and_values(directory: Directory) -> None:
    runner = load(directory("lfm2"))
    with pytest.raises(ConfigError, match=r"layer 0 .*layers with K and V: 1, 4"):
        runner.kv(0, 0)
    assert runner.kv(0, 1)[0].shape == (4, 2, 8)


def test_native_kernels_refuse_it_by_name(directory: Directory) -> None:
    with pytest.raises(ConfigError, match=r"attention='cpu' .* layers with a state"):
        ModelRunner.load(directory("lfm2"), num_blocks=4, block_size=4, device="cpu", attention="cpu")


def test_a_runner_that_records_decodes_refuses_it(directory: Directory) -> None:
    with pytest.raises(ConfigError, match=r"records decodes .* layers with a state"):
        StaticRunner.load(directory("lfm2"), num_blocks=4, block_size=4, device="cpu")


def test_attention_of_ones_own_is_called(directory: Directory) -> None:
    calls: list[int] = []

    class Counting(TorchGather):
        def prepare(self, step, group):  # type: ignore[no-untyped-def]
            calls.append(step.num_tokens)
            return super().prepare(step, group)

    class Mine(ModelRunner):
        attention = Counting

    runner = Mine.load(directory("lfm2"), num_blocks=32, block_size=4, device="cpu")
    runner.forward(plan_of(Dealer(32, runner.groups).request(TEXT[:8]).take(8)))
    assert calls == [8]
