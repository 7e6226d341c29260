"""Logits of the real SmolLM2 in fp32, against transformers on the same directory: teacher-forced, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from engine.reference import largest_difference, transformers_logits
from labengine.engine.model_runner import ModelRunner
from labengine.engine.tokenizer import HuggingFaceTokenizer

PROMPTS = (
    "Once upon a time there was a small engine that",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Japan is",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,",
    "Hi",
)
NUM_DECODES = 3


@pytest.fixture(scope="module")
def texts(smollm2: Path) -> list[list[int]]:
    tokenizer = HuggingFaceTokenizer(smollm2)
    continuation = tokenizer.encode(" and so on")
    return [tokenizer.encode(prompt) + continuation[:NUM_DECODES] for prompt in PROMPTS]


@pytest.fixture(scope="module")
def expected(smollm2: Path, texts: list[list[int]]) -> list[Tensor]:
    reference = transformers_logits(smollm2)
    return [reference(text) for text in texts]


def test_the_weights_know_something(texts: list[list[int]], expected: list[Tensor], smollm2: Path) -> None:
    """Converted wrongly, a model computes as well as ever, and babbles."""
    last = len(texts[2]) - NUM_DECODES - 1
    assert HuggingFaceTokenizer(smollm2).decode([int(expected[2][last].argmax())]) == " Tokyo"


@pytest.mark.parametrize(
    "block_size", [3, 16, pytest.param(4, marks=pytest.mark.sweep), pytest.param(256, marks=pytest.mark.sweep)]
)
def test_logits_equal_transformers(
    block_size: int, smollm2: Path, texts: list[list[int]], expected: list[Tensor]
) -> None:
    num_blocks = sum(-(-len(text) // block_size) for text in texts)
    runner = ModelRunner.load(smollm2, num_blocks=num_blocks, block_size=block_size, device="cpu", dtype="float32")
    assert largest_difference(runner, texts, expected, chunk=7, num_decodes=NUM_DECODES) < 1e-3
