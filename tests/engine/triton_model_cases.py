"""Complete models through the Triton backend, against transformers. Run by test_triton.py, interpreted or on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from engine.reference import Reference, largest_difference, poison, transformers_logits
from engine.triton_device import DEVICE
from labengine.engine.model_runner import ModelRunner


@pytest.fixture(autouse=True)
def exact_float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def load(model_dir: Path, block_size: int, num_blocks: int) -> ModelRunner:
    sizes = {"num_blocks": num_blocks, "block_size": block_size, "max_num_seqs": 2}
    runner = ModelRunner.load(model_dir, **sizes, device=DEVICE, dtype="float32", attention="triton")
    assert runner.describe()["attention"].startswith("triton (asked for)")
    return runner


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma3", marks=pytest.mark.sweep)])
def test_logits_equal_transformers(family: str, tiny_llama: Path, tiny_gemma: Path) -> None:
    """Chunks among decodes; one of the families has windows of 8, and three groups with them."""
    model_dir = tiny_gemma if family == "gemma3" else tiny_llama
    texts = [Random(length).choices(range(101), k=length) for length in (5, 23)]
    expected = [transformers_logits(model_dir)(text) for text in texts]
    runner = load(model_dir, block_size=3, num_blocks=60)
    assert largest_difference(runner, texts, expected, chunk=9, num_decodes=2) < 1e-4


@pytest.mark.sweep
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tokens_equal_transformers(family: str, tiny_model: Callable[..., Path]) -> None:
    """Greedily, two prompts together, in blocks of which every slot is NaN until it is written."""
    model_dir = tiny_model(family)
    prompts = [[1, 5, 9, 40, 77, 3, 12], [1, 60]]
    runner, num_new = load(model_dir, block_size=4, num_blocks=12), 8
    dealer = Dealer(runner.kv_tensors.num_blocks, runner.groups)
    poison(runner, range(dealer.num_blocks))
    requests = [dealer.request(prompt + [0] * num_new) for prompt in prompts]
    compute(runner, requests, [len(prompt) for prompt in prompts])
    for _ in range(num_new - 1):
        compute(runner, requests, [1, 1])
    reference = transformers_logits(model_dir)
    assert [request.token_ids for request in requests] == [greedy(reference, prompt, num_new) for prompt in prompts]


def compute(runner: ModelRunner, requests: list[HandMadeRequest], num_tokens: list[int]) -> None:
    """One step; what was sampled becomes the next token."""
    logits = runner.forward(plan_of(*(request.take(n) for request, n in zip(requests, num_tokens, strict=True))))
    for request, token in zip(requests, logits.argmax(-1).tolist(), strict=True):
        request.token_ids[request.num_computed] = token


def greedy(reference: Reference, prompt: list[int], num_new: int) -> list[int]:
    text = list(prompt)
    for _ in range(num_new):
        text.append(int(reference(text)[-1].argmax()))
    return text
