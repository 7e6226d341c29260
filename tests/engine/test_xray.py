"""The attention X-ray: what a token looked at, block by block, against attention computed another way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine.engine.model_runner import ModelRunner
from labengine.engine.xray import attention_by_block, is_in_pool
from labengine.record.snapshot import RequestState

TEXT = [5, 17, 3, 99, 8, 8, 41, 2, 60, 13, 77, 30, 4, 5, 17, 3, 99, 8, 21, 55, 9, 10, 64]
LAST = len(TEXT) - 1


def computed(runner: ModelRunner, num_computed: int) -> RequestState:
    """A request whose first tokens were computed by the runner, chunk by chunk, in shuffled blocks."""
    dealer = Dealer(runner.kv_tensors.num_blocks, runner.groups, seed=3)
    request = dealer.request(TEXT)
    while request.num_computed < num_computed:
        runner.forward(plan_of(request.take(min(5, num_computed - request.num_computed))))
    return state_of(request)


def state_of(request: HandMadeRequest) -> RequestState:
    return RequestState("running", tuple(request.token_ids), LAST, request.num_computed, request.tables)


def eager_weights(model_dir: Path, token_ids: list[int]) -> list[np.ndarray]:
    """Per layer [heads, queries, keys], by transformers' own plain attention."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.float32, local_files_only=True, attn_implementation="eager"
    ).eval()
    with torch.inference_mode():
        output = model(torch.tensor([token_ids]), output_attentions=True, use_cache=False)
    return [weights[0].numpy() for weights in output.attentions]


def summed(weights: list[np.ndarray], position: int, size: int) -> np.ndarray:
    """[layers, heads, blocks] of the row at `position`."""
    rows = np.stack([layer[:, position, : position + 1] for layer in weights])
    return np.add.reduceat(rows, range(0, position + 1, size), axis=2)


def test_the_pool_says_what_transformers_says(tiny_model: Callable[..., Path]) -> None:
    directory = tiny_model("qwen3", tie_word_embeddings=True)
    runner = ModelRunner.load(directory, num_blocks=64, block_size=4, device="cpu")
    request = computed(runner, LAST)
    weights = eager_weights(directory, TEXT)
    for position in (0, 3, 4, 13, LAST - 1, LAST):
        seen = attention_by_block(runner, request, position)
        assert seen.source == "pool" and seen.mass.shape == (3, 6, position // 4 + 1)
        np.testing.assert_allclose(seen.mass, summed(weights, position, 4), atol=2e-5)
        np.testing.assert_allclose(seen.mass.sum(2), 1, atol=1e-5)
        assert seen.block_ids == (request.block_tables[0][: position // 4 + 1],)


def test_windows_are_honoured(tiny_gemma: Path, hybrid_runner: ModelRunner) -> None:
    request = computed(hybrid_runner, LAST)
    weights = eager_weights(tiny_gemma, TEXT)
    seen = attention_by_block(hybrid_runner, request, LAST)
    np.testing.assert_allclose(seen.mass, summed(weights, LAST, 4), atol=2e-5)
    windowed = [layer for layer, group in enumerate(seen.layer_groups) if seen.windows[group] is not None]
    outside = (LAST - 8 + 1) // 4
    assert len(windowed) == 6 and outside == 3
    assert (seen.mass[windowed, :, :outside] == 0).all() and (seen.mass[:, :, outside:].sum(2) > 0).all()
    for group, ids in enumerate(seen.block_ids):
        assert [i < 0 for i in ids] == [seen.windows[group] is not None and i < outside for i in range(len(ids))]


def test_it_is_the_pool_that_is_read(tiny_llama: Path, tiny_runner: ModelRunner) -> None:
    request = computed(tiny_runner, LAST)
    before = attention_by_block(tiny_runner, request, LAST).mass
    spoilt = request.block_tables[0][1]
    for layer in range(tiny_runner.num_layers):
        tiny_runner.kv_tensors.layer(layer).keys[spoilt] = 0
    after = attention_by_block(tiny_runner, request, LAST).mass
    assert np.abs(after - before).max() > 1e-3
    anew = attention_by_block(tiny_runner, finished(request), LAST)
    np.testing.assert_allclose(anew.mass, before, atol=2e-5)


def finished(request: RequestState) -> RequestState:
    return replace(
        request, status="finished", num_computed_tokens=0, block_tables=tuple(() for _ in request.block_tables)
    )


def test_nothing_is_written(tiny_llama: Path, tiny_runner: ModelRunner) -> None:
    request = computed(tiny_runner, LAST)
    before = [tiny_runner.kv_tensors.layer(layer).keys.clone() for layer in range(tiny_runner.num_layers)]
    for position in (2, LAST - 1, LAST):
        attention_by_block(tiny_runner, request, position)
    for layer, keys in enumerate(before):
        assert torch.equal(keys, tiny_runner.kv_tensors.layer(layer).keys)


def test_blocks_that_were_freed_are_computed_anew(tiny_gemma: Path, hybrid_runner: ModelRunner) -> None:
    request = computed(hybrid_runner, LAST)
    weights = eager_weights(tiny_gemma, TEXT)
    windowed = [spec.window is not None for spec in hybrid_runner.groups]
    slid = replace(
        request,
        block_tables=tuple(
            (-1, -1, *table[2:]) if is_windowed else table
            for table, is_windowed in zip(request.block_tables, windowed, strict=True)
        ),
    )
    assert is_in_pool(hybrid_runner.groups, slid, LAST, -1)
    assert not is_in_pool(hybrid_runner.groups, slid, 12, -1), "its window reaches back to block 1, which is gone"
    assert not is_in_pool(hybrid_runner.groups, replace(slid, num_computed_tokens=9), 12, -1)
    for state in (slid, finished(request)):
        seen = attention_by_block(hybrid_runner, state, 12)
        assert seen.source == "recomputed" and set(seen.block_ids) == {(-1,) * 4}
        np.testing.assert_allclose(seen.mass, summed(weights, 12, 4), atol=2e-5)


def test_a_position_without_a_token_is_refused(tiny_runner: ModelRunner) -> None:
    request = RequestState("waiting", (1, 2, 3), 3, 0, ((),))
    with pytest.raises(IndexError, match="positions 0 to 2"):
        attention_by_block(tiny_runner, request, 3)
