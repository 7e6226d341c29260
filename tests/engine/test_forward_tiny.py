"""Logits of tiny random models, every family and variant, against transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.reference import largest_difference, transformers_logits
from labengine.engine.model_runner import ModelRunner

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, untied": ("llama", {"tie_word_embeddings": False}),
    "llama, llama3 rope": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama, linear rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama, one query per kv head": ("llama", {"num_key_value_heads": 6}),
    "llama, one kv head": ("llama", {"num_key_value_heads": 1}),
    "qwen3, tied": ("qwen3", {"tie_word_embeddings": True}),
    "qwen3, untied": ("qwen3", {"tie_word_embeddings": False, "rms_norm_eps": 1e-5}),
}


def random_texts(vocab_size: int, lengths: list[int]) -> list[list[int]]:
    random = Random(1)
    return [random.choices(range(vocab_size), k=length) for length in lengths]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_transformers(variant: str, tiny_model: Callable[..., Path]) -> None:
    family, settings = VARIANTS[variant]
    model_dir = tiny_model(family, **settings)
    reference = transformers_logits(model_dir)
    texts = random_texts(101, [5, 23, 90, 41])
    expected = [reference(text) for text in texts]
    for block_size in (1, 3, 16):
        runner = ModelRunner.load(model_dir, num_blocks=200, block_size=block_size, device="cpu")
        assert largest_difference(runner, texts, expected, block_size=block_size, chunk=7, num_decodes=4) < 1e-4


def test_a_wrong_weight_would_be_seen(tiny_llama: Path) -> None:
    """The comparison above has teeth: a change of 1% in one norm is far outside its tolerance."""
    texts = random_texts(101, [20])
    expected = [transformers_logits(tiny_llama)(text) for text in texts]
    runner = ModelRunner.load(tiny_llama, num_blocks=20, block_size=4, device="cpu")
    runner.model.get_parameter("layers.1.mlp_norm.weight").mul_(1.01)
    assert largest_difference(runner, texts, expected, block_size=4, chunk=7, num_decodes=0) > 1e-3
