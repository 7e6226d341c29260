"""Prefix hits: their length and cost; the last token is always computed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from driving import ALL_EDITIONS, TREE_EDITIONS, assert_sound, recorded, small_engine
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS
from labengine.core.merge_policy import MergePolicy
from labengine.core.parts import Parts
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.engine.simulated import SimulatedRunner
from labengine.events import PrefixHit
from labengine.lab import Lab
from labengine.record.hooks import Hooks

ONE = SamplingParams(max_tokens=1)
LONG = SamplingParams(max_tokens=8)
PROMPT = list(range(10))  # two full blocks of four, and two tokens


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def hits(events: Sequence[object]) -> list[int]:
    return [event.num_tokens for event in events if isinstance(event, PrefixHit)]


def test_equal_blocks_after_another_prefix_are_no_hit(edition: str) -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(edition=edition, hooks=hooks)
    engine.add([1, 1, 1, 1, 7, 7, 7, 7, 0], ONE)
    engine.step()
    engine.add([2, 2, 2, 2, 7, 7, 7, 7, 0], ONE)
    engine.add([7, 7, 7, 7, 0], ONE)
    engine.step()
    assert hits(events) == [0, 0, 0]


def test_requests_with_different_salts_share_nothing(edition: str) -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(edition=edition, hooks=hooks)
    for salt in ("a", "b", "a", None):
        engine.add(PROMPT, RequestOptions(ONE, salted((), salt)))
        engine.step()
    assert hits(events) == [0, 0, 8, 0]


@pytest.mark.parametrize("edition", [name for name in ALL_EDITIONS if name not in TREE_EDITIONS], indirect=True)
def test_two_groups_agree_on_the_prefix_they_share(edition: str) -> None:
    """Blocks of 2 and of 4 on one pool: a hit is whole blocks of both, and nothing shared is written again."""
    groups = (GroupSpec(2), GroupSpec(4))
    engine = Engine(EngineConfig(24, groups), SimulatedRunner(), EDITIONS[edition], Hooks(strict=True))
    engine.add([1, 2, 3, 4, 5, 6, 7, 8, 9], LONG)
    engine.step()
    engine.add([1, 2, 3, 4, 5, 6, 0, 0, 0], LONG)
    phases = engine.phases()
    assert next(phases) == "schedule"
    fine, coarse = engine.snapshot().requests[1].block_tables
    of_first = engine.snapshot().requests[0].block_tables
    assert (fine[:2], coarse[:1]) == (of_first[0][:2], of_first[1][:1])
    assert not set(fine[2:] + coarse[1:]) & set(of_first[0] + of_first[1])
    assert list(phases)[-1] == "update"
    while engine.step():
        assert_sound(engine.snapshot())


class FirstComer(MergePolicy):
    """The first block keeps the entry; a duplicate stays out of the map."""

    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return () if mapped else (block_id,)


class NobodyFound(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return ()


@pytest.mark.parametrize(("policy", "hit"), [(FirstComer, 2), (NobodyFound, 0)])
def test_a_block_left_out_of_the_map_leaves_it_as_it_was(policy: type[MergePolicy], hit: int) -> None:
    lab = Lab("simulated", num_blocks=12, block_size=4, parts=Parts(merge_policy=policy))
    for _ in range(2):
        lab.add(token_ids=range(10), max_tokens=2)
    lab.run()
    lab.add(token_ids=range(10), max_tokens=1)
    lab.step()
    assert lab.timeline is not None
    assert lab.timeline.of_kind(PrefixHit)[-1].num_tokens == 4 * hit
    assert lab.timeline.state().snapshot() == lab.snapshot()
    assert lab.check() == []
