"""A draft model: the guesses are a second model's greedy tokens, from a pool of its own."""

from __future__ import annotations

import pytest

from labengine import DraftModel, Lab
from labengine.config import ConfigError

TEXT = "Once upon a time there was a small engine"


def tokens_of(lab: Lab) -> tuple[int, ...]:
    lab.add(TEXT, max_tokens=9, ignore_eos=True)
    lab.run()
    assert lab.check() == []
    return lab.snapshot().requests[0].token_ids


@pytest.fixture(scope="module")
def wanted() -> tuple[int, ...]:
    with Lab(num_blocks=16, dtype="float32") as lab:
        return tokens_of(lab)


@pytest.mark.parametrize("speculation", [DraftModel(3, "smollm2"), DraftModel(3, num_layers=30)], ids=["other", "own"])
def test_the_same_model_is_always_right(speculation: DraftModel, wanted: tuple[int, ...]) -> None:
    with Lab(num_blocks=16, dtype="float32", speculation=speculation) as lab:
        assert tokens_of(lab) == wanted
        assert lab.stats().mean_acceptance == 1.0 and lab.stats().num_steps == 3


def test_few_layers_guess_and_the_model_decides(wanted: tuple[int, ...]) -> None:
    with Lab(num_blocks=16, dtype="float32", speculation=DraftModel(2, num_layers=4)) as lab:
        assert tokens_of(lab) == wanted
        assert 0 in lab.stats().acceptance
    with Lab(num_blocks=16, dtype="float32") as again:
        assert tokens_of(again) == wanted, "the weights that were lent are whole"


def test_a_text_that_its_pool_cannot_hold_gets_no_guess(wanted: tuple[int, ...]) -> None:
    with Lab(
        num_blocks=16, block_size=4, dtype="float32", speculation=DraftModel(2, num_layers=2, num_blocks=1)
    ) as lab:
        assert tokens_of(lab) == wanted and lab.stats().acceptance == {}


def test_more_layers_than_there_are_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_layers=31: smollm2 has 30 layers"):
        Lab(num_blocks=16, dtype="float32", speculation=DraftModel(num_layers=31))
