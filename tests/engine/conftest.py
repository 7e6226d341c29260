"""Models for the engine's tests: the real one, prepared once, and tiny random ones made by transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from labengine.engine.model_runner import ModelRunner
from labengine.engine.sources import model_path

SIZES = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return model_path("smollm2")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Save a random model of transformers' own making; returns its directory."""

    def make(family: str = "llama", **settings: Any) -> Path:
        import transformers

        config_class, model_class = {
            "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
            "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
            "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
            "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
            "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
        }[family]
        torch.manual_seed(0)
        model = model_class(config_class(**{**SIZES, **settings}))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:  # all alike after initialization: a wrong norm would go unseen
                    parameter.uniform_(-0.5, 0.5).add_(family != "gemma3")  # Gemma's norms multiply by 1 + weight
        directory = tmp_path_factory.mktemp(family)
        model.save_pretrained(directory)
        return directory

    return make


@pytest.fixture(scope="session")
def tiny_llama(tiny_model: Callable[..., Path]) -> Path:
    return tiny_model("llama", tie_word_embeddings=True)


@pytest.fixture(scope="session")
def tiny_gemma(tiny_model: Callable[..., Path]) -> Path:
    """Eight layers, six with a window of 8: three groups of two layers with it, and one without."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"] * 2
    return tiny_model("gemma3", num_hidden_layers=8, sliding_window=8, layer_types=kinds, query_pre_attn_scalar=24)


@pytest.fixture
def hybrid_runner(tiny_gemma: Path) -> ModelRunner:
    return ModelRunner.load(tiny_gemma, num_blocks=64, block_size=4, device="cpu")


@pytest.fixture
def tiny_runner(tiny_llama: Path) -> ModelRunner:
    return ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu")
