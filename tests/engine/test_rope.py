from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from labengine.config import ConfigError
from labengine.engine.families.llama import LlamaFields
from labengine.engine.rope import RopeSpec, Rotation

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


SIZES = dict.fromkeys(("vocab_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings"), 1)


def rope_of(**settings: Any) -> RopeSpec:
    sizes = {**SIZES, "model_type": "llama", "hidden_size": 128, "num_attention_heads": 1, "rms_norm_eps": 1e-5}
    return LlamaFields.model_validate({**sizes, **settings}).rope


@pytest.mark.parametrize("scaling", [LLAMA3, {"rope_type": "linear", "factor": 4.0}])
def test_scaled_frequencies_equal_transformers(scaling: dict[str, Any]) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = {**scaling, "rope_theta": 500_000.0}
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters=parameters)
    expected, _ = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    found = rope_of(rope_parameters=parameters).inverse_frequencies(128)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, rtol=1e-6, atol=0)


def test_old_and_new_spelling_of_config_json() -> None:
    new = rope_of(rope_parameters={**LLAMA3, "rope_theta": 5e5})
    assert rope_of(rope_theta=5e5, rope_scaling=LLAMA3) == new
    assert rope_of(rope_theta=5e5, rope_scaling=None) == RopeSpec(5e5)
    assert rope_of(rope_theta=1e4, rope_scaling={"type": "linear", "factor": 2.0}).factor == 2.0


@pytest.mark.parametrize(
    "raw", [{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, {"partial_rotary_factor": 0.5}]
)
def test_what_is_not_supported_is_named(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"yarn.*supported: default, linear, llama3|partial_rotary_factor"):
        rope_of(**raw)


def test_a_head_is_rotated_by_position_times_frequency() -> None:
    rotation = Rotation.at(torch.tensor([0, 3]), torch.tensor([0.5, 0.1]))
    first, rotated = rotation.rotate(torch.tensor([1.0, 0.0, 0.0, 2.0]).repeat(2, 1, 1))[:, 0].tolist()
    assert first == [1.0, 0.0, 0.0, 2.0]
    expected = [math.cos(1.5), -2 * math.sin(0.3), math.sin(1.5), 2 * math.cos(0.3)]
    assert rotated == pytest.approx(expected, abs=1e-6)


FAR = [0, 1, 4_095, 4_096, 4_097, 8_191, 8_192, 40_000, 131_071, 1_000_003, 2**24 - 1]
"""Positions: floats hold them all, and their products with frequencies are rounded once."""


def far_rotation(frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines at FAR in float64, of angles as float32 has them."""
    angles = torch.tensor(FAR, dtype=torch.float64).unsqueeze(1) * frequencies.double()
    angles = angles.float().double()
    return angles.cos(), angles.sin()


@pytest.mark.parametrize("spec", [RopeSpec(10_000.0), RopeSpec(1e6, "linear", factor=8.0)])
def test_far_positions(spec: RopeSpec) -> None:
    frequencies = spec.inverse_frequencies(64)
    cosines, sines = far_rotation(frequencies)
    rotation = Rotation.at(torch.tensor(FAR, dtype=torch.int32), frequencies)
    torch.testing.assert_close(rotation.cos[:, 0].double(), cosines, rtol=0, atol=2e-7)
    torch.testing.assert_close(rotation.sin[:, 0].double(), sines, rtol=0, atol=2e-7)
