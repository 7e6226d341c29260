"""The real hybrid model, Gemma-3-270M in fp32, against transformers, teacher-forced over a text longer than its window.

Plans are made by hand: every block that falls out of a window is taken out of the table, and its memory filled with
NaN. transformers computes the text once; only the rows that are compared are kept, a whole one being 262,144 logits.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.plan_builder import Dealer, plan_of
from engine.reference import largest_difference, poison, transformers_rows
from labengine import model_path
from labengine.config import EngineConfig, GroupSpec
from labengine.engine.loaded_model import LoadedModel, ModelOptions, load_model
from labengine.engine.model_runner import ModelRunner
from labengine.engine.tokenizer import HuggingFaceTokenizer

TOLERANCE = 2e-3
NUM_TOKENS = 640
CHUNKS = {16: 250, 7: 101}
"""Tokens per chunk, by block size."""
NUM_DECODES = 5
LOG = " ".join(
    f"Day {day}. The keeper counted {day * 37 % 101} ships, and the wind blew from the {wind}."
    for day, wind in enumerate(["north", "east", "south-west", "south", "north-east", "sea", "hills"] * 6, start=1)
)


@pytest.fixture(scope="module")
def gemma() -> Path:
    return model_path("gemma3-270m")


@pytest.fixture(scope="module")
def tokenizer(gemma: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(gemma)


@pytest.fixture(scope="module")
def text(tokenizer: HuggingFaceTokenizer) -> list[int]:
    ids = tokenizer.encode(LOG)
    assert len(ids) > NUM_TOKENS
    return ids[:NUM_TOKENS]


@pytest.fixture(scope="module")
def expected(gemma: Path, text: list[int]) -> dict[int, Tensor]:
    """By position: the logits after it, for the last position of every chunk and the decodes of every setting."""
    positions = set(range(NUM_TOKENS - NUM_DECODES - 1, NUM_TOKENS))
    for chunk in CHUNKS.values():
        positions.update(range(chunk - 1, NUM_TOKENS - NUM_DECODES, chunk))
    return transformers_rows(gemma)(text, sorted(positions))


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    """The weights of all runners here."""
    return load_model("gemma3-270m", EngineConfig(8, (GroupSpec(16),)), ModelOptions(8, "float32", "cpu"))


def runner_of(model: LoadedModel, block_size: int) -> ModelRunner:
    num_blocks = 6 * -(-NUM_TOKENS // block_size)
    config = EngineConfig(num_blocks, (GroupSpec(block_size),))
    runner = model.sibling(config, ModelOptions(num_blocks, "float32", "cpu")).runner
    assert isinstance(runner, ModelRunner)
    return runner


@pytest.fixture(scope="module")
def runner(model: LoadedModel) -> ModelRunner:
    return runner_of(model, 16)


@pytest.mark.sweep
def test_fifteen_layers_with_a_window_and_three_without_make_six_groups(model: LoadedModel) -> None:
    """As vLLM 0.32 groups them, in its order."""
    window, full = GroupSpec(16, "sliding_window", 512), GroupSpec(16)
    assert model.config.groups == (window,) * 5 + (full,)
    layers = [sorted({int(key.split(".")[1]) for key in model.runner.read_block(group, 0)}) for group in range(6)]
    assert layers == [[first, first + 6, first + 12] for first in range(6)]
    bytes_per_block = 3 * 2 * 16 * 1 * 256 * 4  # layers, K and V, tokens, kv heads, head_dim, float32
    assert model.runner.kv_tensors.num_bytes == 8 * bytes_per_block


def test_the_weights_know_something(tokenizer: HuggingFaceTokenizer, runner: ModelRunner) -> None:
    """Converted wrongly, a model computes as well as ever, and babbles."""
    ids = tokenizer.encode("The capital of France is Paris. The capital of Italy is Rome. The capital of Japan is")
    assert ids[0] == 2 and tokenizer.decode(ids).startswith("The capital")
    logits = runner.forward(plan_of(Dealer(240, runner.groups).request(ids).take(len(ids))))
    assert tokenizer.decode([int(logits.argmax())]) == " Tokyo"


@pytest.mark.parametrize("block_size", [16, pytest.param(7, marks=pytest.mark.sweep)])
def test_logits_equal_transformers_across_the_window(
    block_size: int, model: LoadedModel, text: list[int], expected: dict[int, Tensor]
) -> None:
    runner = runner_of(model, block_size)
    chunk = CHUNKS[block_size]
    worst = largest_difference(runner, [text], [expected], chunk=chunk, num_decodes=NUM_DECODES)
    print(f"\nblocks of {block_size}, chunks of {chunk}: logits differ by {worst:.1e} at most")
    assert worst < TOLERANCE


def test_kv_moved_to_other_blocks_gives_the_same_bits(runner: ModelRunner, text: list[int]) -> None:
    """All that a request still needs is read, wiped out, and written elsewhere: the next logits are bit-equal."""
    dealer = Dealer(240, runner.groups, seed=3)
    request, elsewhere = dealer.request(text), Dealer(240, runner.groups, seed=4).request(text)
    runner.forward(plan_of(request.take(600)))
    needed = list(needed_blocks(request.tables, runner.groups, 600))
    kv = {(group, entry): runner.read_block(group, request.tables[group][entry]) for group, entry in needed}
    logits = runner.forward(plan_of(request.take(1)))
    poison(runner, range(240))
    for (group, entry), tensors in kv.items():
        runner.write_block(group, elsewhere.tables[group][entry], tensors)
    elsewhere.num_computed = 600
    assert torch.equal(runner.forward(plan_of(elsewhere.take(1))), logits)


def needed_blocks(
    tables: tuple[tuple[int, ...], ...], groups: tuple[GroupSpec, ...], num_computed: int
) -> Iterable[tuple[int, int]]:
    for group, spec in enumerate(groups):
        first = 0 if spec.window is None else num_computed - spec.window + 1
        for entry in range(first // spec.block_size, -(-num_computed // spec.block_size)):
            yield group, entry
