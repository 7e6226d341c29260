"""Model directories that are broken, foreign or not supported: each is refused, and the trouble is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file

from engine.plan_builder import Dealer, plan_of
from labengine.config import ConfigError
from labengine.engine.model_files.config_file import load_config
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' .*llama, mistral, mixtral, qwen3"),
        ({"hidden_act": "gelu"}, "hidden_act must be 'silu' for llama, got 'gelu'"),
        ({"attention_bias": True}, "attention_bias must be .*, got True"),
        (
            {"layer_types": ["full_attention", "sliding_attention"] * 2},
            r"layer_types\[1\] must be 'full_attention', got",
        ),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ],
)
def test_settings_we_cannot_compute(model_dir: Path, settings: dict[str, Any], message: str) -> None:
    edit_config(model_dir, **settings)
    with pytest.raises(ConfigError, match=message):
        load(model_dir)


def test_phi3_was_trained_on_some_positions(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    """Of one position the paper's factor would divide by the logarithm of 1."""
    model_dir = Path(shutil.copytree(tiny_model("phi3", hidden_size=96, pad_token_id=0), tmp_path / "phi3"))
    edit_config(model_dir, original_max_position_embeddings=1)
    with pytest.raises(ConfigError, match=r"original_max_position_embeddings .* 2"):
        load(model_dir)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "linear", "factor": 2.0}, "'linear' .*phi3.*default, longrope"),
        ({"rope_type": "longrope", "long_factor": [1.0] * 8}, "short_factor.*longrope"),
        ({"type": "su", "short_factor": [1.0] * 8, "long_factor": [1.0]}, "long_factor .* 8 "),
    ],
)
def test_ropes_of_phi3_we_cannot_compute(
    tiny_model: Callable[..., Path], tmp_path: Path, rope: dict[str, Any], message: str
) -> None:
    model_dir = Path(shutil.copytree(tiny_model("phi3", hidden_size=96, pad_token_id=0), tmp_path / "phi3"))
    edit_config(model_dir, rope_parameters=rope)
    with pytest.raises(ConfigError, match=message):
        load(model_dir)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_activation": "gelu"}, "hidden_activation must be .* for gemma3_text, got 'gelu'"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping must be .*, got 30.0"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping must be .*, got 50.0"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention must be .*, got True"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope type 'yarn' "),
    ],
)
def test_gemma_settings_we_cannot_compute(
    tiny_gemma: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    model_dir = Path(shutil.copytree(tiny_gemma, tmp_path / "gemma"))
    edit_config(model_dir, **settings)
    with pytest.raises(ConfigError, match=message):
        load(model_dir)


def test_a_config_of_before_transformers_5(tiny_gemma: Path, tmp_path: Path) -> None:
    """The spelling of Gemma's own files on the hub, and what they leave out."""
    model_dir = Path(shutil.copytree(tiny_gemma, tmp_path / "gemma"))
    new = load_config(model_dir)
    path = model_dir / "config.json"
    config = json.loads(path.read_text())
    for name in ("rope_parameters", "layer_types", "tie_word_embeddings"):
        del config[name]
    path.write_text(json.dumps({**config, "rope_theta": 5e5, "rope_local_base_freq": 1e3, "rope_scaling": None}))
    old = load_config(model_dir)
    assert old.tie_word_embeddings and old.attention_scale == new.attention_scale == 24**-0.5
    assert [layer.window for layer in old.layers] == [8] * 5 + [None] + [8] * 2, "every sixth layer, as in transformers"
    assert [layer.rope.theta for layer in old.layers] == [1e3] * 5 + [5e5] + [1e3] * 2
    path.write_text(json.dumps({**config, "sliding_window_pattern": 2}))
    assert [layer.window for layer in load_config(model_dir).layers] == [8, None] * 4
    assert {layer.rope.theta for layer in load_config(model_dir).layers} == {1e4, 1e6}


def test_end_tokens_come_from_generation_config_first(model_dir: Path) -> None:
    generation = model_dir / "generation_config.json"
    for content, expected in (({"eos_token_id": [7, 8]}, {7, 8}), ({"eos_token_id": 9}, {9}), ({}, {2})):
        generation.write_text(json.dumps(content))
        assert load_config(model_dir).eos_token_ids == expected
    generation.unlink()
    edit_config(model_dir, eos_token_id=None)
    assert load_config(model_dir).eos_token_ids == frozenset()


def test_a_loaded_model_does_not_depend_on_its_files(model_dir: Path) -> None:
    runner = ModelRunner.load(model_dir, num_blocks=8, block_size=4, device="cpu", dtype="float32")
    plan = plan_of(Dealer(8, 4).request([3, 4, 5]).take(3))
    before = runner.forward(plan)
    (model_dir / "model.safetensors").write_bytes(b"")
    assert torch.equal(runner.forward(plan), before)


def test_weights_of_another_shape(model_dir: Path) -> None:
    edit_config(model_dir, intermediate_size=64)
    with pytest.raises(ConfigError, match=r"mlp.gate_proj.weight .*\(80, 48\).*\(64, 48\)"):
        load(model_dir)


def test_weights_in_several_files(model_dir: Path) -> None:
    intact = load(model_dir)
    tensors = load_tensors((model_dir / "model.safetensors").read_bytes())
    names = sorted(tensors)
    (model_dir / "model.safetensors").unlink()
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, model_dir / f"model-{number}.safetensors")
    plan = plan_of(Dealer(8, 4).request([3, 4, 5]).take(3))
    assert torch.equal(load(model_dir).forward(plan), intact.forward(plan))
