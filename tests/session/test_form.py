"""The options in the form above a lab or a comparison, and the requests that it adds."""

from __future__ import annotations

from typing import Any

import pytest

from labengine import Lab, Parts, compare
from labengine.config import ConfigError
from labengine.core.token_budget import TokenBudgetScheduler

ASKED = {"prompt": "Once upon a time", "copies": 2, "max_tokens": 4, "n": 1, "beams": 1, "priority": 0}


class Broken(TokenBudgetScheduler):
    def refuse_forks(self, num_answers: int = 1) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, ("n", "beams")),
        ({"policy": "priority"}, ("n", "beams", "priority")),
        ({"edition": "vllm"}, ("n",)),
        ({"edition": "vllm", "policy": "priority"}, ("n", "priority")),
        ({"edition": "nano-vllm"}, ()),
        ({"max_num_seqs": 1}, ()),
        ({"parts": Parts(scheduler=Broken)}, ("beams",)),
    ],
)
def test_a_lab_offers_what_its_scheduler_takes(settings: dict[str, Any], options: tuple[str, ...]) -> None:
    with Lab("simulated", num_blocks=16, block_size=4, **settings) as lab:
        assert lab.view_source().request_options == options


def test_answers_beams_and_a_priority_come_from_the_form() -> None:
    with Lab("simulated", num_blocks=32, block_size=4, policy="priority") as lab:
        source = lab.view_source()
        assert source.post("add", **ASKED).result() == [0, 1]
        assert source.post("add", **ASKED | {"n": 3, "priority": -2}).result() == [[2, 3, 4], [5, 6, 7]]
        assert source.post("add", **ASKED | {"beams": 2, "copies": 1}).result() == [[8, 9]]
        assert [lab.snapshot().requests[i].priority for i in (0, 2, 7, 8)] == [0, -2, -2, 0]
        with pytest.raises(ConfigError, match="beams=2 already gives 2 texts"):
            source.post("add", **ASKED | {"beams": 2, "n": 2}).result()


def test_a_comparison_takes_what_both_sides_take() -> None:
    with compare("labengine", "vllm", model="simulated", num_blocks=32, block_size=4) as both:
        assert both.post_command("add", **ASKED | {"n": 3, "copies": 1}).result() == [[0, 1, 2]]
        with pytest.raises(ConfigError, match="has no beam search"):
            both.post_command("add", **ASKED | {"beams": 2}).result()
        assert [len(side.snapshot().requests) for side in (both.left, both.right)] == [3, 3]
