"""Logits of tiny random models, every family and variant, against transformers.

The texts are longer than the windows, and what lies outside of a window is gone: see largest_difference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.reference import largest_difference, transformers_logits
from labengine.config import ConfigError
from labengine.engine import weights
from labengine.engine.model_runner import ModelRunner

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SLIDING, FULL = "sliding_attention", "full_attention"
MAX_GROUPS = 8
WINDOW_OF_8 = {"sliding_window": 8, "num_hidden_layers": 8}
GEMMA3 = {**WINDOW_OF_8, "query_pre_attn_scalar": 24, "tie_word_embeddings": True}
TWO_ROPES = {
    FULL: {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    SLIDING: {"rope_type": "default", "rope_theta": 1e3},
}
PHI3 = {"hidden_size": 96, "pad_token_id": 0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.6, 2.0],
    "long_factor": [1.5, 2.0, 3.0, 5.0, 9.0, 16.0],
    "partial_rotary_factor": 0.75,
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
    "qwen3, windows from layer 4 on": ("qwen3", {**WINDOW_OF_8, "use_sliding_window": True, "max_window_layers": 4}),
    "mistral, windows everywhere": ("mistral", {"sliding_window": 8}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "gemma3, one full layer of six": ("gemma3", GEMMA3),
    "gemma3, two layers to a group": ("gemma3", {**GEMMA3, "layer_types": [SLIDING, SLIDING, FULL, SLIDING] * 2}),
    "gemma3, a group padded": (
        "gemma3",
        {**GEMMA3, "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING, FULL]},
    ),
    "gemma3, two ropes": ("gemma3", {**GEMMA3, "rope_parameters": TWO_ROPES}),
    "gemma3, a window of one": ("gemma3", {**GEMMA3, "sliding_window": 1}),
    "gemma3, a window longer than the texts": ("gemma3", {**GEMMA3, "sliding_window": 300}),
    "phi3, no window": ("phi3", PHI3),
    "phi3, windows everywhere, tied": ("phi3", {**PHI3, "sliding_window": 8, "tie_word_embeddings": True}),
    "phi3, longrope": ("phi3", {**PHI3, "original_max_position_embeddings": 4, "rope_parameters": LONGROPE}),
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
    for block_size in (1, 3, 4, 16):
        num_blocks = sum(-(-len(text) // block_size) for text in texts) * MAX_GROUPS
        runner = ModelRunner.load(model_dir, num_blocks=num_blocks, block_size=block_size, device="cpu")
        assert largest_difference(runner, texts, expected, chunk=7, num_decodes=4) < 1e-4


def test_max_model_len_selects_the_factors_of_longrope(tiny_model: Callable[..., Path]) -> None:
    """transformers selects them by each text's length; one cache serves texts of all lengths, so a lab selects once."""
    model_dir = tiny_model("phi3", **PHI3, original_max_position_embeddings=64, rope_parameters=LONGROPE)
    (text,) = random_texts(101, [40])
    expected = [transformers_logits(model_dir)(text)]
    runners = [
        ModelRunner.load(model_dir, num_blocks=10, block_size=4, device="cpu", max_model_len=n) for n in (64, 65)
    ]
    differences = [largest_difference(runner, [text], expected, chunk=7, num_decodes=4) for runner in runners]
    assert differences[0] < 1e-4 and differences[1] > 1e-3
    assert len({runner.fingerprint for runner in runners}) == 2, "a tier keeps their KV apart"
    with pytest.raises(ConfigError, match=r"max_model_len=65 .*LongRoPE"):
        runners[0].sibling(10, 4, 1, max_model_len=65)


def test_a_matrix_that_is_fused_in_the_file_is_packed_whole(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels read a row of the gate beside the row that it multiplies, whatever size pieces are read in."""
    monkeypatch.setattr(weights, "PIECE_BYTES", 1)
    model_dir = tiny_model("phi3", **PHI3)
    texts = random_texts(101, [20])
    expected = [transformers_logits(model_dir)(text) for text in texts]
    runner = ModelRunner.load(model_dir, num_blocks=20, block_size=4, device="cpu")
    assert largest_difference(runner, texts, expected, chunk=7, num_decodes=2) < 1e-4


def test_a_wrong_weight_would_be_seen(tiny_llama: Path) -> None:
    """The comparison above has teeth: a change of 1% in one norm is far outside its tolerance."""
    texts = random_texts(101, [20])
    expected = [transformers_logits(tiny_llama)(text) for text in texts]
    runner = ModelRunner.load(tiny_llama, num_blocks=20, block_size=4, device="cpu")
    runner.model.get_parameter("layers.1.mlp_norm.weight").mul_(1.01)
    assert largest_difference(runner, texts, expected, chunk=7, num_decodes=0) > 1e-3


@pytest.mark.parametrize("attention", ["cpu", "torch"])
def test_texts_longer_than_4096_tokens(attention: str, tiny_model: Callable[..., Path]) -> None:
    model_dir = tiny_model("llama", num_hidden_layers=1, max_position_embeddings=8192)
    (text,) = random_texts(101, [4300])
    runner = ModelRunner.load(model_dir, num_blocks=270, block_size=16, device="cpu", attention=attention)
    expected = [transformers_logits(model_dir)(text)]
    assert largest_difference(runner, [text], expected, chunk=500, num_decodes=3) < 1e-4
