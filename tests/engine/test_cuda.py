"""The same comparisons on a GPU: ours against transformers there, and bfloat16 against float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

from engine.reference import largest_difference, transformers_logits
from labengine.engine.model_runner import ModelRunner
from labengine.engine.tokenizer import Tokenizer

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def exact_float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_tiny_models_in_float32(family: str, tiny_model: Callable[..., Path], tiny_gemma: Path) -> None:
    model_dir = tiny_gemma if family == "gemma3" else tiny_model(family)
    texts = [Random(length).choices(range(101), k=length) for length in (5, 23, 90, 41)]
    expected = [transformers_logits(model_dir)(text) for text in texts]
    for block_size in (3, 16):
        runner = ModelRunner.load(model_dir, num_blocks=300, block_size=block_size, device="cuda", dtype="float32")
        assert largest_difference(runner, texts, expected, chunk=7, num_decodes=4) < 1e-3


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-2), ("bfloat16", 1.0)])
def test_smollm2(dtype: str, tolerance: float, smollm2: Path) -> None:
    """bfloat16 keeps 8 bits of a logit of about 20, through 30 layers: the argmax is what should hold."""
    tokenizer = Tokenizer(smollm2)
    texts = [
        tokenizer.encode(text) for text in ("The capital of France is Paris. The capital of Japan is", "1, 2, 3, 4,")
    ]
    expected = [transformers_logits(smollm2, device="cuda")(text) for text in texts]
    runner = ModelRunner.load(smollm2, num_blocks=64, block_size=16, device="cuda", dtype=dtype)
    assert largest_difference(runner, texts, expected, chunk=7, num_decodes=3) < tolerance


def test_the_gpu_is_the_default(smollm2: Path) -> None:
    runner = ModelRunner.load(smollm2, num_blocks=8, block_size=16)
    assert runner.describe()["device"].startswith("cuda")
    assert runner.describe()["dtype"].startswith("bfloat16")


def test_a_pool_for_a_larger_gpu_is_refused(smollm2: Path) -> None:
    from labengine.config import ConfigError

    with pytest.raises(ConfigError, match="GiB for the KV pool, but cuda"):
        ModelRunner.load(smollm2, num_blocks=10**8, block_size=16, device="cuda")
