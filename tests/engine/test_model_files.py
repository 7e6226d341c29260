"""Model directories that are broken, foreign or not supported: each is refused, and the trouble is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file

from engine.plan_builder import Dealer, plan_of
from labengine.config import ConfigError
from labengine.engine.model import FAMILIES
from labengine.engine.model_config import SUPPORTED_MODEL_TYPES, ModelConfig
from labengine.engine.model_runner import ModelRunner


@pytest.fixture
def model_dir(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def edit_config(model_dir: Path, **settings: Any) -> None:
    path = model_dir / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def load(model_dir: Path) -> ModelRunner:
    return ModelRunner.load(model_dir, num_blocks=8, block_size=4, device="cpu")


def test_the_families_are_the_supported_model_types() -> None:
    assert tuple(FAMILIES) == SUPPORTED_MODEL_TYPES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported: llama, qwen3"),
        ({"model_type": None}, "model_type None is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported for llama; only 'silu' is"),
        ({"attention_bias": True}, "attention_bias=True is not supported"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window attention"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized weights are not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope type 'yarn' is not supported; supported: default"),
    ],
)
def test_settings_we_cannot_compute(model_dir: Path, settings: dict[str, Any], message: str) -> None:
    edit_config(model_dir, **settings)
    with pytest.raises(ConfigError, match=message):
        load(model_dir)


def test_config_json_missing_broken_or_incomplete(model_dir: Path) -> None:
    path = model_dir / "config.json"
    config = json.loads(path.read_text())
    del config["vocab_size"]
    for content, message in ((json.dumps(config), "lacks 'vocab_size'"), ("[1]", "one JSON object"), ("{", "not JSON")):
        path.write_text(content)
        with pytest.raises(ConfigError, match=message):
            load(model_dir)
    path.unlink()
    with pytest.raises(ConfigError, match=r"config.json is missing"):
        load(model_dir)


def test_end_tokens_come_from_generation_config_first(model_dir: Path) -> None:
    generation = model_dir / "generation_config.json"
    for content, expected in (({"eos_token_id": [7, 8]}, {7, 8}), ({"eos_token_id": 9}, {9}), ({}, {2})):
        generation.write_text(json.dumps(content))
        assert ModelConfig.load(model_dir).eos_token_ids == expected
    generation.unlink()
    edit_config(model_dir, eos_token_id=None)
    assert ModelConfig.load(model_dir).eos_token_ids == frozenset()


def test_weights_missing_truncated_or_foreign(model_dir: Path) -> None:
    path = model_dir / "model.safetensors"
    content = path.read_bytes()
    tensors = load_tensors(content)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ConfigError, match=r"model.safetensors is not a readable safetensors file"):
        load(model_dir)
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=r"lacks the tensor model.layers.1.self_attn.k_proj.weight"):
        load(model_dir)
    path.unlink()
    with pytest.raises(ConfigError, match=r"holds no \*.safetensors"):
        load(model_dir)


def test_a_loaded_model_does_not_depend_on_its_files(model_dir: Path) -> None:
    runner = ModelRunner.load(model_dir, num_blocks=8, block_size=4, device="cpu", dtype="float32")
    plan = plan_of(Dealer(8, 4).request([3, 4, 5]).take(3))
    before = runner.forward(plan)
    (model_dir / "model.safetensors").write_bytes(b"")
    assert torch.equal(runner.forward(plan), before)


def test_weights_of_another_shape(model_dir: Path) -> None:
    edit_config(model_dir, intermediate_size=64)
    with pytest.raises(ConfigError, match=r"mlp.gate_up.weight .* has shape \(160, 48\), .* asks for \(128, 48\)"):
        load(model_dir)


def test_weights_in_several_files(model_dir: Path) -> None:
    whole = load(model_dir)
    tensors = load_tensors((model_dir / "model.safetensors").read_bytes())
    names = sorted(tensors)
    (model_dir / "model.safetensors").unlink()
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, model_dir / f"model-{number}.safetensors")
    plan = plan_of(Dealer(8, 4).request([3, 4, 5]).take(3))
    assert torch.equal(load(model_dir).forward(plan), whole.forward(plan))
