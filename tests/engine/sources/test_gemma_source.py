"""Gemma 3 out of a GGUF: weights, what the file leaves unsaid, and a tokenizer without merges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.reference import largest_difference, transformers_logits
from engine.sources.tiny_package import GEMMA_TOKENS, write_gemma_gguf
from labengine.engine.model_runner import ModelRunner
from labengine.engine.sources.gguf_model import convert
from labengine.engine.sources.gguf_tokenizers import derived_merges
from labengine.engine.tokenizer import HuggingFaceTokenizer

TOKENS = [token for tokens in GEMMA_TOKENS.values() for token in tokens]


@pytest.fixture(scope="module")
def original(tiny_model: Callable[..., Path]) -> Path:
    """Seven layers, the sixth of them full, with the ropes and the scale of every Gemma 3."""
    return tiny_model(
        "gemma3", vocab_size=len(TOKENS), num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=16, head_dim=16
    )


@pytest.fixture(scope="module")
def gguf(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "gemma.gguf"
    write_gemma_gguf(path, original)
    return path


@pytest.fixture(scope="module")
def converted(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("converted")
    convert(gguf, out, lambda _: None)
    return out


def test_weights_are_the_originals(original: Path, converted: Path) -> None:
    expected, found = load_file(original / "model.safetensors"), load_file(converted / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        wanted = (tensor + 1 - 1 if "norm" in name else tensor).bfloat16()  # adding 1 costs the last bits
        assert torch.equal(found[name], wanted), name


def test_config_json_says_what_the_gguf_does_not(original: Path, converted: Path) -> None:
    expected, found = (json.loads((path / "config.json").read_text()) for path in (original, converted))
    for name in ("layer_types", "rope_parameters", "query_pre_attn_scalar", "sliding_window", "hidden_activation"):
        assert found[name] == expected[name], name
    assert found["layer_types"][5] == "full_attention" and found["layer_types"].count("sliding_attention") == 6
    assert found["rope_parameters"]["sliding_attention"]["rope_theta"] == 1e4


def test_the_converted_model_computes_as_transformers_does(converted: Path) -> None:
    text = [token_id % len(TOKENS) for token_id in range(0, 90, 3)]
    runner = ModelRunner.load(converted, num_blocks=60, block_size=4, device="cpu", dtype="float32")
    expected = transformers_logits(converted)(text)
    assert largest_difference(runner, [text], [expected], chunk=7, num_decodes=3) < 1e-4


def test_merges_come_in_the_order_of_the_vocabulary() -> None:
    """abc can be made in two ways; the one with the longer left part is tried first."""
    assert list(derived_merges(["a", "b", "c", "bc", "ab", "abc", "xyz"])) == [
        ("b", "c"),
        ("a", "b"),
        ("ab", "c"),
        ("a", "bc"),
    ]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("abc", ["abc"]),
        ("ab a", ["ab", "▁a"]),
        ("a  b", ["a", "▁▁", "b"]),
        ("\n\na", ["\n\n", "a"]),
        ("[x]<bos>", ["[x]", "<bos>"]),
        ("é", ["<0xC3>", "<0xA9>"]),
        ("<0xC3>", ["<0xC", "3>"]),
    ],
)
def test_text_becomes_tokens_and_back(text: str, tokens: list[str], converted: Path) -> None:
    tokenizer = HuggingFaceTokenizer(converted)
    ids = tokenizer.encode(text)
    spelled = ["▁▁" if token == "  " else token for token in TOKENS]
    assert [spelled[token_id] for token_id in ids] == ["<bos>", *tokens]
    assert tokenizer.decode(ids[1:], skip_special_tokens=False) == text
