"""Which blocks of a window are cached: those that a hit could ask for, and with a retention interval fewer ends."""

from __future__ import annotations

import pytest

from driving import TOKEN_BUDGET_EDITIONS
from labengine.config import ConfigError, EngineConfig, GroupSpec
from workbench import Workbench, full, window

PROMPT = list(range(100, 124))


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def cached_ends(edition: str, groups: list[GroupSpec], interval: int | None, num_tokens: int = 24) -> list[int]:
    """Where the cached blocks of group 1 end, after a prompt of num_tokens."""
    core = Workbench(groups, edition=edition, retention_interval=interval)
    core.run(PROMPT[:num_tokens])
    return core.cached(1)


def test_a_window_as_large_as_the_alignment_caches_every_block(edition: str) -> None:
    assert cached_ends(edition, [full(4), window(4, 4)], None) == [4, 8, 12, 16, 20, 24]


def test_blocks_between_two_ends_of_hits_are_not_cached(edition: str) -> None:
    """A hit ends at a multiple of 8; the window then reads one block of 2, or two."""
    assert cached_ends(edition, [full(8), window(2, 3)], None) == [8, 16, 24]
    assert cached_ends(edition, [full(8), window(2, 4)], None) == [6, 8, 14, 16, 22, 24]


def test_full_attention_caches_every_block_at_any_interval(edition: str) -> None:
    for interval in (None, 0, 8):
        assert cached_ends(edition, [window(4, 4), full(4)], interval) == [4, 8, 12, 16, 20, 24]


def test_interval_0_keeps_only_what_an_equal_prompt_asks_for(edition: str) -> None:
    """Its hit ends before the last token: at 20 of 24, or 21 to 23, and at 16 of 20."""
    groups = [full(4), window(4, 8)]
    assert cached_ends(edition, groups, 0) == [16, 20]
    assert cached_ends(edition, groups, 0, num_tokens=23) == [16, 20]
    assert cached_ends(edition, groups, 0, num_tokens=20) == [12, 16]


def test_an_interval_keeps_its_multiples_too(edition: str) -> None:
    assert cached_ends(edition, [full(4), window(4, 5)], 8, num_tokens=23) == [8, 16, 20]
    assert cached_ends(edition, [full(4), window(4, 5)], 12, num_tokens=24) == [12, 20, 24]


@pytest.mark.parametrize("interval", [None, 0, 4, 8, 12])
def test_an_equal_prompt_hits_as_much_at_any_interval(edition: str, interval: int | None) -> None:
    for num_tokens in range(1, 25):
        core = Workbench([full(4), window(4, 7)], edition=edition, retention_interval=interval)
        core.cache(PROMPT[:num_tokens])
        assert core.hit(PROMPT[:num_tokens]).num_tokens == (num_tokens - 1) // 4 * 4


def test_a_shorter_prompt_hits_where_the_interval_kept_something(edition: str) -> None:
    def hits(interval: int | None) -> list[int]:
        core = Workbench([full(4), window(4, 5)], edition=edition, retention_interval=interval)
        core.cache(PROMPT)
        return [core.hit([*PROMPT[:end], 0]).num_tokens for end in (4, 8, 12, 16, 20)]

    assert hits(None) == [4, 8, 12, 16, 20]
    assert hits(8) == [0, 8, 8, 16, 20]
    assert hits(0) == [0, 0, 0, 0, 20]


def test_where_groups_disagreed_the_second_asker_keeps_the_window_for_the_third(edition: str) -> None:
    """A prompt that shares 12 tokens finds them in full attention only; having computed them, it caches them there."""
    core = Workbench([full(4), window(4, 5)], edition=edition, retention_interval=0, num_blocks=64)
    core.cache(PROMPT)
    second = core.request([*PROMPT[:12], *range(9)])
    hit = core.admit(second)
    assert (hit.num_tokens, hit.shared_prefix_boundary) == (0, 12)
    core.compute(second)
    assert 12 in core.cached(1)
    assert core.hit([*PROMPT[:12], 7, 7, 7]).num_tokens == 12


@pytest.mark.parametrize("interval", [6, 10, -4])
def test_an_interval_is_a_multiple_of_all_groups_block_sizes(interval: int) -> None:
    with pytest.raises(ConfigError, match="retention_interval must be"):
        EngineConfig(groups=(full(4), window(2, 4)), retention_interval=interval)
