"""The watch: what it reports, when, and how little of the state it reads."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from check import mutations
from check.random_operations import Episode
from check.test_mutations import CASES, three_tokens_and_two_more
from check.watched import FULL, HYBRID, watched
from ctrl_c import press_ctrl_c
from disturbing import Countdown
from driving import as_parts
from labengine.check import judge as judge_module
from labengine.check.invariants import check_invariants
from labengine.check.watch import Watch
from labengine.config import EngineConfig, SamplingParams
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.events import EngineStarted, ForwardRan, StepEnded, ViolationFound
from labengine.record.fold import fold
from labengine.record.hooks import Hooks

SLOT_RULE = mutations.SLOT_RULE_71.overriding(as_parts("nano-vllm"))
NO_REMAP = mutations.NO_REMAP.overriding(as_parts("labengine"))


def test_each_violation_is_an_event_and_the_recording_still_adds_up() -> None:
    setup = three_tokens_and_two_more(SLOT_RULE)
    found = setup.timeline.of_kind(ViolationFound)
    assert found and len(found) == len(setup.watch.violations)
    for event, kept in zip(found, setup.watch.violations, strict=True):
        assert (event.rule, event.message, event.request_ids, event.block_ids, event.step, event.first_event) == (
            kept.rule,
            kept.message,
            kept.request_ids,
            kept.block_ids,
            kept.step,
            kept.first_event,
        )
    assert fold(setup.timeline.events()) == setup.engine.snapshot()


def test_a_violation_is_reported_once() -> None:
    setup = three_tokens_and_two_more(SLOT_RULE)
    triples = [subject for violation in setup.watch.violations for subject in violation.subjects]
    assert len(triples) == len(set(triples))
    before = list(setup.watch.violations)
    assert setup.watch.check(setup.engine.snapshot()) == before


def test_a_misread_is_reported_in_its_own_step_right_after_the_forward_pass() -> None:
    setup = three_tokens_and_two_more(SLOT_RULE)
    events = setup.timeline.events()
    first = next(i for i, event in enumerate(events) if isinstance(event, ViolationFound))
    assert isinstance(events[first - 1], ForwardRan)
    assert events[first].step == 2 == setup.watch.violations[0].step  # type: ignore[attr-defined]


def test_broken_state_of_a_schedule_is_reported_before_the_forward_pass_even_if_that_fails() -> None:
    class Fails(SimulatedRunner):
        def forward(self, plan: StepPlan) -> None:
            if any(part.start > 4 for part in plan.scheduled):
                raise OSError("the device is gone")

    hooks = Hooks(strict=True)
    watch = Watch(hooks)
    parts = Parts(full_attention_group=TakesOneTwice).overriding(as_parts("labengine"))
    engine = Engine(EngineConfig(8, FULL), watch.wrap(Fails()), parts, hooks)
    watch.follow(engine)
    engine.add(range(8), SamplingParams(max_tokens=4))
    engine.step()
    with pytest.raises(OSError):
        engine.step()
    assert {violation.rule for violation in watch.violations} >= {"ref_count", "one_entry"}


class TakesOneTwice(FullAttentionGroup):
    """Lets a table name its first block again, without an event."""

    def extend(self, request: Request, num_tokens: int) -> None:
        super().extend(request, num_tokens)
        if len(request.block_tables[0]) == 3:
            self._extend_table(request.block_tables[0], request.block_tables[0][:1])


def test_a_change_without_an_event_is_seen_too() -> None:
    setup = watched(edition=Parts(full_attention_group=TakesOneTwice).overriding(as_parts("labengine")))
    setup.add(*range(8), max_tokens=4)
    setup.steps(1)
    assert setup.watch.violations == []
    setup.steps(1)
    assert setup.broken_rules() >= {"ref_count", "one_entry"}


@pytest.mark.parametrize("name", ["late merge without remap", "a window freed one block early"])
def test_looking_at_what_changed_finds_all_that_looking_at_everything_finds(name: str) -> None:
    """After every step of broken engines, until they break down."""
    case, num_found = CASES[name], 0
    for seed in range(25):
        parts = case.mutation.overriding(as_parts(case.edition))
        episode = Episode(Random(f"{seed}"), parts, with_tier=False)
        setup, judged = episode.setup, 0
        try:
            for operation in episode.operations(60):
                if operation != "step" or setup.engine.step_number == judged:
                    continue
                judged = setup.engine.step_number
                found = {subject for violation in setup.watch.violations for subject in violation.subjects}
                for violation in check_invariants(setup.engine.snapshot(), merges=True):
                    assert violation.subjects <= found, f"seed {seed}: {violation}"
                    num_found += 1
        except (RuntimeError, IndexError, ValueError):
            continue
    assert num_found > 20


def test_a_step_looks_at_what_it_changed_and_not_at_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Sequence[int]] = []
    judge_blocks = judge_module.judge_blocks

    def noting(state: Any, block_ids: Sequence[int], *, merges: bool) -> Any:
        looked.append(block_ids)
        return judge_blocks(state, block_ids, merges=merges)

    setup = watched(4096, FULL)
    for first in (0, 100, 200):
        setup.add(*range(first, first + 9), max_tokens=20)
    setup.steps(1)
    monkeypatch.setattr(judge_module, "judge_blocks", noting)
    setup.steps(8)
    assert 0 < sum(map(len, looked)) <= 3 * 8


def test_an_interrupt_anywhere_in_the_watch_breaks_neither_engine_nor_watch() -> None:
    """Ctrl-C at many points of the check's own code; the step is rolled back and taken again, and nothing is found."""
    rng, num_interrupted = Random(0), 0
    for n in rng.sample(range(2000), 120):
        setup = watched(24, HYBRID)
        for _ in range(2):
            setup.add(*range(13), max_tokens=6)
        setup.steps(1)
        try:
            Countdown(in_check, n, press_ctrl_c, at_lines=True).run(lambda: setup.steps(4))  # noqa: B023
        except KeyboardInterrupt:
            num_interrupted += 1
        setup.add(*range(9), max_tokens=4)
        setup.run()
        assert setup.watch.check(setup.engine.snapshot()) == [], f"interrupted at line {n}"
    assert num_interrupted > 60


def in_check(frame: Any, event: str) -> bool:
    return event == "line" and "/labengine/check/" in frame.f_code.co_filename


class Unready(KVCacheManager):
    """A part that only the watch asks this way, and that fails then."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Any) -> int:
        if num_tokens == 1:
            raise ZeroDivisionError
        return super().num_registrable_tokens(request, num_tokens, moment)


def test_a_watch_that_fails_says_so_and_disturbs_nobody() -> None:
    setup = watched(edition=Parts(kv_cache_manager=Unready).overriding(as_parts("labengine")))
    request_id = setup.add(*range(9), max_tokens=4)
    setup.run()
    assert setup.engine.requests[request_id].finish_reason == "length"
    (violation,) = setup.watch.violations
    assert violation.rule == "watch" and "ZeroDivisionError" in violation.message
    assert setup.timeline.of_kind(ViolationFound)


def test_a_closed_watch_hears_nothing_and_keeps_what_it_found() -> None:
    setup = three_tokens_and_two_more(SLOT_RULE)
    found = list(setup.watch.violations)
    setup.watch.close()
    setup.watch.close()
    assert StepEnded not in setup.engine.hooks or len(setup.engine.hooks[StepEnded]) == 1, "the timeline's own"
    setup.add(1, 2, 3, max_tokens=3)
    setup.steps(3)
    assert setup.watch.violations == found


def test_another_engine_starts_with_nothing_found_and_an_empty_pool() -> None:
    """As a lab does on reset: the watch and the hooks stay."""
    hooks = Hooks(strict=True)
    watch = Watch(hooks)
    for edition, is_broken in ((SLOT_RULE, True), (as_parts("nano-vllm"), False)):
        engine = Engine(EngineConfig(8, FULL), watch.wrap(SimulatedRunner()), edition, hooks)
        watch.follow(engine)
        assert watch.violations == []
        engine.add([1, 2, 3], SamplingParams(max_tokens=3))
        while engine.step():
            pass
        assert bool(watch.violations) is is_broken
    assert len(hooks[EngineStarted]) == 1, "the newer engine's stream"


def test_a_full_check_reports_what_broke_between_steps() -> None:
    setup = watched()
    setup.add(*range(9), max_tokens=4)
    setup.steps(1)
    setup.engine.scheduler.manager.pool.blocks[0].ref_count += 1
    newest = setup.timeline.end - 1
    violations = setup.watch.check(setup.engine.snapshot())
    assert [(v.rule, v.block_ids) for v in violations] == [("said", (0,)), ("ref_count", (0,))]
    assert "no event says so" in violations[0].message
    assert all(v.first_event is not None and v.first_event <= newest for v in violations)
    assert len(setup.timeline.of_kind(ViolationFound)) == 2
