"""Forks: blocks shared by reference, the tail too, until a request writes to it; then that request has a copy."""

from __future__ import annotations

import pytest

from check.watched import HYBRID, Watched, watched
from driving import difference, queues, recorded, small_engine
from labengine import events as ev
from labengine.config import ConfigError, SamplingParams
from labengine.core.block import BlockCopy
from labengine.core.editions import LABENGINE
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.engine.engine import Engine
from labengine.session.history.broken_steps import break_off_step_at

PROMPT = (1, 2, 3, 4, 5, 6)
"""One full block and a tail of two tokens."""


def add(setup: Watched, n: int, *prompt: int, max_tokens: int = 6) -> list[int]:
    leader = setup.add(*(prompt or PROMPT), max_tokens=max_tokens)
    return [leader, *(setup.add(*(prompt or PROMPT), max_tokens=max_tokens, leader_id=leader) for _ in range(1, n))]


def tables(engine: Engine) -> dict[int, list[list[int]]]:
    return {i: request.block_tables for i, request in engine.requests.items() if request.has_blocks}


def test_the_prompt_is_computed_once_and_its_blocks_are_shared() -> None:
    setup = watched()
    a, b, c = add(setup, 3)
    report = setup.engine.step()
    assert report.scheduled == {a: 6}, "the siblings compute nothing"
    assert [*report.sampled] == [a, b, c] and len(set(report.sampled.values())) == 3
    assert tables(setup.engine) == {i: [[0, 1]] for i in (a, b, c)}
    assert setup.engine.num_used_blocks == 2 and report.peak_used_blocks == 2
    setup.assert_clean()


def test_who_writes_to_a_shared_tail_copies_it_and_the_last_one_writes_in_place() -> None:
    setup = watched()
    a, b, c = add(setup, 3)
    setup.steps(2)
    assert tables(setup.engine) == {a: [[0, 2]], b: [[0, 3]], c: [[0, 1]]}
    copies = setup.timeline.of_kind(ev.BlockCopied)
    assert [(e.block_id, e.into_block_id, e.request_id) for e in copies] == [(1, 2, a), (1, 3, b)]
    assert setup.engine.scheduler.manager.pool.blocks[0].ref_count == 3
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
    assert setup.engine.num_used_blocks == 0
    assert setup.timeline.of_kind(ev.BlockEvicted) == [], "a shared block is registered once"


def test_a_tail_that_is_full_is_not_copied() -> None:
    setup = watched()
    add(setup, 3, *range(8))
    setup.run()
    assert setup.timeline.of_kind(ev.BlockCopied) == []
    setup.assert_clean()


def test_in_a_window_group_the_fork_has_what_its_next_tokens_read() -> None:
    setup = watched(32, HYBRID)
    a, b = add(setup, 2, *range(14), max_tokens=10)
    setup.engine.step()
    full, window = tables(setup.engine)[b]
    assert full == tables(setup.engine)[a][0] and window[0] == -1 and window[1:] == tables(setup.engine)[a][1][1:]
    setup.assert_clean()
    setup.engine.step()
    assert {event.group for event in setup.timeline.of_kind(ev.BlockCopied)} == {0, 1}
    setup.run()
    setup.assert_clean()


def test_a_branch_shares_the_blocks_of_a_request_that_decodes() -> None:
    setup = watched()
    a = setup.add(*PROMPT, max_tokens=8)
    setup.steps(3)
    before = list(setup.engine.requests[a].token_ids)
    b = setup.engine.branch(a, token_id=77)
    branch = setup.engine.requests[b]
    assert branch.token_ids == [*before[:-1], 77] and branch.num_prompt_tokens == len(PROMPT)
    assert branch.num_computed_tokens == len(before) - 1 and tables(setup.engine)[b] == tables(setup.engine)[a]
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
    assert len(branch.token_ids) == len(PROMPT) + 8
    assert setup.engine.requests[a].token_ids[: len(before)] == before


def test_a_branch_of_a_request_that_is_not_computed_waits_for_its_tokens() -> None:
    setup = watched(budget=4)
    a = setup.add(*PROMPT, max_tokens=3)
    b = setup.engine.branch(a)
    setup.engine.step()
    c = setup.engine.branch(b)
    assert queues(setup.engine) == ([], [a], [])
    setup.engine.step()
    assert queues(setup.engine) == ([], [a, b, c], [])
    setup.assert_clean()
    setup.run()
    setup.assert_clean()


def test_without_a_seat_a_branch_waits_in_the_queue() -> None:
    setup = watched(max_num_seqs=1)
    a = setup.add(*PROMPT, max_tokens=3)
    setup.engine.step()
    b = setup.engine.branch(a, token_id=9)
    assert queues(setup.engine) == ([b], [a], [])
    setup.run()
    setup.assert_clean()
    assert setup.engine.requests[b].num_tokens == len(PROMPT) + 3


def test_a_leader_is_admitted_only_with_a_seat_for_each_sibling() -> None:
    setup = watched(max_num_seqs=3)
    alone = setup.add(9, 8, max_tokens=2)
    a, *others = add(setup, 3)
    setup.engine.step()
    assert queues(setup.engine) == ([a], [alone], [])
    setup.steps(2)
    assert queues(setup.engine) == ([], [a, *others], [])
    setup.assert_clean()


def test_when_the_leader_is_aborted_the_next_sibling_takes_its_place() -> None:
    setup = watched(budget=4)
    a, b, c = add(setup, 3)
    last = setup.add(50, max_tokens=1)
    setup.engine.step()
    setup.engine.abort(a)
    assert queues(setup.engine)[0] == [b, last]
    assert setup.engine.scheduler.siblings.of(setup.engine.requests[b]) == (setup.engine.requests[c],)
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
    assert {len(setup.engine.requests[i].token_ids) for i in (b, c)} == {len(PROMPT) + 6}


def test_each_of_them_is_aborted_by_itself() -> None:
    setup = watched()
    a, b, c = add(setup, 3)
    assert setup.engine.abort(c)
    setup.engine.step()
    assert setup.engine.abort(a)
    assert tables(setup.engine) == {b: [[0, 1]]}
    setup.engine.step()
    assert setup.timeline.of_kind(ev.BlockCopied) == [], "nobody else reads it"
    setup.assert_clean()


def test_one_that_ends_at_its_first_token_leaves_the_prompt_to_its_siblings() -> None:
    engine = small_engine(eos=frozenset({7}), next_token=lambda request_id, position: 7 if request_id == 0 else 1)
    for leader in (None, 0):
        engine.add(PROMPT, SamplingParams(max_tokens=4), leader_id=leader)
    assert engine.step().finished == (0,)
    assert tables(engine) == {1: [[0, 1]]}


# -- few blocks --------------------------------------------------------------------------------------------------------


def test_a_fork_takes_no_block_so_that_none_can_fail_midway() -> None:
    """transformers 46117: a fork takes blocks one by one and fails midway. Prompt 6, two forks, 1 free block."""
    setup = watched(3)
    a = setup.add(*PROMPT, max_tokens=3)
    setup.engine.step()
    b, c = setup.engine.branch(a, token_id=70), setup.engine.branch(a, token_id=71)
    assert tables(setup.engine) == {i: [[0, 1]] for i in (a, b, c)} and setup.engine.snapshot().free_queue == (2,)
    setup.assert_clean()
    report = setup.engine.step()
    assert report.preempted == (c,), "one of the two copies finds a block"
    assert tables(setup.engine) == {a: [[0, 2]], b: [[0, 1]]}
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
    assert {len(request.token_ids) for request in setup.engine.requests.values()} == {9}


def test_preempting_goes_over_those_that_hold_blocks() -> None:
    """OpenVINO GenAI 4332: partial preemption of a group iterates a fork already freed. 2 from prompt 6, pool 4."""
    setup = watched(4)
    a, b = add(setup, 2, max_tokens=8)
    preempted: list[int] = []
    while setup.engine.step():
        preempted += setup.engine.report.preempted
        setup.assert_clean()
    assert preempted == [b]
    assert {len(setup.engine.requests[i].token_ids) for i in (a, b)} == {14}


@pytest.mark.parametrize("victim", ["parent", "fork"])
def test_the_blocks_of_the_other_outlive_a_preemption(victim: str) -> None:
    setup = watched(8)
    a = setup.add(*PROMPT, max_tokens=6)
    setup.engine.step()
    b = setup.engine.branch(a, token_id=70)
    requests, scheduler = setup.engine.requests, setup.engine.scheduler
    with setup.engine._atomic_change():
        scheduler.preempt(requests[a if victim == "parent" else b])
    assert tables(setup.engine) == {b if victim == "parent" else a: [[0, 1]]}
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
    assert {len(requests[i].token_ids) for i in (a, b)} == {12}


# -- all or nothing ----------------------------------------------------------------------------------------------------


def copying(num_blocks: int) -> tuple[Watched, list[ev.Event]]:
    """About to take a step that copies twice, or with 3 blocks once, and then preempts."""
    setup = watched(num_blocks)
    events = recorded(setup.engine.hooks)
    add(setup, 3, max_tokens=3)
    setup.steps(1)
    return setup, events


@pytest.mark.parametrize("num_blocks", [3, 4])
def test_a_copying_step_that_ends_at_any_of_its_events_never_happened(num_blocks: int) -> None:
    """At each event, by an interrupt and by an error; then the run goes on as if nothing had been."""
    undisturbed, events = copying(num_blocks)
    start = len(events)
    undisturbed.engine.step()
    step = events[start:]
    assert len([e for e in step if isinstance(e, ev.BlockCopied)]) == num_blocks - 2
    after = undisturbed.engine.snapshot()
    ends = [(type(e).__name__, [type(x) for x in step[:i]].count(type(e)) + 1) for i, e in enumerate(step[1:-1], 1)]
    for reason in ("KeyboardInterrupt", "ValueError"):
        for kind, number in ends:
            setup, _ = copying(num_blocks)
            before = setup.engine.snapshot()
            break_off_step_at(setup.engine, (kind, number), reason)
            assert isinstance(setup.timeline.events()[-1], ev.StepRolledBack), (kind, number)
            assert difference(before, setup.engine.snapshot()) is None, (kind, number)
            setup.assert_clean()
            setup.engine.step()
            assert difference(after, setup.engine.snapshot()) is None, (kind, number)
            setup.run()
            setup.assert_clean()


def test_a_fork_whose_part_raises_never_happened() -> None:
    class Raises(FullAttentionGroup):
        def add_shared(self, request: Request, parent: Request, num_tokens: int) -> None:
            super().add_shared(request, parent, num_tokens)
            raise ValueError("too late")

    setup = watched(edition=variant(Raises))
    a = setup.add(*PROMPT, max_tokens=3)
    setup.engine.step()
    before, num_events = setup.engine.snapshot(), setup.timeline.end
    with pytest.raises(ValueError, match="too late"):
        setup.engine.branch(a)
    assert difference(before, setup.engine.snapshot()) is None and setup.timeline.end == num_events
    assert setup.engine.num_added == 1
    setup.assert_clean()


def test_a_copied_block_that_was_given_away_is_not_trusted_after_a_rollback() -> None:
    """B has copied the shared block, A alone held it and gave it back, and C wrote to it: B has it again."""
    setup = watched(4)
    a = setup.add(*range(7), max_tokens=6)
    c = setup.add(60, 61, 62, 63, max_tokens=6)
    setup.engine.step()
    b = setup.engine.branch(a, token_id=70)
    setup.engine.scheduler.running[:] = [setup.engine.requests[i] for i in (b, c, a)]
    break_off_step_at(setup.engine, ("ForwardRan", 1))
    names = ("BlockCopied", "RequestPreempted", "StepRolledBack", "RequestPreempted")
    seen = [e for e in setup.timeline.events() if type(e).__name__ in names]
    assert [type(e).__name__ for e in seen][:3] == [*names[:3]]
    assert {event.request_id for event in seen[3:]} == {a, b}
    setup.assert_clean()
    setup.run()
    setup.assert_clean()


def test_what_a_copy_has_overwritten_is_not_trusted_after_a_rollback() -> None:
    setup = watched(3)
    setup.add(*range(60, 72), max_tokens=1)
    setup.run()
    add(setup, 2, max_tokens=2)
    setup.engine.step()
    (free,) = setup.engine.snapshot().free_queue
    assert setup.engine.scheduler.manager.pool.blocks[free].keys
    phases = setup.engine.phases()
    assert next(phases) == "schedule"
    phases.close()
    assert setup.engine.snapshot().free_queue == (free,)
    assert not setup.engine.scheduler.manager.pool.blocks[free].keys and setup.engine.reached == "schedule"
    setup.assert_clean()


def test_nothing_is_copied_for_a_request_that_gave_way() -> None:
    setup = watched(3)
    a, b, c = add(setup, 3, max_tokens=3)
    setup.engine.step()
    with setup.engine._atomic_change():
        setup.engine.scheduler.manager.allocate(setup.engine.requests[c], 7)
        setup.engine.scheduler.preempt(setup.engine.requests[c])
    assert setup.engine.scheduler.manager.copies == []
    assert len(setup.timeline.of_kind(ev.BlockCopied)) == 1 and {a, b}
    setup.assert_clean()


# -- editions and seams ------------------------------------------------------------------------------------------------


def test_in_vllm_the_answers_are_separate_requests_that_share_full_blocks() -> None:
    setup = watched(edition="vllm")
    a, b, c = add(setup, 3)
    report = setup.engine.step()
    assert report.scheduled == {a: 6, b: 2, c: 2}, "each computes its tail"
    assert tables(setup.engine) == {a: [[1, 2]], b: [[1, 3]], c: [[1, 4]]}
    d = setup.engine.branch(a)
    assert queues(setup.engine)[0] == [d]
    setup.run()
    assert not setup.timeline.of_kind(ev.BlockCopied) and not setup.timeline.of_kind(ev.RequestForked)
    setup.assert_clean()


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243", "nano-vllm-2025-07"])
def test_nano_vllm_has_no_forks(edition: str) -> None:
    engine = small_engine(edition=edition)
    a = engine.add(PROMPT, SamplingParams(max_tokens=3))
    engine.step()
    for fork in (lambda: engine.add(PROMPT, SamplingParams(max_tokens=3), leader_id=a), lambda: engine.branch(a)):
        with pytest.raises(ConfigError, match="add the prompt several times, or use edition 'labengine' or 'vllm'"):
            fork()
    assert engine.num_added == len(engine.requests) == 1


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (lambda engine: engine.branch(0), "A has finished"),
        (lambda engine: engine.branch(1, token_id=5), "has not sampled"),
        (lambda engine: engine.branch(2, token_id=7), "token 7 ends"),
    ],
)
def test_a_branch_is_refused_before_anything_changes(refused: object, why: str) -> None:
    engine = small_engine(eos=frozenset({7}), next_token=lambda *_: 1)
    events = recorded(engine.hooks)
    engine.add((1, 2), SamplingParams(max_tokens=1))
    engine.step()
    engine.add((5, 6), SamplingParams(max_tokens=3))
    engine.add((5, 7), SamplingParams(max_tokens=3))
    if "ends" in why:
        engine.step()
    before, num_events = engine.snapshot(), len(events)
    with pytest.raises(ConfigError, match=why):
        refused(engine)  # type: ignore[operator]
    assert engine.snapshot() == before and len(events) == num_events


class NoCopy(FullAttentionGroup):
    """The bug: everybody writes into the shared tail."""

    def copies_before_write(self, request: Request, index: int) -> bool:
        return False


class CopyAtFork(KVCacheManager):
    """By value: the tail is copied when the request forks."""

    def fork(self, request: Request, parent: Request) -> None:
        super().fork(request, parent)
        for group in self.groups:
            if request.num_computed_tokens % group.block_size:
                self.copy(group, request, len(request.block_tables[group.index]) - 1)


class NoSharedTail(FullAttentionGroup):
    """Full blocks alone are shared; a fork computes the tail again."""

    def num_shared_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens - num_computed_tokens % self.block_size


def variant(part: type) -> Parts:
    field = "kv_cache_manager" if issubclass(part, KVCacheManager) else "full_attention_group"
    return Parts(**{field: part}).overriding(LABENGINE)


def test_without_a_copy_the_requests_overwrite_each_other_and_the_checks_say_so() -> None:
    setup = watched(edition=variant(NoCopy))
    add(setup, 2)
    setup.steps(3)
    assert setup.broken_rules() >= {"write", "read"}


class SilentCopy(FullAttentionGroup):
    """Copies, and leaves the table as it was."""

    def copy(self, request: Request, index: int) -> BlockCopy:
        copied = super().copy(request, index)
        request.block_tables[self.index][index] = copied.block_id
        return copied


def test_a_copy_that_the_table_does_not_name_is_found_at_its_event() -> None:
    setup = watched(edition=variant(SilentCopy))
    add(setup, 2)
    setup.steps(2)
    said = next(violation for violation in setup.watch.violations if violation.rule == "said")
    assert "(SilentCopy.copy)" in said.message
    assert isinstance(setup.first_event("said"), ev.BlockCopied)


@pytest.mark.parametrize(("part", "num_used", "num_copies"), [(CopyAtFork, 4, 2), (NoSharedTail, 2, 0)])
def test_a_fork_by_value_and_one_without_the_tail_are_right_and_cost_more(
    part: type, num_used: int, num_copies: int
) -> None:
    setup = watched(edition=variant(part))
    a, b, c = add(setup, 3)
    setup.engine.step()
    assert setup.engine.num_used_blocks == num_used
    setup.engine.step()
    assert len(setup.timeline.of_kind(ev.BlockCopied)) == num_copies
    assert setup.engine.report.scheduled == ({a: 1, b: 1, c: 1} if num_copies else {a: 1, b: 3, c: 3})
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
