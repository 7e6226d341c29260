"""Models with states and mixtures in bfloat16: the tokens are those of a request alone, whatever the scheduler does.

Tokens of a batch may differ from those alone only by rounding: sums of other shapes end in other last bits. So there
are two tests. With each sum computed in float64 all tokens are equal, which a state of the wrong position or of too few
bits would not give. With the engine's own sums, a token that differs was a near tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

import labengine
from engine.plan_builder import Dealer, plan_of
from engine.state_models import models, save_state_model
from engine.test_states_in_the_engine import LONG, NUM_NEW, PROMPTS, of_kind, sampled
from labengine.engine import mixers, mlp
from labengine.engine.attention import torch_gather
from labengine.engine.model_runner import ModelRunner
from labengine.engine.ops import torch_ops
from labengine.events import BlockFreed, DraftsJudged, PrefixHit

NEAR = 2
"""Two logits are a near tie within this many steps of bfloat16."""
COMMON: dict[str, Any] = {"block_size": 4, "device": "cpu", "dtype": "bfloat16"}
BATCHES: dict[str, dict[str, Any]] = {
    "preempted": {"num_blocks": 30},
    "in small chunks": {"num_blocks": 100, "max_num_batched_tokens": 9},
    "two at a time": {"num_blocks": 200, "max_num_seqs": 2, "block_size": 7},
    "edition vllm": {"num_blocks": 60, "edition": "vllm"},
}
WITH_DRAFTS: dict[str, dict[str, Any]] = {
    "at once": {"num_blocks": 300},
    "preempted": {"num_blocks": 26},
    "in small chunks": {"num_blocks": 150, "max_num_batched_tokens": 16, "max_num_seqs": 3},
}


@dataclass(frozen=True)
class MostlyRight:
    """Guesses the tokens of known texts, every third position wrongly; of other texts one token again and again."""

    texts: tuple[tuple[int, ...], ...]
    num_drafts: int = 3
    drafter: str = "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return what follows in the text that begins like this one."""
        start = len(token_ids)
        known = next((text for text in self.texts if text[:start] == tuple(token_ids)), None)
        if known is None:
            return (5,) * num_tokens
        return tuple(3 if p % 3 == 0 else known[p] for p in range(start, min(start + num_tokens, len(known))))


@pytest.fixture(scope="module", params=models())
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_state_model(request.param, tmp_path_factory.mktemp("model"))


def tokens_of(model_dir: Path, prompts: Sequence[list[int]], **settings: Any) -> tuple[list[list[int]], labengine.Lab]:
    lab = labengine.Lab(model_dir, **{**COMMON, "num_blocks": 200, **settings})
    for prompt in prompts:
        lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
    lab.run()
    assert lab.violations == []
    tokens = [sampled(lab, request) for request in range(len(prompts))]
    lab.close()
    return tokens, lab


def alone(model_dir: Path) -> list[list[int]]:
    """Each prompt in a separate lab, in one chunk."""
    return [tokens_of(model_dir, [prompt])[0][0] for prompt in PROMPTS]


def guesses(expected: list[list[int]]) -> MostlyRight:
    return MostlyRight(tuple((*prompt, *tokens) for prompt, tokens in zip(PROMPTS, expected, strict=True)))


# -- exact sums --------------------------------------------------------------------------------------------------------


class WideProduct:
    """A replacement for oneDNN's product, with float64 sums."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach().double()

    def __call__(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return linear(hidden.double(), self._weight).to(hidden.dtype)


def wide(scan: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, ...]]:
    return lambda *inputs: tuple(out.float() for out in scan(*(tensor.double() for tensor in inputs)))


@contextmanager
def exact_sums() -> Iterator[None]:
    """Compute products, attention and recurrences in float64, and round where the model rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_ops, "PackedProduct", WideProduct)
        patch.setattr(torch_ops, "_trial", lambda dtype: None)  # its verdict on the real product is kept for later
        patch.setattr(mlp, "linear", lambda hidden, weight: linear(hidden.double(), weight.double()).to(hidden.dtype))
        patch.setattr(
            torch_gather,
            "scaled_dot_product_attention",
            lambda q, k, v, **how: scaled_dot_product_attention(q.double(), k.double(), v.double(), **how),
        )
        for name in ("delta_scan", "mamba2_scan"):
            patch.setattr(mixers, name, wide(getattr(mixers, name)))
        yield


@pytest.fixture(scope="module")
def exact(model_dir: Path) -> list[list[int]]:
    """The tokens of each request alone, with exact sums."""
    with exact_sums():
        return alone(model_dir)


@pytest.fixture
def _exact_sums() -> Iterator[None]:
    with exact_sums():
        yield


@pytest.mark.usefixtures("_exact_sums")
@pytest.mark.parametrize("settings", BATCHES.values(), ids=BATCHES)
def test_with_exact_sums_all_tokens_are_those_of_a_request_alone(
    settings: dict[str, Any], model_dir: Path, exact: list[list[int]]
) -> None:
    tokens, lab = tokens_of(model_dir, PROMPTS, **settings)
    assert tokens == exact
    preempted = [event for event in of_kind(lab, BlockFreed) if event.reason == "preempted"]
    assert bool(preempted) == (settings["num_blocks"] < 100)


@pytest.mark.usefixtures("_exact_sums")
@pytest.mark.parametrize("settings", WITH_DRAFTS.values(), ids=WITH_DRAFTS)
def test_with_exact_sums_rejected_drafts_change_no_token(
    settings: dict[str, Any], model_dir: Path, exact: list[list[int]]
) -> None:
    tokens, lab = tokens_of(model_dir, PROMPTS, speculation=guesses(exact), **settings)
    assert tokens == exact
    judged = of_kind(lab, DraftsJudged)
    assert sum(event.num_accepted for event in judged) > 20 < sum(event.num_rejected for event in judged)


@pytest.mark.usefixtures("_exact_sums")
def test_with_exact_sums_a_prefix_hit_changes_no_token(model_dir: Path) -> None:
    prompt = [*LONG, 7, 8, 9]
    (expected,), _ = tokens_of(model_dir, [prompt])
    with labengine.Lab(model_dir, **COMMON, num_blocks=200) as lab:
        for _ in range(2):
            lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
            lab.run()
        assert sampled(lab, 0) == sampled(lab, 1) == expected
        assert [hit.num_tokens for hit in of_kind(lab, PrefixHit)] == [0, 52]


# -- the engine's own sums ---------------------------------------------------------------------------------------------


def assert_near_tie(model_dir: Path, prompt: list[int], expected: list[int], tokens: list[int]) -> None:
    """Check that the first token that differs has about the logit of the expected one, in the request alone."""
    first = next(index for index in range(NUM_NEW) if tokens[index] != expected[index])
    runner = ModelRunner.load(model_dir, num_blocks=100, block_size=4, device="cpu", dtype="bfloat16")
    text = [*prompt, *expected[:first]]
    logits = runner.forward(plan_of(Dealer(100, runner.groups).request(text).take(len(text))))[0]
    runner.release()  # else a test with exact sums may share its weights, whose products are oneDNN's
    best, other = logits[expected[first]].item(), logits[tokens[first]].item()
    step = torch.finfo(torch.bfloat16).eps * max(abs(best), abs(other))
    assert abs(best - other) <= NEAR * step, f"logits {best} and {other} are no tie"


@pytest.fixture(scope="module")
def rounded(model_dir: Path) -> list[list[int]]:
    """The tokens of each request alone."""
    return alone(model_dir)


@pytest.mark.parametrize("settings", [*BATCHES.values(), "drafts"], ids=[*BATCHES, "drafts"])
def test_a_token_that_differs_was_a_near_tie(
    settings: dict[str, Any] | str, model_dir: Path, rounded: list[list[int]]
) -> None:
    values = settings if isinstance(settings, dict) else {"num_blocks": 300, "speculation": guesses(rounded)}
    tokens, _ = tokens_of(model_dir, PROMPTS, **values)
    differing = [one for one in zip(PROMPTS, rounded, tokens, strict=True) if one[1] != one[2]]
    for one in differing:
        assert_near_tie(model_dir, *one)
    assert len(differing) <= 1, "of 7 requests"
