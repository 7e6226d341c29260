"""A draft model: the guesses are a second model's greedy tokens, from a separate pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labengine import DraftModel, Lab
from labengine.config import ConfigError

TEXT = range(3, 14)
LabOf = Callable[..., Lab]


def tokens_of(lab: Lab) -> tuple[int, ...]:
    lab.add(token_ids=TEXT, max_tokens=9, ignore_eos=True)
    lab.run()
    assert lab.check() == []
    return lab.snapshot().requests[0].token_ids


@pytest.fixture
def lab_of(tiny_llama: Path) -> LabOf:
    def make(**settings: Any) -> Lab:
        return Lab(tiny_llama, num_blocks=16, device="cpu", **settings)

    return make


@pytest.fixture
def wanted(lab_of: LabOf) -> tuple[int, ...]:
    with lab_of() as lab:
        return tokens_of(lab)


def test_the_same_model_is_always_right(lab_of: LabOf, tiny_llama: Path, wanted: tuple[int, ...]) -> None:
    for speculation in (DraftModel(3, str(tiny_llama)), DraftModel(3, num_layers=3)):
        with lab_of(speculation=speculation) as lab:
            assert tokens_of(lab) == wanted
            assert lab.stats().mean_acceptance == 1.0 and lab.stats().num_steps == 3


def test_few_layers_guess_and_the_model_decides(lab_of: LabOf, wanted: tuple[int, ...]) -> None:
    with lab_of(speculation=DraftModel(2, num_layers=1)) as lab:
        assert tokens_of(lab) == wanted
        assert 0 in lab.stats().acceptance
    with lab_of() as again:
        assert tokens_of(again) == wanted, "the weights that were lent are whole"


def test_a_text_that_its_pool_cannot_hold_gets_no_guess(lab_of: LabOf, wanted: tuple[int, ...]) -> None:
    with lab_of(block_size=4, speculation=DraftModel(2, num_layers=2, num_blocks=1)) as lab:
        assert tokens_of(lab) == wanted and lab.stats().acceptance == {}


def test_more_layers_than_there_are_are_refused(lab_of: LabOf) -> None:
    with pytest.raises(ConfigError, match=r"num_layers must be at most 3, .* got 4"):
        lab_of(speculation=DraftModel(num_layers=4))
