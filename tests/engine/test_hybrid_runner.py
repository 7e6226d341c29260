"""A model with several KV-cache groups on one pool: the same memory under every group's blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from engine.reference import poison, transformers_logits
from labengine.config import ConfigError, EngineConfig, GroupSpec
from labengine.engine.loaded_model import ModelOptions, SimulatedModel, load_model
from labengine.engine.model_runner import ModelRunner

WINDOW, FULL = GroupSpec(4, "sliding_window", 8), GroupSpec(4)
TEXT = list(range(3, 33))


def test_groups_and_their_layers(hybrid_runner: ModelRunner) -> None:
    assert hybrid_runner.groups == (WINDOW, WINDOW, WINDOW, FULL)
    layers = [[int(name.split(".")[1]) for name in hybrid_runner.read_block(group, 0)][::2] for group in range(4)]
    assert layers == [[0, 4], [1, 5], [3, 7], [2, 6]]
    assert "; 4 groups, 3 of them with a window of 8" in hybrid_runner.describe()["kv_pool"]


def test_a_block_has_the_same_keys_as_kv_shows(hybrid_runner: ModelRunner) -> None:
    request = Dealer(64, hybrid_runner.groups).request(TEXT)
    hybrid_runner.forward(plan_of(request.take(30)))
    block_id = request.tables[2][5]
    block = hybrid_runner.read_block(2, block_id)
    for layer in (3, 7):
        keys, values = hybrid_runner.kv(block_id, layer)
        assert torch.equal(block[f"layers.{layer}.keys"], keys) and torch.equal(block[f"layers.{layer}.values"], values)
        assert keys.abs().min() > 0


def test_saved_and_restored_into_other_blocks(hybrid_runner: ModelRunner) -> None:
    """What an external tier does: the KV moves to other blocks, through copies, and the logits do not change a bit."""
    old, new = (Dealer(64, hybrid_runner.groups, seed=seed).request(TEXT) for seed in (1, 2))
    hybrid_runner.forward(plan_of(old.take(24)))
    saved = [
        (group, entry, hybrid_runner.read_block(group, block_id))
        for group, table in enumerate(old.tables)
        for entry, block_id in enumerate(table[:6])
    ]
    expected = hybrid_runner.forward(plan_of(old.take(6)))
    poison(hybrid_runner, range(64))
    for group, entry, kv in saved:
        hybrid_runner.write_block(group, new.tables[group][entry], kv)
    new.num_computed = 24
    assert torch.equal(hybrid_runner.forward(plan_of(new.take(6))), expected)


def test_kv_of_a_model_without_weights_is_refused(hybrid_runner: ModelRunner) -> None:
    with pytest.raises(ValueError, match="no KV to write to block 3"):
        hybrid_runner.write_block(0, 3, None)


def test_a_block_held_by_two_groups_is_one_memory(hybrid_runner: ModelRunner, tiny_gemma: Path) -> None:
    """A double allocation is real here: the later layers overwrite the earlier group's KV, and tokens change."""
    honest = Dealer(64, hybrid_runner.groups, seed=1).request(TEXT)
    window, *others, full = honest.tables
    doubled = HandMadeRequest(0, TEXT, (window, *others, (*full[:-1], window[-1])), hybrid_runner.groups)
    expected = transformers_logits(tiny_gemma)(TEXT)[-1]
    for request, is_right in ((honest, True), (doubled, False)):
        hybrid_runner.forward(plan_of(request.take(29)))
        logits = hybrid_runner.forward(plan_of(request.take(1)))[0]
        assert ((logits - expected).abs().max().item() < 1e-4) is is_right


def test_a_block_dropped_one_too_early_is_reported(hybrid_runner: ModelRunner) -> None:
    """The token at position 19 reads positions 12 to 19: entry 3 is its first."""
    request = Dealer(64, hybrid_runner.groups).request(TEXT)
    hybrid_runner.forward(plan_of(request.take(19)))
    table = request.tables[1]
    request.tables = (request.tables[0], (*table[:3], -1, *table[4:]), *request.tables[2:])
    with pytest.raises(ValueError, match=r"request 0 .*entry 3 .*group 1.* -1"):
        hybrid_runner.forward(plan_of(request.take(1)))


def test_load_model_takes_the_groups_from_the_model(tiny_gemma: Path) -> None:
    model = load_model(tiny_gemma, EngineConfig(16, (GroupSpec(4),)), ModelOptions(16, device="cpu"))
    assert model.config.groups == (WINDOW, WINDOW, WINDOW, FULL)
    assert model.config.num_blocks == 16 and model.config.eos_token_ids == {2}


@pytest.mark.parametrize("groups", [(FULL, WINDOW), (WINDOW,)])
def test_groups_cannot_be_set_for_a_real_model(groups: tuple[GroupSpec, ...], tiny_gemma: Path) -> None:
    config = EngineConfig(16, groups)
    with pytest.raises(ConfigError, match="one block_size"):
        load_model(tiny_gemma, config, ModelOptions(16, device="cpu"))
    simulated = load_model("simulated", config, ModelOptions(16))
    assert isinstance(simulated, SimulatedModel) and simulated.config.groups == groups
