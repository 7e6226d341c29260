"""A model's groups, block sizes and bytes from config.json alone, as vLLM builds them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError, EngineConfig
from labengine.prefix_doctor.asked import Asked
from labengine.prefix_doctor.play.model_config import Capacity, ModelFacts, model_of

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "vllm-model-groups.json").read_text())["models"]
KINDS = {"SlidingWindowSpec": "sliding_window", "MambaSpec": "state"}


def _model(folder: Path, config: object, **settings: Any) -> ModelFacts:
    (folder / "config.json").write_text(json.dumps(config))
    return model_of(folder, **settings)


@pytest.mark.parametrize("name", GOLDEN)
def test_groups_and_bytes_are_those_of_vllm(name: str, tmp_path: Path) -> None:
    assert GOLDEN[name]["cases"]
    for case in GOLDEN[name]["cases"]:
        facts = _model(tmp_path, GOLDEN[name]["config"], block_size=case["block_size"], kv_dtype=case["kv_dtype"])
        assert [_row(*group) for group in case["groups"]] == [
            (group.kind, group.block_size, group.window, group.checkpoint_alignment) for group in facts.groups
        ]
        assert (facts.bytes_per_block, facts.blocks_in(8)) == (case["bytes_per_block"], case["num_blocks"])
        assert facts.blocks_per_request(8192, 2048) == case["blocks_per_request"]
        EngineConfig(groups=facts.groups)  # the player can be given them


def _row(spec: str, block_size: int, window: int | None, num_layers: int, checkpoint: int | None) -> tuple[object, ...]:
    kind = KINDS.get(spec, "full")
    return kind, block_size, window if kind == "sliding_window" else None, checkpoint


def test_the_capacity_of_a_well_known_model(tmp_path: Path) -> None:
    facts = _model(tmp_path, GOLDEN["llama-3.1-8b"]["config"])
    assert facts.bytes_per_token == 128 * 1024
    assert facts.blocks_in(1.0) == 512
    assert facts.capacity(EngineConfig(512)) == Capacity(2 << 20, 8192, 131_072)


def test_the_report_tells_the_capacity_and_what_depends_on_the_engine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOLDEN["deepseek-v3"]["config"]))
    (tmp_path / "prompts").write_text('{"prompt": [1, 2, 3]}')
    diagnosis = labengine.doctor(tmp_path / "prompts", model=tmp_path, gib=40)
    capacity = {"bytes_per_block": 1_124_352, "num_tokens": 611_184, "request_tokens": 163_840}
    assert diagnosis.to_dict()["capacity"] == capacity
    assert "holds 611,184 tokens" in str(diagnosis) and "Kernels for MLA" in str(diagnosis)


def test_windows_and_states_are_kept_as_vllm_keeps_them_by_default(tmp_path: Path) -> None:
    for name, interval in (("llama-3.1-8b", None), ("gpt-oss-20b", 0), ("lfm2-1.2b", 0)):
        (tmp_path / "config.json").write_text(json.dumps(GOLDEN[name]["config"]))
        assert Asked(num_blocks=5000, model=tmp_path).setting(None, 1).config.retention_interval == interval


def test_the_text_model_of_a_multimodal_file_counts(tmp_path: Path) -> None:
    text = GOLDEN["gemma-3-27b"]["config"]
    assert _model(tmp_path, {"model_type": "gemma3", "text_config": text}) == _model(tmp_path, text)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "deepseek_v4"}, "'deepseek_v4' is unknown.*--kv-bytes-per-token N"),
        ({}, "model_type.*unknown"),
        ([], "one JSON object"),
        ({"model_type": "llama", "num_hidden_layers": 2}, "num_attention_heads must be an integer above 0, got None"),
        (
            {"model_type": "llama", "num_hidden_layers": 10**8, "num_attention_heads": 1, "hidden_size": 8},
            "at most 10,000",
        ),
        ({"model_type": "llama", "num_hidden_layers": 2, "layer_types": ["full_attention"]}, "each of 2 layers"),
        ({"model_type": "llama", "num_hidden_layers": 1, "layer_types": [{}]}, "layer_types has {}; known"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "must be an integer above 0"),
    ],
)
def test_a_file_that_says_too_little_is_refused_in_a_sentence(config: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        _model(tmp_path, config)


def test_no_mutated_config_ends_in_another_error(tmp_path: Path) -> None:
    rng, models = Random(4), list(GOLDEN.values())
    for _ in range(200):
        config = rng.choice(models)["config"]
        wrong: Any = rng.choice((None, 0, -1, "x", [], {}, [{}], 1.5, True, 10**30))
        with suppress(ConfigError):
            _model(tmp_path, config | {rng.choice(list(config)): wrong})


def test_a_pool_smaller_than_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not fit into 0\.001 GiB"):
        _model(tmp_path, GOLDEN["llama-3.1-8b"]["config"]).blocks_in(0.001)
    with pytest.raises(ConfigError, match="cannot be read"):
        model_of(tmp_path / "nothing")
