"""The event that caused a violation: exact, across rollbacks; else the newest event about its subject."""

from __future__ import annotations

import pytest

from check.mutations import EARLY_WINDOW, INTERLEAVED, NO_REMAP, SIX_BITS, SLOT_RULE_71
from check.test_mutations import (
    an_equal_block_that_is_free,
    equal_tokens_after_colliding_prefixes,
    hit_blocks_at_the_head_of_the_queue,
    longer_than_its_window,
    two_equal_prompts_and_a_third,
)
from check.watched import FULL, Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.check.invariants import judge_blocks
from labengine.check.state import FoldState


def test_the_touch_that_put_a_block_into_a_second_table() -> None:
    setup = hit_blocks_at_the_head_of_the_queue(INTERLEAVED.overriding(as_parts("labengine")))
    for violation in (v for v in setup.watch.violations if v.rule == "one_entry"):
        assert violation.first_event is not None
        (event,) = setup.timeline.events(violation.first_event, violation.first_event + 1)
        assert isinstance(event, ev.BlockTouched) and (event.block_id,) == violation.block_ids
        assert event.ref_count == 2 and event.group == 1
        before, after = (setup.timeline.state(violation.first_event + moment) for moment in (0, 1))
        assert not [*judge_blocks(FoldState(before), violation.block_ids, merges=False)]
        assert [v.rule for v in judge_blocks(FoldState(after), violation.block_ids, merges=False)] == ["one_entry"]


def test_the_write_that_went_to_the_wrong_slot() -> None:
    """PR 71's own example: with a prompt of 3 in blocks of 4, position 3 goes to slot 7."""
    setup = watched(8, FULL, SLOT_RULE_71.overriding(as_parts("nano-vllm")))
    setup.add(1, 2, 3, max_tokens=2)
    setup.run()
    for rule in ("slot", "read"):
        event = setup.first_event(rule)
        assert event == ev.SlotsWritten(0, 0, 3, ((1, 3, 1),))
    slot = next(v for v in setup.watch.violations if v.rule == "slot")
    assert "position 3 goes to slot 7" in slot.message


def test_the_touch_or_merge_that_gave_a_request_anothers_kv() -> None:
    setup = equal_tokens_after_colliding_prefixes(SIX_BITS.overriding(as_parts("nano-vllm+243")))
    event = setup.first_event("read")
    assert isinstance(event, ev.BlockMerged) and event.request_id == 1
    assert event.index == 1, "X; the colliding first blocks differ in their own tokens"


def test_the_block_that_left_its_window_too_soon() -> None:
    setup = longer_than_its_window(EARLY_WINDOW.overriding(as_parts("labengine")))
    for rule in ("read", "window"):
        event = setup.first_event(rule)
        assert isinstance(event, ev.BlockFreed) and event.reason == "window"


def test_the_free_that_left_a_table_behind_and_the_write_that_followed() -> None:
    setup = two_equal_prompts_and_a_third(NO_REMAP.overriding(as_parts("labengine")))
    freed, written = setup.first_event("held"), setup.first_event("read")
    assert isinstance(freed, ev.BlockFreed) and freed.reason == "merged"
    assert isinstance(written, ev.SlotsWritten) and written.request_id == 2
    assert freed.block_id in {block_id for block_id, _, _ in written.runs}


def test_steps_that_were_taken_back_made_nothing_so() -> None:
    """The same story, with broken steps strewn in: the event named is one that counts."""
    setup = watched(8, edition=NO_REMAP.overriding(as_parts("labengine")), next_token=lambda request, position: request)
    for _ in range(2):
        setup.add(1, 2, 3, 4, 5, 6, 7, 8, 9, max_tokens=6)
    abandon(setup, 3)
    setup.steps(1)
    abandon(setup, 1)
    setup.add(*range(100, 109), max_tokens=3)
    abandon(setup, 2)
    setup.steps(2)
    violation = next(v for v in setup.watch.violations if v.rule == "held")
    number = violation.first_event
    assert number is not None and isinstance(setup.first_event("held"), ev.BlockFreed)
    first_step = [i for i, e in enumerate(setup.timeline.events()) if isinstance(e, ev.StepRolledBack)]
    assert number > first_step[0], "the first run of step 1 was rolled back"


def abandon(setup: Watched, num_phases: int) -> None:
    phases = setup.engine.phases()
    for _ in range(num_phases):
        next(phases)
    phases.close()  # type: ignore[attr-defined]


def test_memory_outlives_a_step_that_was_taken_back() -> None:
    """A step writes over a block that is still cached, and is rolled back; then the cached block is hit."""

    class Forgetful(type(watched().engine.scheduler)):  # type: ignore[misc]
        def forget_written(self, plan: object) -> None:
            """Goes on trusting what the broken step may have overwritten."""

    setup = watched(3, edition=replace_scheduler(Forgetful))
    setup.add(1, 2, 3, 4, 5)
    setup.run()
    setup.add(*range(100, 112))
    abandon(setup, 2)
    setup.engine.abort(1)
    setup.add(1, 2, 3, 4, 6)
    setup.run()
    event = setup.first_event("read")
    assert isinstance(event, ev.BlockTouched) and event.request_id == 2


def replace_scheduler(scheduler: type) -> object:
    from labengine.core.parts import Parts

    return Parts(scheduler=scheduler).overriding(as_parts("labengine"))


def test_without_a_recording_the_newest_event_about_the_same_is_named() -> None:
    recorded = watched(8, FULL, SLOT_RULE_71.overriding(as_parts("nano-vllm")))
    recorded.add(1, 2, 3, max_tokens=2)
    recorded.run()
    setup = watched(8, FULL, SLOT_RULE_71.overriding(as_parts("nano-vllm")))
    setup.watch._findings._timeline = None
    setup.add(1, 2, 3, max_tokens=2)
    setup.run()
    assert setup.watch.violations
    for violation in setup.watch.violations:
        (event,) = recorded.timeline.events(violation.first_event, violation.first_event + 1)  # type: ignore[operator]
        assert getattr(event, "request_id", None) in violation.request_ids


def test_where_the_recording_has_dropped_the_cause_the_newest_event_about_the_same_is_named() -> None:
    """A block was overwritten long ago, and only now does its owner look: the event is gone."""
    setup = watched(16, FULL, max_events=60)
    setup.add(*range(9), max_tokens=30)
    setup.steps(3)
    table = setup.engine.requests[0].block_tables[0]
    page = setup.watch._judge.oracle.memory.page(table[0])  # type: ignore[union-attr]
    assert page is not None
    setup.steps(20)
    assert setup.timeline.num_dropped > 0
    page.slots[0] = 12345
    setup.watch._judge.oracle._disturb(table[0])  # type: ignore[union-attr]
    setup.steps(1)
    (violation,) = setup.watch.violations
    assert violation.rule == "read" and violation.first_event is not None
    (event,) = setup.timeline.events(violation.first_event, violation.first_event + 1)
    assert getattr(event, "request_id", None) == 0


@pytest.mark.parametrize("edition", ["nano-vllm+243", "labengine"])
def test_a_sound_engine_has_no_first_events(edition: str) -> None:
    setup = an_equal_block_that_is_free(as_parts(edition))
    assert setup.watch.violations == []
