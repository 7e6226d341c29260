"""Solutions of 14 and 15 that are plain functions do what the engine does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import labengine
from labengine import GroupSpec, Lab
from labengine.course.exercises.guessing import PROMPT, guesses, new_tokens
from labengine.course.exercises.states import chunks
from labengine.course.function_exercise import FunctionExercise
from labengine.engine.simulated import default_next_token
from labengine.events import RequestScheduled


def cases(name: str) -> Sequence[tuple[Any, ...]]:
    exercise = labengine.exercise(name)
    assert isinstance(exercise, FunctionExercise)
    return exercise.cases


@pytest.mark.parametrize(("num_tokens", "block_size", "budget"), cases("states/chunks"))
def test_a_prompt_is_cut_as_the_solution_says(num_tokens: int, block_size: int, budget: int) -> None:
    groups = (GroupSpec(block_size), GroupSpec(block_size, "state"))
    with Lab("simulated", num_blocks=64, groups=groups, max_num_batched_tokens=budget) as lab:
        lab.add(token_ids=range(num_tokens), max_tokens=1)
        lab.run()
        assert lab.timeline is not None
        scheduled = [event.num_tokens for event in lab.timeline.of_kind(RequestScheduled)]
    assert scheduled == chunks(num_tokens, block_size, budget)


@pytest.mark.parametrize("wrong", [(), (8,), (8, 9, 15), tuple(range(7, 40))])
def test_a_step_yields_what_the_solution_says(wrong: tuple[int, ...]) -> None:
    with Lab("simulated", num_blocks=12, block_size=4, speculation=guesses(*wrong)) as lab:
        lab.add(token_ids=PROMPT, max_tokens=20)
        lab.step()
        while (request := lab.snapshot().requests[0]).status == "running":
            known, drafts = len(request.token_ids), request.drafts
            sampled = [default_next_token(0, known + place) for place in range(len(drafts) + 1)]
            lab.step()
            assert list(lab.snapshot().requests[0].token_ids[known:]) == new_tokens(drafts, sampled)
        assert lab.check() == []
