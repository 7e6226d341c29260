"""Mistakes that engines made: the oracle finds each, with the event that made it so, and is silent without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from check.mutations import (
    CHAIN_RESTART,
    EARLY_WINDOW,
    INTERLEAVED,
    NO_REMAP,
    NOT_ALIVE,
    SIX_BITS,
    SLOT_RULE_71,
    SixBitHashChain,
    TrustingTier,
)
from check.watched import HYBRID, Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.core.parts import Parts

FULL_AND_WIDE_WINDOW = (GroupSpec(4), GroupSpec(4, "sliding_window", 64))
X, Y, Z = (1, 2, 3, 4), (5, 6, 7, 8), (9,)


def hit_blocks_at_the_head_of_the_queue(parts: Parts) -> Watched:
    """A long prompt is in the tier; its first two blocks of each group are also cached, and next to be reused."""
    tier = TrustingTier()
    long = [*range(100, 133)]
    elsewhere = watched(40, FULL_AND_WIDE_WINDOW, parts, connector=tier)
    elsewhere.add(*long)
    elsewhere.run()
    setup = watched(18 + (as_parts(parts).block_pool.null_block >= 0), FULL_AND_WIDE_WINDOW, parts, connector=tier)
    for prompt in (long[:9], [*range(500, 526)], long):
        setup.add(*prompt)
        setup.run()
    assert tier.met["load"] == 2
    return setup


def two_equal_prompts_and_a_third(parts: Parts) -> Watched:
    """Two requests compute the same blocks in one step; a third one then takes free blocks."""
    setup = watched(8, edition=parts, next_token=lambda request, position: request)
    setup.add(*X, *Y, *Z, max_tokens=6)
    setup.add(*X, *Y, *Z, max_tokens=6)
    setup.steps(1)
    setup.add(*range(100, 109), max_tokens=3)
    setup.steps(2)
    return setup


def an_equal_block_that_is_free(parts: Parts) -> Watched:
    """A block is freed and stays mapped; while it waits in the queue, another request computes the same content.

    The second block of the prompt is found by no look-up: a hit leaves the last token to compute.
    """
    setup = watched(5, edition=parts, next_token=lambda request, position: request)
    setup.add(*X)
    setup.run()
    setup.add(*X, max_tokens=12)
    setup.steps(1)
    setup.add(*range(100, 113))
    setup.steps(2)
    return setup


def a_resurrected_block_and_its_successor(parts: Parts) -> Watched:
    """X, then X Y, then Y alone, each after the end of the one before."""
    setup = watched(8, edition=parts)
    for prompt in ((*X, *Z), (*X, *Y, *Z), (*Y, *Z)):
        setup.add(*prompt)
        setup.run()
    return setup


def three_tokens_and_two_more(parts: Parts) -> Watched:
    """The second decoded token opens a block."""
    setup = watched(8, edition=parts)
    setup.add(1, 2, 3, max_tokens=3)
    setup.run()
    return setup


def longer_than_its_window(parts: Parts) -> Watched:
    """Blocks leave the window as the request goes on."""
    setup = watched(16, HYBRID, edition=parts)
    setup.add(*range(11), max_tokens=8)
    setup.run()
    return setup


def colliding_prefixes() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two blocks whose hashes are equal in their first six bits, and after which X's hash is equal too."""
    chain, seen = SixBitHashChain(), {}
    for start in range(1000, 2000, 4):
        tokens = tuple(range(start, start + 4))
        other = seen.setdefault(chain.link(b"", tokens), tokens)
        if other is not tokens:
            return other, tokens
    raise AssertionError("64 hashes, and no collision among 250 blocks")


def equal_tokens_after_colliding_prefixes(parts: Parts) -> Watched:
    """A|X and B|X, where A and B have one hash: the second's X finds the first's, computed after other tokens."""
    a, b = colliding_prefixes()
    setup = watched(16, edition=parts)
    setup.add(*a, *X, *Z, max_tokens=8)
    setup.steps(1)
    setup.add(*b, *X, *Z, max_tokens=2)
    setup.run()
    return setup


@dataclass(frozen=True)
class Case:
    """A story, the mutation that spoils it, and the expected findings."""

    story: Callable[[Parts], Watched]
    mutation: Parts
    edition: str
    rules: frozenset[str]
    first_events: dict[str, type[ev.Event]]


CASES = {
    "interleaved allocation": Case(
        hit_blocks_at_the_head_of_the_queue,
        INTERLEAVED,
        "labengine",
        frozenset({"read", "one_entry"}),
        {"one_entry": ev.BlockTouched, "read": ev.BlocksLoaded},
    ),
    "interleaved allocation, edition vllm": Case(
        hit_blocks_at_the_head_of_the_queue,
        INTERLEAVED,
        "vllm",
        frozenset({"read", "one_entry"}),
        {"one_entry": ev.BlockTouched, "read": ev.BlocksLoaded},
    ),
    "late merge without remap": Case(
        two_equal_prompts_and_a_third,
        NO_REMAP,
        "labengine",
        frozenset({"read", "ref_count", "held"}),
        {"held": ev.BlockFreed, "ref_count": ev.BlockFreed, "read": ev.SlotsWritten},
    ),
    "merge into a block that is not alive": Case(
        an_equal_block_that_is_free,
        NOT_ALIVE,
        "nano-vllm+243",
        frozenset({"read", "partition"}),
        {"partition": ev.BlockMerged, "read": ev.SlotsWritten},
    ),
    "chain restart on resurrection": Case(
        a_resurrected_block_and_its_successor,
        CHAIN_RESTART,
        "nano-vllm",
        frozenset({"read"}),
        {"read": ev.BlockTouched},
    ),
    "the slot rule of PR 71": Case(
        three_tokens_and_two_more,
        SLOT_RULE_71,
        "nano-vllm",
        frozenset({"read", "slot"}),
        {"read": ev.SlotsWritten, "slot": ev.SlotsWritten},
    ),
    "a hash of six bits": Case(
        equal_tokens_after_colliding_prefixes,
        SIX_BITS,
        "nano-vllm+243",
        frozenset({"read"}),
        {"read": ev.BlockMerged},
    ),
    "a window freed one block early": Case(
        longer_than_its_window,
        EARLY_WINDOW,
        "labengine",
        frozenset({"read", "window"}),
        {"read": ev.BlockFreed, "window": ev.BlockFreed},
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_it_is_found(case: Case) -> None:
    setup = case.story(case.mutation.overriding(as_parts(case.edition)))
    assert setup.broken_rules() >= case.rules
    assert "watch" not in setup.broken_rules()


def test_the_first_event_is_the_one_that_made_it_so(case: Case) -> None:
    setup = case.story(case.mutation.overriding(as_parts(case.edition)))
    assert {rule: type(setup.first_event(rule)) for rule in case.first_events} == case.first_events


def test_the_production_classes_are_silent(case: Case) -> None:
    setup = case.story(as_parts(case.edition))
    assert setup.watch.check(setup.engine.snapshot()) == []
