"""How long a prefix hit is: the rule of each kind of attention, and how they agree.

Each case caches a prompt, forgets some of its blocks, and asks what an equal prompt (one token longer) would find.
"""

from __future__ import annotations

from random import Random

import pytest

from labengine.config import GroupSpec
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from random_cases import for_random
from workbench import Workbench, full, window

PROMPT = list(range(100, 124))  # 24 tokens: six blocks of four


def hit_without(groups: list[GroupSpec], *forgotten: tuple[int, int]) -> Hit:
    """The hit once these (group, index) blocks are forgotten."""
    core = Workbench(groups, num_blocks=64)
    held = core.cache(PROMPT).block_tables
    core.forget(*(held[group][index] for group, index in forgotten))
    return core.hit([*PROMPT, 0])


def test_full_attention_hits_an_unbroken_run_from_the_start() -> None:
    assert hit_without([full(4)]).block_ids == ((0, 1, 2, 3, 4, 5),)
    assert hit_without([full(4)], (0, 3)).block_ids == ((0, 1, 2),)
    assert hit_without([full(4)], (0, 0)).num_tokens == 0


@pytest.mark.parametrize(
    ("window_size", "needed"), [(2, 1), (4, 1), (5, 1), (6, 2), (8, 2), (9, 2), (10, 3), (13, 3), (14, 4)]
)
def test_a_window_needs_the_blocks_that_hold_its_other_tokens(window_size: int, needed: int) -> None:
    """ceil((window - 1) / block size) of them: the token itself is computed now."""
    hit = hit_without([window(4, window_size)])
    assert hit.num_tokens == 24
    assert hit.block_ids == ((*[-1] * (6 - needed), *range(6 - needed, 6)),)


def test_where_groups_disagreed_is_reported() -> None:
    """Full attention had 24 tokens: worth caching for the window next time (vLLM: shared prefix boundary)."""
    hit = hit_without([full(4), window(4, 4)], (1, 5), (1, 4))
    assert (hit.num_tokens, hit.longest, hit.shared_prefix_boundary) == (16, 24, 24)
    assert hit_without([full(4), window(4, 4)]).shared_prefix_boundary == 0


GROUPS = [
    [window(4, 4)],
    [full(4), window(4, 9)],
    [full(2), window(2, 5), window(2, 2)],
    [full(4), window(2, 4)],
    [window(4, 6), full(2)],
    [full(4), window(6, 7), window(2, 3)],
    [window(6, 3), window(2, 6)],
    [full(2), full(4), window(4, 3), window(4, 3)],
]


@pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: "+".join(f"{g.block_size}w{g.window}" for g in groups))
@pytest.mark.parametrize("link_size", [0, 1])
def test_random_caches_hit_exactly_what_the_rules_say(groups: list[GroupSpec], link_size: int) -> None:
    lengths = set()

    def hits_what_the_rules_say(rng: Random) -> None:
        core = Workbench(groups, num_blocks=64, hash_block_size=link_size)
        held = [block_id for table in core.cache(PROMPT).block_tables for block_id in table]
        core.forget(*rng.sample(held, rng.randint(0, len(held) // 2)))
        request = core.request([*PROMPT[: rng.randint(1, 24)], 0])
        hit = core.manager.find_prefix(request)
        assert hit.num_tokens == longest_by_the_rules(core, request)
        for group, block_ids in zip(core.manager.groups, hit.block_ids, strict=True):
            assert len(block_ids) * group.block_size == hit.num_tokens
        lengths.add(hit.num_tokens)

    for_random(hits_what_the_rules_say, examples=60)
    assert len(lengths) > 1


def longest_by_the_rules(core: Workbench, request: Request) -> int:
    """Try every length, the longest first."""
    step = core.config.scheduler_block_size
    lengths = range((request.num_tokens - 1) // step * step, 0, -step)
    return next((length for length in lengths if all(_has(core, request, i, length) for i in _all(core))), 0)


def _all(core: Workbench) -> range:
    return range(len(core.config.groups))


def _has(core: Workbench, request: Request, group: int, length: int) -> bool:
    """Whether a group holds the unbroken blocks before the end that the next token reads, and the last in any case."""
    spec = core.config.groups[group]
    num_blocks = length if spec.window is None else max(1, -(-(spec.window - 1) // spec.block_size))
    first = max(0, length - num_blocks * spec.block_size)
    blocks = range(first // spec.block_size, length // spec.block_size)
    cached = [core.manager.groups[group].cached_block(request, index) is not None for index in blocks]
    return all(cached)
