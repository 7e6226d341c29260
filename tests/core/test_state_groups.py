"""State groups: one state per request, chunks that end where it can be cached, and copies before it goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from check.watched import Watched, watched
from driving import TOKEN_BUDGET_EDITIONS, num_null_blocks
from labengine import Lab
from labengine import events as ev
from labengine.config import ConfigError, EngineConfig, GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.state_group import StateGroup
from labengine.core.token_budget import TokenBudgetScheduler

PROMPT = tuple(range(100, 122))
"""22 tokens: five blocks of 4, and 2 more."""


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def state(block_size: int) -> GroupSpec:
    return GroupSpec(block_size, "state")


def engine(edition: str | Parts = "labengine", *groups: GroupSpec, num_blocks: int = 32, **settings: Any) -> Watched:
    return watched(num_blocks, groups or (GroupSpec(4), state(4)), edition, **settings)


def state_table(setup: Watched, request_id: int, group: int = 1) -> list[int]:
    """The table with None for null entries, and the other ids from 0 on in editions with a null block too."""
    pool = setup.engine.scheduler.manager.pool
    offset = num_null_blocks(setup.engine.parts)
    table = setup.engine.requests[request_id].block_tables[group]
    return [-1 if block_id == pool.null_block else block_id - offset for block_id in table]


def chunks(setup: Watched) -> list[int]:
    return [event.num_tokens for event in setup.timeline.of_kind(ev.RequestScheduled)]


def hits(setup: Watched) -> list[int]:
    return [event.num_tokens for event in setup.timeline.of_kind(ev.PrefixHit)]


# -- chunks and tables -------------------------------------------------------------------------------------------------


def test_a_chunk_takes_one_block_and_the_state_before_is_freed_two_allocations_later(edition: str) -> None:
    setup = engine(edition, budget=12)
    a = setup.add(*PROMPT, max_tokens=4)
    tables = []
    for _ in range(4):
        setup.engine.step()
        tables.append(state_table(setup, a))
        setup.assert_clean()
    assert tables == [[-1, -1, 3], [-1, -1, 3, -1, 6], [-1, -1, -1, -1, 6, 8], [-1, -1, -1, -1, -1, 8]]
    copied = setup.timeline.of_kind(ev.StateCopied)
    assert [event.num_tokens for event in copied] == [12, 20]
    assert [event.reason for event in setup.timeline.of_kind(ev.BlockFreed)] == ["state", "state"]
    setup.run()
    setup.assert_clean()
    assert setup.engine.num_used_blocks == 0


@pytest.mark.parametrize(
    ("num_tokens", "size", "budget", "threshold", "wanted"),
    [
        (22, 4, 1000, 0, [20, 2]),  # it stops at the last state that an equal prompt can hit
        (20, 4, 1000, 0, [16, 4]),
        (22, 4, 12, 0, [12, 8, 2]),
        (22, 4, 11, 0, [8, 8, 4, 2]),  # a chunk that does not finish ends at a block's end
        (21, 8, 5, 0, [5, 3, 5, 3, 5]),  # no block's end within a step
        (21, 8, 9, 0, [8, 8, 5]),
        (3, 4, 1000, 0, [3]),
        (1, 4, 1000, 0, [1]),
        (21, 8, 1000, 5, [16, 5]),  # alone, no threshold
    ],
)
def test_chunks_end_where_a_state_can_be_cached(
    edition: str, num_tokens: int, size: int, budget: int, threshold: int, wanted: list[int]
) -> None:
    setup = engine(edition, GroupSpec(size), state(size), budget=budget, long_prefill_token_threshold=threshold)
    setup.add(*range(num_tokens))
    setup.run()
    assert chunks(setup) == wanted
    setup.assert_clean()


def test_decoding_goes_on_in_place_until_the_entry_ends(edition: str) -> None:
    setup = engine(edition)
    a = setup.add(1, 2, 3, max_tokens=7)
    blocks = []
    while setup.engine.requests[a].has_blocks or not blocks:
        setup.engine.step()
        blocks.append(state_table(setup, a)[-1:])
    assert blocks == [[1], [1], [3], [3], [3], [3], []]
    assert [event.num_tokens for event in setup.timeline.of_kind(ev.StateCopied)] == [4, 8]
    advanced = [(event.start, event.end) for event in setup.timeline.of_kind(ev.StateAdvanced)]
    assert advanced == [(0, 3), *((n, n + 1) for n in range(3, 9))]
    setup.assert_clean()


def test_a_running_request_that_cannot_reach_a_blocks_end_is_passed_over(edition: str) -> None:
    """Of 9 tokens a decode takes 1 or 2: 8 are left for a chunk, or 7, and 7 reach no end."""
    setup = engine(edition, GroupSpec(8), state(8), budget=9, max_num_seqs=4)
    for first in (0, 100):
        setup.add(*range(first, first + 6), max_tokens=4)
    setup.steps(1)
    late = setup.add(*range(200, 221), max_tokens=1)
    behind = setup.add(*range(300, 303), max_tokens=1)
    reports = [setup.engine.step() for _ in range(4)]
    waited = [late not in report.scheduled for report in reports]
    assert waited[0] and behind not in reports[0].scheduled
    setup.run()
    setup.assert_clean()


# -- hits --------------------------------------------------------------------------------------------------------------


def test_a_hit_needs_one_state_and_costs_it_if_it_is_free(edition: str) -> None:
    setup = engine(edition, budget=12)
    for _ in range(2):
        setup.add(*PROMPT, max_tokens=1)
        setup.run()
    hit = setup.timeline.of_kind(ev.PrefixHit)[-1]
    null_block = setup.engine.scheduler.manager.pool.null_block
    assert hit.num_tokens == 20 and [*hit.block_ids[1][:-1]] == [null_block] * 4
    assert [event.group for event in setup.timeline.of_kind(ev.BlockTouched)].count(1) == 1
    setup.assert_clean()


def test_where_attention_hits_more_than_states_the_next_chunk_leaves_one(edition: str) -> None:
    """A sibling shares 17 tokens with the prompt, whose states are at 12 and 20: it leaves one at 16 for the third."""
    setup = engine(edition, budget=12)
    for last in (0, 1, 2):
        setup.add(*(PROMPT if not last else PROMPT[:17]), *[last] * 6, max_tokens=1)
        setup.run()
    assert [event.num_tokens for event in setup.timeline.of_kind(ev.SharedPrefixFound)] == [16]
    assert hits(setup) == [0, 12, 16]
    setup.assert_clean()


@pytest.mark.parametrize(("interval", "wanted"), [(None, [4, 8, 12, 16, 20, 24]), (0, [20]), (8, [8, 16, 20, 24])])
def test_retention_keeps_the_last_state_of_a_prompt_and_each_multiple(
    edition: str, interval: int | None, wanted: list[int]
) -> None:
    setup = engine(edition, budget=4, retention_interval=interval)
    a = setup.add(*PROMPT, max_tokens=4)
    setup.run()
    size = len(setup.engine.requests[a].token_ids)
    cached = [event for event in setup.timeline.of_kind(ev.BlockCached) if event.group == 1]
    assert [(event.index + 1) * 4 for event in cached] == [end for end in wanted if end < size]


def test_a_prompt_of_one_group_alone(edition: str) -> None:
    setup = engine(edition, state(4))
    for _ in range(2):
        setup.add(*PROMPT, max_tokens=3)
        setup.run()
    assert hits(setup) == [0, 20]
    setup.assert_clean()


@pytest.mark.parametrize(("full", "size", "in_vllm"), [(8, 4, 0), (4, 8, 28), (6, 4, 28)])
def test_hits_end_where_blocks_of_unlike_size_end_together(edition: str, full: int, size: int, in_vllm: int) -> None:
    """vLLM leaves the last state at 28, where the blocks of attention may not end; labengine at 24.

    Where a state's block is longer than a link of the hash chain, vLLM's hits may end inside blocks.
    """
    setup = engine(edition, GroupSpec(full), state(size), hash_block_size=2 if full == 6 else 0)
    for _ in range(2):
        setup.add(*range(29), max_tokens=1)
        setup.run()
    assert hits(setup) == [0, in_vllm if edition == "vllm" else 24]
    setup.assert_clean()


def test_vllm_waits_for_a_state_of_the_same_step_and_labengine_computes_it_again() -> None:
    """Both steps, in vLLM: the owner's second chunk registers the state again. Attention alone would share at once."""
    steps = {}
    for edition in TOKEN_BUDGET_EDITIONS:
        setup = engine(edition)
        for prompt in (PROMPT, PROMPT, (1, 2, 3)):
            setup.add(*prompt, max_tokens=2)
        steps[edition] = [setup.engine.step().scheduled for _ in range(3)]
        setup.run()
        setup.assert_clean()
    assert steps["vllm"] == [{0: 20}, {0: 2}, {0: 1, 1: 2, 2: 3}]
    assert steps["labengine"][0] == {0: 20, 1: 20, 2: 3}


def test_a_block_for_the_longest_request_is_held_for_life_and_nothing_is_hit(edition: str) -> None:
    """vLLM's mode "none", whose block size is max_model_len."""
    setup = engine(edition, GroupSpec(4), state(4096), budget=5, max_model_len=4096)
    for _ in range(2):
        a = setup.add(*PROMPT, max_tokens=9)
        setup.engine.step()
        held = state_table(setup, a)
        while setup.engine.requests[a].has_blocks:
            assert state_table(setup, a) == held and len(held) == 1
            setup.engine.step()
    assert hits(setup) == [0, 0] and setup.timeline.of_kind(ev.BlockCached) == []
    assert setup.timeline.of_kind(ev.StateCopied) == []
    setup.assert_clean()


# -- room --------------------------------------------------------------------------------------------------------------


def test_a_request_needs_two_states_at_most() -> None:
    setup = engine("labengine", GroupSpec(4), state(4), num_blocks=12)
    setup.add(*range(37), max_tokens=1)
    with pytest.raises(ConfigError, match=r"needs 13 blocks, .* has 12"):
        setup.add(*range(41), max_tokens=1)
    setup.run()
    setup.assert_clean()


def test_preempted_requests_take_up_a_cached_state_again(edition: str) -> None:
    setup = engine(edition, num_blocks=11 + num_null_blocks(engine(edition).engine.parts), max_num_seqs=2)
    for first in (0, 50):
        setup.add(*range(first, first + 12), max_tokens=12)
    setup.run()
    assert setup.timeline.of_kind(ev.RequestPreempted)
    assert any(num_tokens > 0 for num_tokens in hits(setup))
    setup.assert_clean()


# -- rollbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [1, 2, 3])
@pytest.mark.parametrize("step", range(6))
def test_a_step_that_is_taken_back_leaves_no_state_behind(edition: str, step: int, phase: int) -> None:
    """A state that the forward pass has overwritten is gone: its request recomputes, and ends with the same tokens."""
    usual, broken = engine(edition, budget=12), engine(edition, budget=12)
    for setup in (usual, broken):
        setup.add(*PROMPT, max_tokens=5)
        setup.add(*PROMPT[:9], max_tokens=5)
    broken.steps(step)
    phases = broken.engine.phases()
    for _ in range(phase):
        next(phases)
    phases.close()
    broken.assert_clean()
    for setup in (usual, broken):
        setup.run()
        setup.assert_clean()
    assert [r.token_ids for r in usual.engine.requests.values()] == [
        r.token_ids for r in broken.engine.requests.values()
    ]


def test_only_a_state_overwritten_in_place_costs_its_request() -> None:
    """The first chunk begins from nothing; the second, and token 20, go into a fresh block, and others in place."""
    preempted = []
    for step in range(5):
        setup = engine(budget=16)
        setup.add(*PROMPT[:18], max_tokens=9)
        setup.steps(step)
        phases = setup.engine.phases()
        next(phases)
        next(phases)
        phases.close()
        preempted.append(len(setup.timeline.of_kind(ev.RequestPreempted)))
    assert preempted == [0, 0, 1, 1, 0]


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_running_state_until_one_of_the_two_writes() -> None:
    setup = engine()
    leader = setup.add(*PROMPT, max_tokens=6)
    fork = setup.add(*PROMPT, max_tokens=6, leader_id=leader)
    setup.steps(2)
    assert state_table(setup, leader) == state_table(setup, fork)[:4] + state_table(setup, leader)[4:]
    assert state_table(setup, leader)[-1] == state_table(setup, fork)[-1]
    setup.assert_clean()
    setup.engine.step()
    assert state_table(setup, leader)[-1] != state_table(setup, fork)[-1]
    assert 1 in {event.group for event in setup.timeline.of_kind(ev.BlockCopied)}
    setup.run()
    setup.assert_clean()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"groups": [state(4)], "external": "host"}, "the external tier cannot keep states"),
        ({"groups": [state(4)], "edition": "nano-vllm"}, "this edition has no state groups"),
        ({"groups": [state(4), state(8)], "hash_block_size": 4}, "state groups must share one block_size, got 4, 8"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Lab("simulated", num_blocks=8, **settings)


def test_a_state_group_has_no_window() -> None:
    with pytest.raises(ConfigError, match="full or state group"):
        GroupSpec(4, "state", 8)
    assert EngineConfig(groups=(state(4),)).scheduler_block_size == 4


# -- wrong classes -----------------------------------------------------------------------------------------------------


class ForgetsToCopy(StateGroup):
    """The fresh block holds whatever was there before."""

    def carry_over(self, request: Request, num_tokens: int) -> tuple[()]:
        return ()


class CopiesAnotherEntry(StateGroup):
    """The entry is computed with the size of another group's blocks (vLLM issue 55600)."""

    def carry_over(self, request: Request, num_tokens: int) -> Any:
        return [replace(copy, block_id=request.block_tables[0][0]) for copy in super().carry_over(request, num_tokens)]


class HitsAnyEntry(StateGroup):
    """The state at a later boundary serves a shorter prompt."""

    def find_hit(self, request: Request, max_tokens: int, siblings: Any) -> Any:
        hits = super().find_hit(request, max_tokens, siblings)
        cached = [b.block_id for b in self._pool.blocks if any(key[0] == self.index for key in b.keys)]
        if not hits[0] or not cached:
            return hits
        return [[*hits[0][:-1], cached[-1]]]


class SharesTheState(StateGroup):
    """A fork and its parent advance the same block."""

    def copies_before_write(self, request: Request, index: int) -> bool:
        return False


class RunsOn(TokenBudgetScheduler):
    """Chunks end anywhere: the state at a block's end is never there."""

    def clipped(self, request: Request, start: int, num_tokens: int) -> int:
        return num_tokens


class DropsTheRunningState(StateGroup):
    """Takes the state for one of the entries before it."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens + 3


class KeepsTornStates(TokenBudgetScheduler):
    """Trusts a state that a broken step has overwritten."""

    def forget_written(self, plan: Any) -> None:
        return None


def rules_broken(parts: Parts, *, forks: bool = False, breaks: bool = False) -> set[str]:
    setup = engine(parts.overriding(LABENGINE), budget=6)
    for first in (0, 0, 50):
        leader = setup.add(*range(first, first + 11), max_tokens=6)
        if forks:
            setup.add(*range(first, first + 11), max_tokens=6, leader_id=leader)
        setup.steps(4)
        if breaks:
            phases = setup.engine.phases()
            next(phases)
            next(phases)
            phases.close()
    try:
        setup.run()
    except Exception:
        assert setup.watch.violations
    return setup.broken_rules()


@pytest.mark.parametrize(
    ("parts", "more", "rule"),
    [
        (Parts(state_group=ForgetsToCopy), {}, "read"),
        (Parts(state_group=CopiesAnotherEntry), {}, "read"),
        (Parts(state_group=HitsAnyEntry), {}, "read"),
        (Parts(state_group=SharesTheState), {"forks": True}, "read"),
        (Parts(state_group=SharesTheState), {"forks": True}, "write"),
        (Parts(state_group=DropsTheRunningState), {}, "window"),
        (Parts(scheduler=KeepsTornStates), {"breaks": True}, "read"),
    ],
)
def test_a_wrong_state_is_seen(parts: Parts, more: dict[str, bool], rule: str) -> None:
    assert rule in rules_broken(parts, **more)
    assert rules_broken(Parts(), **more) == set()


def test_the_violation_says_which_state_was_found_and_which_was_needed() -> None:
    setup = engine(Parts(state_group=ForgetsToCopy).overriding(LABENGINE), budget=12)
    setup.add(*PROMPT, max_tokens=1)
    setup.run()
    (first, *_) = [violation for violation in setup.watch.violations if violation.rule == "read"]
    assert "its first 12 tokens in group 1: block 6" in first.message
    assert first.message.endswith("(overridden: ForgetsToCopy.carry_over)")
    assert isinstance(setup.first_event("read"), ev.BlockAllocated)


def test_a_state_that_is_registered_and_was_never_computed_is_told_in_words_of_states() -> None:
    class EndsAnywhere(StateGroup):
        def chunk_end(self, request: Request, start: int, end: int) -> int:
            return end

    setup = engine(Parts(state_group=EndsAnywhere).overriding(LABENGINE), budget=6)
    setup.add(*range(11), max_tokens=1)
    setup.run()
    [named] = [violation.message for violation in setup.watch.violations if violation.rule == "named"]
    assert "the state after 8 tokens of request 0" in named and "request 0's state after 6 tokens" in named


def test_without_clipping_nothing_wrong_is_cached_and_little_is_hit() -> None:
    setup = engine(Parts(scheduler=RunsOn).overriding(LABENGINE), budget=1000)
    for _ in range(2):
        setup.add(*PROMPT, max_tokens=1)
        setup.run()
    assert hits(setup) == [0, 0]
    assert setup.broken_rules() == set()
