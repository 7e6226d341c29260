"""Speculation on weights: greedy and sampled tokens are those without it, token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from labengine import FixedDrafts, Lab, NGram, StaticRunner
from labengine import events as ev
from labengine.config import ConfigError, SamplingParams
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.sampler import sample

REPEATS = [*[5, 17, 40, 8, 93] * 3, 5, 17]
CODE = [60, 61, 7, 60, 62, 7, 60, 61, 7, 60]
STORY = [11, 24, 37, 50, 63]


def texts(model: Path, speculation: object, *, max_tokens: int = 24, **settings: object) -> dict[int, tuple[int, ...]]:
    """All requests' tokens: greedy ones, drawn ones, and two answers to one prompt."""
    values = {"num_blocks": 64, "block_size": 4, **settings}
    with Lab(model, speculation=speculation, **values) as lab:  # type: ignore[arg-type]
        for prompt in (REPEATS, CODE, STORY):
            lab.add(token_ids=prompt, max_tokens=max_tokens, ignore_eos=True)
        lab.add(token_ids=REPEATS, max_tokens=max_tokens, temperature=0.7, top_k=20, ignore_eos=True, n=2)
        lab.run()
        assert lab.check() == [] and (lab.stats().mean_acceptance > 0) == (speculation is not None)
        assert (ev.RequestPreempted in map(type, lab.timeline.events())) == (values["num_blocks"] == 30)  # type: ignore[union-attr]
        return {request_id: request.token_ids for request_id, request in lab.snapshot().requests.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "float32"},
        {"dtype": "float32", "attention": "torch"},
        {"dtype": "bfloat16"},
        {"dtype": "float32", "num_blocks": 30},
        {"dtype": "bfloat16", "max_num_batched_tokens": 9},
        {"dtype": "bfloat16", "external": "host", "num_blocks": 40},
    ],
    ids=["float32", "torch", "bfloat16", "preempted", "chunks", "tier"],
)
def test_tokens_are_those_without_speculation(settings: dict[str, object], tiny_llama: Path) -> None:
    """The kernels compute a row alike in any batch, so that also in bfloat16 no near draw is decided otherwise.

    Where blocks run out or a prompt is cut, drafts change the chunks, and only float32 decides every draw alike.
    """
    assert texts(tiny_llama, NGram(5, 1), **settings) == texts(tiny_llama, None, **settings)


def test_recorded_decodes_judge_drafts_too(tiny_llama: Path) -> None:
    """A static runner's steps are decodes, one row per draft."""
    settings = {"dtype": "float32", "runner": StaticRunner, "max_model_len": 64}
    assert texts(tiny_llama, NGram(3, 1), **settings) == texts(tiny_llama, None, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["schedule", "forward", "sample"])
def test_a_step_broken_off_anywhere_changes_no_token(phase: str, tiny_llama: Path) -> None:
    wanted = texts(tiny_llama, None, dtype="float32")[0]
    with Lab(tiny_llama, speculation=NGram(5, 1), num_blocks=64, block_size=4, dtype="float32") as lab:
        lab.add(token_ids=REPEATS, max_tokens=24, ignore_eos=True)
        while lab.step():
            phases = lab.session.stepper.engine.phases()
            while next(phases, phase) != phase:
                pass
            phases.close()
        assert lab.snapshot().requests[0].token_ids == wanted and lab.check() == []


def test_a_guess_outside_the_vocabulary_is_refused(tiny_llama: Path) -> None:
    """Its row of the embedding table does not exist."""
    with Lab(tiny_llama, speculation=FixedDrafts((10**6,) * 100), num_blocks=64, block_size=4) as lab:
        lab.add(token_ids=STORY, max_tokens=8)
        with pytest.raises(ValueError, match=r"FixedDrafts\.propose .*token ids"):
            lab.step()
        assert lab.snapshot().requests[0].num_computed_tokens == 0


@pytest.mark.parametrize("wrong", [4, NGram, object(), "ngram"])
def test_what_is_no_proposer_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="speculation"):
        Lab("simulated", speculation=wrong)  # type: ignore[arg-type]


class NeverEnds:
    """Guesses by a generator that has no end: whoever took all of it would take all memory."""

    num_drafts, drafter = 3, "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> Iterator[int]:
        yield from range(num_tokens)
        raise AssertionError("more was taken than asked for")


def test_of_a_generator_no_more_is_taken_than_was_asked_for() -> None:
    with Lab("simulated", num_blocks=16, block_size=4, speculation=NeverEnds()) as lab:
        lab.add(token_ids=range(5), max_tokens=8)
        lab.step()
        assert lab.snapshot().requests[0].drafts == (0, 1, 2)


# -- the distribution ------------------------------------------------------------------------------------------------

CHI_SQUARE = 20.5
"""Exceeded once in 1,000 times with 5 degrees of freedom."""


def test_accepted_and_rejected_drafts_together_follow_the_model() -> None:
    """Rejection sampling: a guess x is accepted with p(x), and else the token is drawn from the rest of p."""
    logits = torch.tensor([[2.0, 1.0, 0.5, 0.0, -0.5, -1.0]])
    expected, num_draws, draft = torch.softmax(logits[0], 0), 3000, 1
    drawn: Counter[int] = Counter()
    accepted = 0
    for seed in range(num_draws):
        part = ScheduledRequest(0, (7, draft), 3, ((0, 1),), (((0, 3, 1), (1, 0, 1)),), False, True, HOT, seed, 1)
        tokens = sample(logits.repeat(2, 1), StepPlan((part,)).rows)
        accepted += tokens[0] == draft
        drawn[tokens[0]] += 1
    assert distance(drawn, expected, num_draws) < CHI_SQUARE
    assert accepted / num_draws == pytest.approx(float(expected[draft]), abs=0.02)
    del drawn[draft]
    rest = expected.clone()
    rest[draft] = 0
    assert distance(drawn, rest / rest.sum(), num_draws - accepted) < CHI_SQUARE


HOT = SamplingParams(temperature=1.0)


def distance(drawn: Counter[int], expected: torch.Tensor, num_draws: int) -> float:
    wanted = [float(share) * num_draws for share in expected]
    return sum((drawn[token] - number) ** 2 / number for token, number in enumerate(wanted) if number)


def test_the_draw_behind_an_accepted_draft_is_another_one() -> None:
    """Each position has a different uniform number: a request's tokens do not repeat because the logits do."""
    logits = torch.zeros(2, 1000)
    part = ScheduledRequest(0, (7, 8), 3, ((0, 1),), (((0, 3, 1), (1, 0, 1)),), False, True, HOT, 5, 1)
    alone = [
        sample(logits[:1], [ScheduledRequest(0, (7,), start, ((0, 1),), (((0, 3, 1),),), False, True, HOT, 5)])[0]
        for start in (3, 4)
    ]
    assert sample(logits, StepPlan((part,)).rows) == alone and alone[0] != alone[1]
