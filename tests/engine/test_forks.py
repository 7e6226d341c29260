"""Forks on weights: their greedy tokens are those of a request that has the same tokens and is alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.engine.model_runner import ModelRunner

PROMPT = [(7 * n) % 98 + 3 for n in range(21)]
OTHERS = (50, 77)
"""Tokens that go on otherwise than the greedy ones."""


def alone(model: Path, lab: Lab, tokens: list[int], max_tokens: int) -> list[int]:
    """The tokens of a separate lab."""
    with Lab(model, num_blocks=24, block_size=4, dtype=lab.settings.dtype) as other:
        (output,) = other.generate([tokens], max_tokens=max_tokens, ignore_eos=True)
        return list(output.token_ids)


FLOAT32, TORCH = {"dtype": "float32"}, {"dtype": "float32", "attention": "torch"}


@pytest.mark.parametrize("settings", [FLOAT32, TORCH], ids=["cpu", "torch"])
@pytest.mark.parametrize("num_blocks", [40, 9])
def test_greedy_tokens_are_those_of_a_request_alone(
    num_blocks: int, settings: dict[str, str], tiny_llama: Path
) -> None:
    """With 9 blocks forks are preempted, and hit the rest of the prompt when they resume."""
    with forked(tiny_llama, num_blocks, **settings) as lab:
        events = lab.timeline.events()  # type: ignore[union-attr]
        hits = [event for event in events if isinstance(event, ev.PrefixHit) and event.num_tokens]
        assert bool(hits) == (ev.RequestPreempted in map(type, events)) == (num_blocks == 9)
        answers = [list(lab.output(i).token_ids) for i in range(5)]
        assert answers[0] == answers[1] == answers[2] == alone(tiny_llama, lab, PROMPT, 9)
        for answer in answers[3:]:
            assert answer[:2] == answers[0][:2] and answer[2] != answers[0][2]
            assert answer[3:] == alone(tiny_llama, lab, [*PROMPT, *answer[:3]], 6)


def test_in_bfloat16_a_fork_decodes_as_one_that_shares_with_nobody(tiny_llama: Path) -> None:
    """A prompt's products are rounded otherwise than a decode's: near draws of a request alone may differ."""
    with forked(tiny_llama, 40, dtype="bfloat16") as lab:
        assert lab.output(0).token_ids == lab.output(2).token_ids == tuple(alone(tiny_llama, lab, PROMPT, 9))
        with Lab(tiny_llama, num_blocks=40, block_size=4, dtype="bfloat16") as other:
            other.add(token_ids=PROMPT, max_tokens=9, ignore_eos=True)
            other.step(3)
            other.branch("A", token=OTHERS[0])
            other.abort("A")
            other.run()
            assert ev.BlockCopied not in map(type, other.timeline.events())  # type: ignore[union-attr]
            assert lab.output(3).token_ids == other.output(1).token_ids


def forked(model: Path, num_blocks: int, **settings: str) -> Lab:
    """Three answers to a prompt that ends inside a block, and two branches with other tokens."""
    lab = Lab(model, num_blocks=num_blocks, block_size=4, **settings)
    assert len(PROMPT) % 4
    lab.add(token_ids=PROMPT, n=3, max_tokens=9, ignore_eos=True)
    lab.step(3)
    for token in OTHERS:
        lab.branch("A", token=token)
    lab.run()
    assert {ev.RequestForked, ev.BlockCopied} <= set(map(type, lab.timeline.events()))  # type: ignore[union-attr]
    assert lab.check() == []
    return lab


def test_sampled_first_tokens_come_from_one_row_of_logits(tiny_llama: Path) -> None:
    """Each is what the request alone would draw with that seed."""
    sampling = {"temperature": 1.5, "top_k": 50, "max_tokens": 2, "ignore_eos": True}
    with Lab(tiny_llama, num_blocks=40, block_size=4, dtype="float32") as lab:
        lab.add(token_ids=[5, 6, 7, 8, 9], seed=9, **sampling)
        lab.add(token_ids=PROMPT, n=4, seed=3, **sampling)
        report = lab.step()
        assert len(report.scheduled) == 2 and len(set(report.sampled.values())) > 2
        for number in range(4):
            with Lab(tiny_llama, num_blocks=40, block_size=4, dtype="float32") as other:
                other.add(token_ids=PROMPT, seed=3 + number, **sampling)
                assert other.step().sampled[0] == report.sampled[1 + number]


def test_a_prompt_of_one_token_beside_a_decode_has_its_row_of_the_batch(tiny_llama: Path) -> None:
    """The step computes one token of each request, and samples more tokens than it has rows."""
    with Lab(tiny_llama, num_blocks=20, block_size=4, dtype="float32") as lab:
        lab.add(token_ids=[26], max_tokens=3, ignore_eos=True)
        lab.step()
        lab.add(token_ids=[50], n=3, max_tokens=3, ignore_eos=True)
        report = lab.step()
        assert report.scheduled == {0: 1, 1: 1} and [*report.sampled] == [0, 1, 2, 3]
        assert report.sampled[0] != report.sampled[1]
        lab.run()
        assert lab.output(0).token_ids == tuple(alone(tiny_llama, lab, [26], 3))
        assert lab.output(1).token_ids == lab.output(3).token_ids == tuple(alone(tiny_llama, lab, [50], 3))


def test_a_copy_is_bit_by_bit(tiny_llama: Path) -> None:
    runner = ModelRunner.load(tiny_llama, num_blocks=4, block_size=4, device="cpu", dtype="float32")
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
