"""Beam search on weights: its texts are those of transformers' generate(num_beams=...)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from labengine import Lab
from labengine import events as ev
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import LABENGINE
from labengine.engine.engine import Engine
from labengine.engine.model_runner import ModelRunner
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

PROMPTS = [[(7 * n + start) % 98 + 3 for n in range(length)] for start, length in ((1, 21), (40, 5), (66, 10))]

Texts = list[list[int]]


@pytest.fixture(scope="module")
def transformers(tiny_llama: Path) -> Iterator[Any]:
    from transformers import AutoModelForCausalLM

    yield AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32, local_files_only=True).eval()


@cache
def _generated(model: Any, prompt: tuple[int, ...], beams: int, max_tokens: int, eos: tuple[int, ...]) -> Texts:
    ids = torch.tensor([prompt])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=max_tokens,
        eos_token_id=list(eos) or None,
        pad_token_id=0,
    )
    return [_until(row[len(prompt) :].tolist(), eos) for row in made]


def expected(model: Any, prompt: Sequence[int], beams: int, max_tokens: int, eos: Sequence[int] = ()) -> Texts:
    """Return the texts of transformers' beam search, the best first: tokens up to an eos, included."""
    return _generated(model, tuple(prompt), beams, max_tokens, tuple(eos))


def _until(tokens: list[int], eos: Sequence[int]) -> list[int]:
    end = next((place for place, token in enumerate(tokens) if token in eos), len(tokens) - 1)
    return tokens[: end + 1]


class Run:
    """An engine whose end of text the test selects."""

    def __init__(self, runner: ModelRunner, num_blocks: int, eos: Sequence[int] = (), **settings: int) -> None:
        size = runner.groups[0].block_size
        config = EngineConfig(num_blocks, (GroupSpec(size),), eos_token_ids=frozenset(eos), **settings)
        hooks = Hooks()
        self.timeline = Timeline()
        hooks.subscribe(self.timeline.record)
        self.engine = Engine(config, runner, LABENGINE, hooks)

    def add(self, prompt: Sequence[int], beams: int, max_tokens: int) -> list[int]:
        sampling = SamplingParams(max_tokens, beams=beams)
        leader = self.engine.add(prompt, sampling)
        return [leader, *(self.engine.add(prompt, sampling, leader_id=leader) for _ in range(1, beams))]

    def run(self) -> None:
        while self.engine.step():
            pass
        assert self.engine.scheduler.is_idle

    def texts(self, ids: Sequence[int]) -> Texts:
        requests = [self.engine.requests[i] for i in ids]
        return [request.token_ids[request.num_prompt_tokens :] for request in requests]


def test_all_texts_are_those_of_transformers(transformers: Any, tiny_llama: Path) -> None:
    with Lab(tiny_llama, num_blocks=60, block_size=4, dtype="float32") as lab:
        ids = lab.add(token_ids=PROMPTS[0], beams=4, max_tokens=20)
        lab.run()
        eos = sorted(lab.config.eos_token_ids)
        assert [list(lab.output(i).token_ids) for i in ids] == expected(transformers, PROMPTS[0], 4, 20, eos)
        assert lab.check() == [] and lab.snapshot().num_used_blocks == 0


@pytest.mark.parametrize(
    ("block_size", "settings"),
    [
        (4, {"num_blocks": 80}),
        (1, {"num_blocks": 300}),
        (16, {"num_blocks": 30}),
        (4, {"num_blocks": 80, "max_num_batched_tokens": 7}),
        (4, {"num_blocks": 14}),
        (4, {"num_blocks": 9}),
        (4, {"num_blocks": 80, "max_num_seqs": 4}),
    ],
    ids=["roomy", "blocks of 1", "blocks of 16", "chunks", "preempted", "room for one", "few seats"],
)
def test_in_any_pool_and_beside_others(
    transformers: Any, tiny_llama: Path, block_size: int, settings: dict[str, int]
) -> None:
    """Several searches at once, some with a prefix that is cached."""
    runner = ModelRunner.load(tiny_llama, num_blocks=settings["num_blocks"], block_size=block_size, dtype="float32")
    run = Run(runner, **settings)
    wanted = [(PROMPTS[0], 4, 12), (PROMPTS[1], 3, 8), (PROMPTS[0][:-3], 2, 10), (PROMPTS[2], 1, 6)]
    first = run.add(*wanted[0])
    for _ in range(3):
        run.engine.step()
    ids = [first, *(run.add(*one) for one in wanted[1:])]
    run.run()
    found = [run.texts(i) for i in ids]
    assert found == [expected(transformers, *one) for one in wanted]
    kinds = set(map(type, run.timeline.events()))
    assert (ev.RequestPreempted in kinds) == (settings["num_blocks"] in (14, 9))
    assert run.engine.num_used_blocks == 0
    runner.release()


def test_texts_that_end_early_leave_their_place_to_others(transformers: Any, tiny_llama: Path) -> None:
    """With frequent tokens as ends of text, some texts end early, and some searches before max_tokens."""
    runner = ModelRunner.load(tiny_llama, num_blocks=120, block_size=4, dtype="float32")
    often = Counter(token for prompt in PROMPTS for text in expected(transformers, prompt, 4, 12) for token in text)
    frequent = [token for token, _ in often.most_common(2)]
    reasons, lengths = set(), set()
    for eos in (frequent[:1], frequent):
        run = Run(runner, 120, eos)
        wanted = [(prompt, beams, 12) for prompt, beams in zip(PROMPTS, (4, 2, 3), strict=True)]
        ids = [run.add(*one) for one in wanted]
        run.run()
        assert [run.texts(i) for i in ids] == [expected(transformers, *one, eos) for one in wanted]
        reasons |= {request.finish_reason for request in run.engine.requests.values()}
        lengths |= {len(text) for i in ids for text in run.texts(i)}
        assert run.engine.num_used_blocks == 0
    assert reasons == {"stop", "length"} and len(lengths) > 2
    runner.release()
