"""Forks on real weights: their greedy tokens are those of a request that has the same tokens and is alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.engine.model_runner import ModelRunner

STORY = "Once upon a time there was a small engine that lived in a shed at the end of the line"


def alone(lab: Lab, tokens: list[int], max_tokens: int) -> list[int]:
    """What a lab of its own, on the same weights, generates."""
    with Lab(lab.model, num_blocks=24, block_size=4, dtype=lab.settings.dtype) as other:
        (output,) = other.generate([tokens], max_tokens=max_tokens, ignore_eos=True)
        return list(output.token_ids)


FLOAT32, TORCH = {"dtype": "float32"}, {"dtype": "float32", "attention": "torch"}


@pytest.mark.parametrize("settings", [FLOAT32, TORCH], ids=["cpu", "torch"])
@pytest.mark.parametrize("num_blocks", [40, 9])
def test_greedy_tokens_are_those_of_a_request_alone(num_blocks: int, settings: dict[str, str]) -> None:
    """With 9 blocks forks are preempted, and hit what is left of the prompt when they come back."""
    with forked(num_blocks, **settings) as lab:
        events = lab.timeline.events()  # type: ignore[union-attr]
        hits = [event for event in events if isinstance(event, ev.PrefixHit) and event.num_tokens]
        assert bool(hits) == (ev.RequestPreempted in map(type, events)) == (num_blocks == 9)
        prompt, answers = lab.encode(STORY)[:-1], [list(lab.output(i).token_ids) for i in range(5)]
        assert answers[0] == answers[1] == answers[2] == alone(lab, prompt, 9)
        for answer in answers[3:]:
            assert answer[:2] == answers[0][:2] and answer[2] != answers[0][2]
            assert answer[3:] == alone(lab, [*prompt, *answer[:3]], 6)


def test_in_bfloat16_a_fork_decodes_as_one_that_shares_with_nobody() -> None:
    """A prompt's products are rounded otherwise than a decode's: near draws of a request alone may differ."""
    with forked(40, dtype="bfloat16") as lab:
        prompt, red = lab.encode(STORY)[:-1], lab.encode(" red")[0]
        assert lab.output(0).token_ids == lab.output(2).token_ids == tuple(alone(lab, prompt, 9))
        with Lab(num_blocks=40, block_size=4, dtype="bfloat16") as other:
            other.add(token_ids=prompt, max_tokens=9, ignore_eos=True)
            other.step(3)
            other.branch("A", token=red)
            other.abort("A")
            other.run()
            assert ev.BlockCopied not in map(type, other.timeline.events())  # type: ignore[union-attr]
            assert lab.output(3).token_ids == other.output(1).token_ids


def forked(num_blocks: int, **settings: str) -> Lab:
    """Three answers to a prompt that ends inside a block, and two branches with other tokens."""
    lab = Lab(num_blocks=num_blocks, block_size=4, **settings)
    prompt = lab.encode(STORY)[:-1]
    assert len(prompt) % 4
    lab.add(token_ids=prompt, n=3, max_tokens=9, ignore_eos=True)
    lab.step(3)
    for token in lab.encode(" red blue"):
        lab.branch("A", token=token)
    lab.run()
    assert {ev.RequestForked, ev.BlockCopied} <= set(map(type, lab.timeline.events()))  # type: ignore[union-attr]
    assert lab.check() == []
    return lab


def test_sampled_first_tokens_come_from_one_row_of_logits() -> None:
    """Each is what the request alone would draw with that seed."""
    sampling = {"temperature": 1.5, "top_k": 50, "max_tokens": 2, "ignore_eos": True}
    with Lab(num_blocks=40, block_size=4, dtype="float32") as lab:
        lab.add("The capital of France", seed=9, **sampling)
        lab.add(STORY, n=4, seed=3, **sampling)
        report = lab.step()
        assert len(report.scheduled) == 2 and len(set(report.sampled.values())) > 2
        for number in range(4):
            with Lab(num_blocks=40, block_size=4, dtype="float32") as other:
                other.add(STORY, seed=3 + number, **sampling)
                assert other.step().sampled[0] == report.sampled[1 + number]


def test_a_prompt_of_one_token_beside_a_decode_has_its_row_of_the_batch() -> None:
    """The step computes one token of each request, and samples more tokens than it has rows."""
    with Lab(num_blocks=20, block_size=4, dtype="float32") as lab:
        lab.add(token_ids=[260], max_tokens=3, ignore_eos=True)
        lab.step()
        lab.add(token_ids=[504], n=3, max_tokens=3, ignore_eos=True)
        report = lab.step()
        assert report.scheduled == {0: 1, 1: 1} and [*report.sampled] == [0, 1, 2, 3]
        assert report.sampled[0] != report.sampled[1]
        lab.run()
        assert lab.output(0).token_ids == tuple(alone(lab, [260], 3))
        assert lab.output(1).token_ids == lab.output(3).token_ids == tuple(alone(lab, [504], 3))


def test_a_copy_is_bit_by_bit(smollm2: Path) -> None:
    runner = ModelRunner.load(smollm2, num_blocks=4, block_size=4, device="cpu", dtype="float32")
    for keys_or_values in runner.kv_tensors._tensors:
        keys_or_values.normal_()
    source, other = runner.read_block(0, 1), runner.read_block(0, 2)
    runner.copy_block(0, 1, 3)
    for found, wanted in ((3, source), (1, source), (2, other)):
        for name, tensor in runner.read_block(0, found).items():
            assert tensor.equal(wanted[name])
    with pytest.raises(IndexError):
        runner.copy_block(0, 1, 4)
    runner.release()
