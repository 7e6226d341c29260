"""Tokens that the external tier can supply after a local hit: full blocks of all groups, only read ones in windows."""

from __future__ import annotations

from random import Random

import pytest

from fake_tier import FakeTier
from labengine.config import GroupSpec
from labengine.core.request import Request
from random_cases import for_random
from workbench import Workbench, full, window

PROMPT = list(range(100, 125))  # six blocks of four, and one token


def tier_with(core: Workbench, request: Request, *missing: tuple[int, int]) -> FakeTier:
    """A tier that has every block of the request but these (group, index)."""
    tier = FakeTier()
    core.manager.extend_hashes(request, request.num_tokens)
    for group in core.manager.groups:
        for index, block_hash in enumerate(group.tier_hashes(request, 0, request.num_tokens // group.block_size)):
            if (group.index, index) not in missing:
                tier.blocks[group.index, block_hash] = None
    return tier


def matched(groups: list[GroupSpec], *missing: tuple[int, int], num_local: int = 0, prompt: list[int] = PROMPT) -> int:
    """Tokens that the tier supplies behind num_local tokens."""
    core = Workbench(groups)
    request = core.request(prompt)
    tier = tier_with(core, request, *missing)
    step = core.config.scheduler_block_size
    return tier.get_num_new_matched_tokens(request, num_local, core.manager.groups, step)


def test_full_attention_takes_the_unbroken_run_behind_the_local_hit() -> None:
    assert matched([full(4)]) == 24
    assert matched([full(4)], (0, 3)) == 12
    assert matched([full(4)], (0, 0)) == 0
    assert matched([full(4)], (0, 0), num_local=4) == 20, "blocks in the pool are not asked for"


def test_where_nobody_would_load_a_block_there_is_no_match() -> None:
    """A window of one token reads no KV but its own; a load without blocks would never arrive."""
    assert matched([window(4, 1)]) == 0


def test_a_tier_of_other_tokens_or_other_keys_matches_nothing() -> None:
    core = Workbench([full(4)])
    tier = tier_with(core, core.request(PROMPT))
    for request in (core.request([0, *PROMPT]), core.request(PROMPT, (("cache_salt", "x"),))):
        core.manager.extend_hashes(request, request.num_tokens)
        assert tier.get_num_new_matched_tokens(request, 0, core.manager.groups, 4) == 0


GROUPS = [
    [full(4)],
    [window(4, 9)],
    [full(4), window(4, 6)],
    [full(2), window(2, 5), window(2, 2)],
    [full(4), window(2, 4)],
    [window(4, 6), full(2)],
    [full(2), full(4), window(4, 3)],
]


@pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: "+".join(f"{g.block_size}w{g.window}" for g in groups))
def test_random_tiers_match_exactly_what_the_rules_say(groups: list[GroupSpec]) -> None:
    found = set()

    def matches_what_the_rules_say(rng: Random) -> None:
        core = Workbench(groups)
        request = core.request(PROMPT[: rng.randint(5, 25)])
        blocks = [(g.index, i) for g in core.manager.groups for i in range(request.num_tokens // g.block_size)]
        tier = tier_with(core, request, *rng.sample(blocks, rng.randint(0, len(blocks) // 2)))
        step = core.config.scheduler_block_size
        num_local = rng.randrange(0, request.num_tokens, step)
        num_matched = tier.get_num_new_matched_tokens(request, num_local, core.manager.groups, step)
        assert num_matched == longest_by_the_rules(core, request, tier, num_local)
        found.add(num_matched)

    for_random(matches_what_the_rules_say, examples=150)
    assert len(found) > 2


def longest_by_the_rules(core: Workbench, request: Request, tier: FakeTier, num_local: int) -> int:
    """Try every end, the last first: does the tier have all that is read and not in the pool?"""
    step = core.config.scheduler_block_size
    for end in range((request.num_tokens - 1) // step * step, num_local, -step):
        if all(_can_supply(core, request, tier, group, num_local, end) for group in range(len(core.config.groups))):
            return end - num_local
    return 0


def _can_supply(core: Workbench, request: Request, tier: FakeTier, group: int, num_local: int, end: int) -> bool:
    spec, manager = core.config.groups[group], core.manager.groups[group]
    first_read = 0 if spec.window is None else max(0, end - spec.window + 1)
    blocks = max(num_local, first_read) // spec.block_size, end // spec.block_size
    return all(tier.has(group, block_hash) for block_hash in manager.tier_hashes(request, *blocks))
