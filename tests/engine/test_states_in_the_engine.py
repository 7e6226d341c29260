"""Models with states in labs: transformers' greedy tokens, whatever the scheduler and the cache do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

import labengine
from engine.state_models import models, save_state_model
from labengine.core.step_plan import StepPlan
from labengine.engine.model_runner import ModelRunner
from labengine.events import BlockFreed, DraftsJudged, PrefixHit, RequestScheduled, StateAdvanced

NUM_NEW = 12
BLOCK = 4
Tokens = Callable[[list[int]], list[int]]


def text(seed: int, length: int) -> list[int]:
    return Random(seed).choices(range(3, 101), k=length)


LONG = text(1, 50)
PROMPTS = [text(2, 20), text(3, 33), text(4, 5), LONG, [*text(2, 20), 7, 8, 9], LONG, [*LONG[:30], 5, 6]]


@pytest.fixture(scope="module", params=models())
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_state_model(request.param, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def greedy(model_dir: Path) -> Iterator[Tokens]:
    """transformers' own generation, each prompt once."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True).eval()
    known: dict[tuple[int, ...], list[int]] = {}

    def tokens(prompt: list[int]) -> list[int]:
        key = tuple(prompt)
        if key not in known:
            settings: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            row = model.generate(torch.tensor([prompt]), max_new_tokens=NUM_NEW, **settings)[0].tolist()
            known[key] = row[len(prompt) :]
        return known[key]

    yield tokens


@pytest.fixture
def lab_of(model_dir: Path) -> Iterator[Callable[..., labengine.Lab]]:
    labs: list[labengine.Lab] = []

    def make(**settings: Any) -> labengine.Lab:
        settings = {"num_blocks": 200, "block_size": BLOCK, "device": "cpu", **settings}
        labs.append(labengine.Lab(model_dir, **settings))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


def sampled(lab: labengine.Lab, request_id: int) -> list[int]:
    request = lab.snapshot().requests[request_id]
    return list(request.token_ids[request.num_prompt_tokens :])


def of_kind(lab: labengine.Lab, kind: type) -> list[Any]:
    return [event for event in lab.timeline.events() if isinstance(event, kind)]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_blocks": 200},
        {"num_blocks": 30},
        {"num_blocks": 100, "max_num_batched_tokens": 9},
        {"num_blocks": 200, "max_num_seqs": 2, "block_size": 7},
        {"num_blocks": 60, "edition": "vllm"},
    ],
    ids=["at once", "preempted", "in small chunks", "two at a time", "edition vllm"],
)
def test_tokens_are_those_of_transformers(
    settings: dict[str, Any], lab_of: Callable[..., labengine.Lab], greedy: Tokens
) -> None:
    lab = lab_of(**settings)
    for prompt in PROMPTS:
        lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
    lab.run()
    assert [sampled(lab, request) for request in range(len(PROMPTS))] == [greedy(prompt) for prompt in PROMPTS]
    assert lab.violations == []
    preempted = [event for event in of_kind(lab, BlockFreed) if event.reason == "preempted"]
    assert bool(preempted) == (settings["num_blocks"] < 100)


@pytest.mark.parametrize(
    "settings", [{"num_blocks": 200}, {"num_blocks": 34}, {"num_blocks": 200, "max_num_batched_tokens": 24}]
)
def test_a_state_inside_a_chunk_is_that_of_its_tokens(
    settings: dict[str, Any], model_dir: Path, lab_of: Callable[..., labengine.Lab], greedy: Tokens
) -> None:
    """Prompts are hit at states that were left inside a chunk; layers without such states are asked for none."""
    lab = lab_of(edition="vllm", **settings)
    again = [LONG, text(3, 33), [*LONG, 9]]
    for prompt in (*PROMPTS, *again):
        lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
        lab.run()
    wanted = [greedy(prompt) for prompt in (*PROMPTS, *again)]
    assert [sampled(lab, request) for request in range(len(wanted))] == wanted
    assert lab.violations == []
    has_some_inside = len(of_kind(lab, StateAdvanced)) > len(of_kind(lab, RequestScheduled))
    family = json.loads((model_dir / "config.json").read_text())["model_type"]
    assert has_some_inside == (family in ("bamba", "granitemoehybrid"))
    assert max(event.num_tokens for event in of_kind(lab, PrefixHit)) == 48


@dataclass(frozen=True)
class MostlyRight:
    """Guesses the tokens of known texts, every third position of them wrongly."""

    texts: tuple[tuple[int, ...], ...]
    num_drafts: int = 3
    drafter: str = "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return what follows in the text that begins like this one."""
        start = len(token_ids)
        known = next(text for text in self.texts if text[:start] == tuple(token_ids))
        guessed = known[start : start + num_tokens]
        return tuple(3 if position % 3 == 0 else token for position, token in enumerate(guessed, start))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_blocks": 300},
        {"num_blocks": 26},
        {"num_blocks": 150, "max_num_batched_tokens": 16, "max_num_seqs": 3},
        {"num_blocks": 200, "block_size": 2},
        {"num_blocks": 120, "edition": "vllm"},
    ],
    ids=["at once", "preempted", "in small chunks", "drafts longer than a block", "edition vllm"],
)
def test_rejected_drafts_are_in_no_state(
    settings: dict[str, Any], lab_of: Callable[..., labengine.Lab], greedy: Tokens
) -> None:
    """The tokens are transformers' own: whatever is accepted, preempted, hit or computed in chunks."""
    texts = tuple((*prompt, *greedy(prompt)) for prompt in PROMPTS)
    lab = lab_of(speculation=MostlyRight(texts), **settings)
    for prompt in PROMPTS:
        lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
    lab.run()
    assert [sampled(lab, request) for request in range(len(PROMPTS))] == [greedy(prompt) for prompt in PROMPTS]
    assert lab.violations == []
    judged = of_kind(lab, DraftsJudged)
    assert sum(event.num_accepted for event in judged) > 20 < sum(event.num_rejected for event in judged)
    preempted = [event for event in of_kind(lab, BlockFreed) if event.reason == "preempted"]
    assert bool(preempted) == (settings["num_blocks"] == 26)


def test_forks_of_a_request_with_drafts_go_on_from_the_accepted_state(
    lab_of: Callable[..., labengine.Lab], greedy: Tokens
) -> None:
    lab = lab_of(speculation=MostlyRight(((*LONG, *greedy(LONG)),)))
    lab.add(token_ids=LONG, n=2, max_tokens=NUM_NEW, ignore_eos=True)
    lab.run()
    assert [sampled(lab, request) for request in range(2)] == [greedy(LONG)] * 2
    for num_steps in range(2, 5):
        parent = int(lab.add(token_ids=LONG, max_tokens=NUM_NEW, ignore_eos=True))
        for _ in range(num_steps):
            lab.step()
        branch = int(lab.branch(parent))
        lab.run()
        assert sampled(lab, parent) == sampled(lab, branch) == greedy(LONG)
    assert lab.violations == []


def test_a_prefix_hit_goes_on_from_a_cached_state(lab_of: Callable[..., labengine.Lab], greedy: Tokens) -> None:
    lab = lab_of()
    for prompt in (LONG, LONG, [*LONG, *text(9, 11)], [*LONG[:-1], 3 if LONG[-1] != 3 else 4]):
        request = lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
        lab.run()
        assert sampled(lab, int(request)) == greedy(prompt)
    assert [hit.num_tokens for hit in of_kind(lab, PrefixHit)] == [0, 48, 48, 48]


def test_requests_that_share_a_prompt_copy_its_state(lab_of: Callable[..., labengine.Lab], greedy: Tokens) -> None:
    """One prompt computed once; each of its continuations writes to a state of its own."""
    lab = lab_of()
    lab.add(token_ids=LONG, n=3, max_tokens=NUM_NEW, ignore_eos=True)
    lab.run()
    assert [sampled(lab, request) for request in range(3)] == [greedy(LONG)] * 3
    lab.add(token_ids=LONG, max_tokens=NUM_NEW, ignore_eos=True)
    for _ in range(6):
        lab.step()
    lab.branch(3)
    lab.run()
    assert sampled(lab, 3) == sampled(lab, 4) == greedy(LONG)


def test_a_fork_of_the_lab_computes_the_state_anew(lab_of: Callable[..., labengine.Lab], greedy: Tokens) -> None:
    lab = lab_of()
    lab.add(token_ids=LONG, max_tokens=NUM_NEW, ignore_eos=True)
    for _ in range(5):
        lab.step()
    other = lab.fork()
    other.run()
    lab.run()
    assert sampled(lab, 0) == sampled(other, 0) == greedy(LONG)
    other.close()


class FailsOnce(ModelRunner):
    """A runner whose fifth step fails after the forward pass: the states have advanced by then."""

    num_steps = 0

    def sample(self, plan: StepPlan, logits: torch.Tensor) -> list[int]:
        self.num_steps += 1
        if self.num_steps == 5:
            raise ZeroDivisionError("after the forward pass")
        return super().sample(plan, logits)


def test_a_step_rolled_back_advances_no_state_twice(lab_of: Callable[..., labengine.Lab], greedy: Tokens) -> None:
    lab = lab_of(runner=FailsOnce)
    for prompt in PROMPTS[:3]:
        lab.add(token_ids=prompt, max_tokens=NUM_NEW, ignore_eos=True)
    with pytest.raises(ZeroDivisionError, match="after the forward pass"):
        lab.run()
    lab.run()
    assert [sampled(lab, request) for request in range(3)] == [greedy(prompt) for prompt in PROMPTS[:3]]


def test_judge_refuses_a_model_with_states_in_words(lab_of: Callable[..., labengine.Lab]) -> None:
    lab = lab_of()
    for _ in range(2):
        lab.add(token_ids=PROMPTS[2], max_tokens=2, ignore_eos=True)
    lab.run()
    with pytest.raises(labengine.ConfigError, match="judge compares only models with K and V"):
        labengine.judge((lab, 0), (lab, 1))
