"""Requests that move to another lab of a real model: their KV goes along, bit by bit, and so do their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.state_models import models, save_state_model
from labengine import Lab
from labengine.config import ConfigError
from labengine.engine.model_runner import ModelRunner

PROMPT = range(3, 24)
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "top_p": 0.9},
    "seeded": {"temperature": 1.3, "top_k": 20, "seed": 5},
}


@pytest.fixture(scope="module")
def labs(tiny_llama: Path) -> Iterator[tuple[Lab, Lab, Lab]]:
    settings: dict[str, Any] = {"num_blocks": 24, "block_size": 8, "device": "cpu", "seed": 3}
    with (
        Lab(tiny_llama, **settings) as alone,
        Lab(tiny_llama, **settings) as left,
        Lab(tiny_llama, **settings) as right,
    ):
        yield alone, left, right


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("num_steps", [1, 4])
def test_two_labs_give_the_tokens_of_one(sampling: str, num_steps: int, labs: tuple[Lab, Lab, Lab]) -> None:
    alone, left, right = labs
    for lab in labs:
        lab.reset()
    right.add(token_ids=range(50, 57), max_tokens=20, ignore_eos=True)
    right.step()
    asked: dict[str, Any] = {"token_ids": PROMPT, "max_tokens": 12, "ignore_eos": True, **SAMPLINGS[sampling]}
    alone.add(**asked)
    alone.run()
    left.add(**asked)
    left.step(num_steps)
    table = left.snapshot().requests[0].block_tables[0]
    kept = [left.kv(block_id, layer) for block_id in table for layer in (0, left.num_layers - 1)]
    there = left.hand_over(0, right)
    moved = right.snapshot().requests[there].block_tables[0]
    copies = [right.kv(block_id, layer) for block_id in moved for layer in (0, left.num_layers - 1)]
    assert all(
        torch.equal(x, y) for one, other in zip(kept, copies, strict=True) for x, y in zip(one, other, strict=True)
    )
    right.run()
    assert right.output(there).token_ids == alone.output(0).token_ids
    assert not left.check() and not right.check()


@pytest.mark.parametrize("family", models())
def test_states_move_with_their_request(family: str, tmp_path: Path) -> None:
    model = save_state_model(family, tmp_path)
    settings: dict[str, Any] = {"num_blocks": 60, "block_size": 4, "device": "cpu"}
    with Lab(model, **settings) as alone, Lab(model, **settings) as left, Lab(model, **settings) as right:
        for lab in (alone, left):
            lab.add(token_ids=range(3, 40), max_tokens=12, ignore_eos=True)
        alone.run()
        left.step(12)
        there = left.hand_over(0, right)
        right.run()
        assert right.output(there).token_ids == alone.output(0).token_ids
        assert not left.check() and not right.check()


class BrokenOff(ModelRunner):
    """Is interrupted in the middle of the second block that it is given."""

    num_written = 0

    def write_block(self, group: int, block_id: int, kv: Any) -> None:
        super().write_block(group, block_id, kv)
        self.num_written += 1
        if self.num_written == 2:
            raise KeyboardInterrupt


def test_an_interrupted_move_leaves_the_request_where_it_was(tiny_gemma: Path) -> None:
    settings: dict[str, Any] = {"num_blocks": 40, "block_size": 4, "device": "cpu"}
    right = Lab(tiny_gemma, runner=BrokenOff, **settings)
    with Lab(tiny_gemma, **settings) as alone, Lab(tiny_gemma, **settings) as left, right:
        for lab in (alone, left):
            lab.add(token_ids=range(3, 30), max_tokens=9, ignore_eos=True)
        alone.run()
        left.step(3)
        before = [lab.snapshot().to_dict() for lab in (left, right)]
        with pytest.raises(KeyboardInterrupt):
            left.hand_over(0, right)
        assert [lab.snapshot().to_dict() for lab in (left, right)] == before
        there = left.hand_over(0, right)
        right.run()
        assert right.output(there).token_ids == alone.output(0).token_ids
        assert not left.check() and not right.check()


def test_kv_of_other_weights_or_another_dtype_is_refused(tiny_model: Callable[..., Path], tiny_llama: Path) -> None:
    settings: dict[str, Any] = {"num_blocks": 24, "block_size": 4, "device": "cpu"}
    with Lab(tiny_llama, **settings) as left:
        left.add(token_ids=range(3, 12), max_tokens=4, ignore_eos=True)
        left.step()
        for other, words in (
            (Lab(tiny_model("qwen3"), **settings), "weights and dtype"),
            (Lab(tiny_llama, dtype="bfloat16", **settings), "float32.*bfloat16"),
        ):
            with other, pytest.raises(ConfigError, match=words):
                left.hand_over(0, other)
        left.run()
        assert len(left.output(0).token_ids) == 4
