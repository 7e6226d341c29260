"""Proposers: n-gram look-up in the text itself, and fixed guesses."""

from __future__ import annotations

from random import Random

import pytest

from labengine.config import ConfigError
from labengine.core.proposer import FixedDrafts, NGram
from random_cases import for_random


@pytest.mark.parametrize(
    ("text", "drafts"),
    [
        ([1, 2, 3, 4, 1, 2], (3, 4, 1)),
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], (9, 2, 3)),
        ([5, 2, 3, 9, 7, 2, 3, 8, 2, 3], (9, 7, 2)),
        ([7, 7, 7, 7], (7,)),
        ([1, 2, 3], ()),
        ([1], ()),
    ],
    ids=["found again", "the longest match", "the first of equals", "it may overlap its end", "none", "one token"],
)
def test_what_followed_the_same_tokens_is_the_guess(text: list[int], drafts: tuple[int, ...]) -> None:
    assert NGram(3, min_ngram=2, max_ngram=3).propose(text, 3) == drafts


def slowly(text: list[int], num_tokens: int, shortest: int, longest: int) -> tuple[int, ...]:
    """The definition, place by place."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return tuple(text[start + length : start + length + num_tokens])
    return ()


def test_it_follows_the_definition() -> None:
    def play(rng: Random) -> None:
        values = rng.choice(((0, 1), (0, 1, 2**62, 256, 1 << 40), tuple(range(10))))
        text = [rng.choice(values) for _ in range(rng.randint(1, 40))]
        shortest = rng.randint(1, 4)
        longest, num_tokens = rng.randint(shortest, 6), rng.randint(1, 5)
        assert NGram(5, shortest, longest).propose(text, num_tokens) == slowly(text, num_tokens, shortest, longest)

    for_random(play, examples=400)


def test_fixed_guesses_are_those_of_the_position() -> None:
    assert FixedDrafts((1, 2, 3, 4, 5)).propose([9, 9], 2) == (3, 4)
    assert FixedDrafts((1, 2)).propose([9, 9], 2) == ()


@pytest.mark.parametrize("wrong", [{"num_drafts": 0}, {"min_ngram": 0}, {"min_ngram": 4, "max_ngram": 3}])
def test_wrong_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        NGram(**wrong)
