"""Belady's bound, against all choices of tiny pools and against the edition's LRU."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from random import Random

import pytest

from labengine.config import EngineConfig, GroupSpec
from labengine.core.editions import edition
from labengine.prefix_doctor.play.bound import Bound, blocks_of
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

Blocks = tuple[tuple[int, ...], ...]


def _prompts(rng: Random, num_prompts: int, longest: int, alphabet: int = 2) -> list[Prompt]:
    """Return prompts of few different tokens, so that they share prefixes of all lengths."""
    lengths = [rng.randint(1, longest) for _ in range(num_prompts)]
    return [
        Prompt(str(number), [rng.randrange(alphabet) for _ in range(length)]) for number, length in enumerate(lengths)
    ]


def _bound(prompts: list[Prompt], block_size: int) -> Bound:
    bound = Bound()
    for prompt in prompts:
        bound.add(*blocks_of(prompt, block_size))
    return bound


def _best_of_all_choices(prompts: list[Prompt], size: int) -> int:
    """Return the most hits over everything that a pool of this size can keep after each prompt."""
    looked_up = [blocks_of(prompt, 1) for prompt in prompts]

    @cache
    def best(number: int, held: frozenset[int]) -> int:
        if number == len(looked_up):
            return 0
        blocks, num_countable = looked_up[number]
        hits = next((n for n, block in enumerate(blocks[:num_countable]) if block not in held), num_countable)
        known = held | set(blocks)
        choices = combinations(sorted(known), min(size, len(known)))
        return hits + max(best(number + 1, frozenset(choice)) for choice in choices)

    return best(0, frozenset())


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_no_choice_of_blocks_to_keep_is_better_and_one_is_as_good(size: int) -> None:
    rng = Random(size)
    for _ in range(40):
        prompts = _prompts(rng, num_prompts=6, longest=4)
        assert _bound(prompts, 1).most_hits(size) == _best_of_all_choices(prompts, size)


def test_the_editions_lru_is_never_better() -> None:
    rng, gaps = Random(9), 0
    for _ in range(200):
        prompts, size = _prompts(rng, num_prompts=12, longest=9), rng.randint(6, 20)
        hits, most = _lru_hits(prompts, size), _bound(prompts, 2).most_hits(size - 1)  # one is the null block
        assert hits <= most
        gaps += hits < most
    assert gaps > 20


def _lru_hits(prompts: list[Prompt], num_blocks: int) -> int:
    """Return the blocks that edition vllm hits, with up to three requests at a time."""
    config = EngineConfig(num_blocks=num_blocks, groups=(GroupSpec(2),), max_num_seqs=3)
    played = play(Traffic("", lambda: iter(prompts)), Setting(config, edition("vllm")))
    assert not played.num_refused
    return played.figures.num_hit // 2


def test_an_answer_can_be_hit_and_the_last_token_of_a_prompt_cannot() -> None:
    again = Prompt("again", [1, 2, 3, 4, 5])
    assert _bound([Prompt("chat", [1, 2], answer=[3, 4]), again], 1).most_hits(9) == 4
    assert _bound([again, again], 1).most_hits(9) == 4
    assert _bound([again, Prompt("salted", [1, 2, 3, 4, 5], extra_keys=(("salt", "x"),))], 1).most_hits(9) == 0
    assert _bound([again, Prompt("not looked up", [1, 2, 3, 4, 5], skips_cache=True)], 1).most_hits(9) == 0


def test_few_remembered_blocks_still_bound_a_small_pool() -> None:
    prompts = _prompts(Random(2), num_prompts=60, longest=9)
    small = Bound(most_blocks=20)
    for prompt in prompts:
        small.add(*blocks_of(prompt, 2))
    assert _lru_hits(prompts, 13) <= small.most_hits(12) <= _bound(prompts, 2).most_hits(12)
