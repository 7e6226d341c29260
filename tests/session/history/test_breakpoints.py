"""A run stops after the step in which a breakpoint's condition is met."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from labengine import events as ev
from labengine.config import ConfigError
from labengine.core.parts import Parts
from labengine.lab import Lab
from labengine.session.stepper import LabClosedError
from sessions import broken, story, two_equal_requests
from waiting import join, wait_until


@pytest.fixture
def lab() -> Iterator[Lab]:
    with two_equal_requests() as lab:
        yield lab


def step_of(lab: Lab) -> int:
    return lab.snapshot().step


# -- what stops --------------------------------------------------------------------------------------------------------


def test_run_stops_after_the_step_and_says_where(lab: Lab) -> None:
    waiting = lab.break_on(ev.TokenSampled, request_id=1, position=15)
    lab.run()
    assert step_of(lab) == 3 and lab.phase == "update" and not lab.is_running
    stop = lab.stopped_at
    assert stop is not None and stop.breakpoint is waiting and stop.step == 3 and waiting.num_hits == 1
    assert stop.event_number is not None and story(lab)[stop.event_number] is stop.event
    assert isinstance(stop.event, ev.TokenSampled) and (stop.event.request_id, stop.event.position) == (1, 15)
    assert stop.sentence.startswith("B's next token, at position ")
    assert str(stop).startswith(f"stopped after step 3, event {stop.event_number}: B's next token, at position ")
    lab.run()
    assert step_of(lab) == 6 and lab.stopped_at is None


def test_several_steps_stop_and_one_step_reports(lab: Lab) -> None:
    lab.break_on(ev.BlockMerged)
    assert lab.step(5).step == 1 and lab.stopped_at is not None
    assert lab.step(5).step == 6 and lab.stopped_at is None
    lab.reset()
    lab.add(token_ids=range(13), max_tokens=2)
    lab.add(token_ids=range(13), max_tokens=2)
    assert lab.step().step == 1 and lab.stopped_at is not None


def test_phases_report_as_well(lab: Lab) -> None:
    lab.break_on(ev.RequestScheduled, request_id=1)
    assert lab.next_phase() == "schedule"
    assert lab.stopped_at is not None and lab.stopped_at.step == 1


def test_the_background_stops(lab: Lab) -> None:
    lab.break_on(ev.TokenSampled, position=16)
    lab.start()
    wait_until(lambda: not lab.is_running)
    assert step_of(lab) == 4 and lab.stopped_at is not None
    lab.start()
    wait_until(lambda: not lab.is_running)
    assert step_of(lab) == 6 and lab.stopped_at is None and lab.background_error is None


def test_generate_and_stream_end_early(lab: Lab) -> None:
    lab.run()
    waiting = lab.break_on(ev.TokenSampled, request_id=2, position=5)
    output = lab.generate([[1, 2, 3]], max_tokens=9)[0]
    assert len(output.token_ids) == 3 and output.finish_reason is None
    waiting.close()
    lab.run()
    lab.break_on(ev.TokenSampled, request_id=3, position=4)
    request_id = lab.add(token_ids=[5, 6, 7], max_tokens=9)
    assert len("".join(lab.stream(request_id)).split()) == 2


def test_the_first_event_of_a_run_counts_and_all_are_counted(lab: Lab) -> None:
    first, second = lab.break_on(ev.BlockMerged), lab.break_on(ev.BlockAllocated, block_id=0)
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.breakpoint is second
    assert (first.num_hits, second.num_hits) == (3, 1)


def test_what_happens_between_steps_stops_nothing(lab: Lab) -> None:
    lab.break_on(ev.RequestAdded)
    lab.add(token_ids=[1], max_tokens=1)
    assert lab.stopped_at is None
    lab.run()
    assert step_of(lab) == 6


def test_steps_scheduled_ahead_stop_at_the_same_place() -> None:
    stops = []
    for overlap in (False, True):
        with Lab("simulated", num_blocks=12, block_size=4, check=False, overlap=overlap) as lab:
            for _ in range(2):
                lab.add(token_ids=range(13), max_tokens=6)
            lab.step(2)
            lab.run(until=lambda lab: lab.snapshot().step == 3)
            lab.break_on(ev.BlockFreed, block_id=4)
            lab.break_on(ev.TokenSampled, position=17)
            lab.run()
            assert lab.stopped_at is not None
            stops.append((lab.stopped_at.event_number, lab.stopped_at.event, lab.stopped_at.step, lab.snapshot()))
            assert lab.timeline is not None and lab.timeline.state().snapshot() == lab.snapshot()
    assert stops[0] == stops[1] and stops[0][2] == 5


# -- what one may wait for ---------------------------------------------------------------------------------------------


def test_kinds_by_name_and_hashes_as_hex(lab: Lab) -> None:
    lab.step()
    cached = next(event for event in story(lab) if isinstance(event, ev.BlockCached))
    lab.reset()
    lab.add(token_ids=range(13), max_tokens=6)
    lab.break_on("BlockCached", block_hash=cached.block_hash.hex())
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.event == cached


def test_a_test_of_the_event(lab: Lab) -> None:
    lab.break_on(lambda event: isinstance(event, ev.BlockFreed) and event.reason == "finished")
    lab.run()
    assert step_of(lab) == 6 and lab.stopped_at is not None
    assert isinstance(lab.stopped_at.event, ev.BlockFreed)


def test_fields_alone_match_every_event_that_has_them(lab: Lab) -> None:
    lab.break_on(block_id=5)
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.event == ev.BlockAllocated(5, 1, 0, 1)


def test_a_test_that_raises_stops_the_run_once_and_says_so(lab: Lab) -> None:
    waiting = lab.break_on(lambda event: event.block_id == 3)  # type: ignore[attr-defined]
    lab.run()
    assert step_of(lab) == 1 and lab.stopped_at is not None and not waiting.is_open
    assert "raised AttributeError: " in lab.stopped_at.sentence and lab.stopped_at.sentence.endswith("closed")
    assert lab.hooks.failures == []
    lab.run()
    assert step_of(lab) == 6


def test_a_test_may_look_at_the_lab(lab: Lab) -> None:
    lab.break_on(lambda event: lab.snapshot().num_used_blocks == 7)
    lab.run()
    assert step_of(lab) == 1 and lab.stopped_at is not None
    assert lab.timeline is not None and lab.stopped_at.moment is not None
    assert lab.timeline.state(lab.stopped_at.moment).snapshot().num_used_blocks == 7


def test_the_first_violation() -> None:
    from labengine.core.block_pool import BlockPool

    class Forgetful(BlockPool):
        """Does not count a touch of a used block."""

        def touch(self, *args: Any, **settings: Any) -> Any:
            result = super().touch(*args, **settings)
            if self.blocks[0].ref_count > 1:
                self.blocks[0].ref_count -= 1
            return result

    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(block_pool=Forgetful)) as lab:
        lab.add(token_ids=range(13), max_tokens=9)
        lab.step(2)
        lab.add(token_ids=range(13), max_tokens=9)
        lab.break_on("violation")
        lab.run()
        stop = lab.stopped_at
        assert stop is not None and step_of(lab) == 3 and isinstance(stop.event, ev.ViolationFound)
        assert stop.event_number == lab.violations[0].first_event and stop.sentence == lab.violations[0].message


@pytest.mark.parametrize(
    ("kind", "fields", "error", "said"),
    [
        ("BlockEvict", {}, ConfigError, "no event kind 'BlockEvict'; did you mean 'BlockEvicted'?"),
        ("violations", {}, ConfigError, "did you mean 'violation'?"),
        ("xyz", {}, ConfigError, "the kinds are violation, EngineStarted"),
        (int, {}, ConfigError, "kind must be a class in labengine.events"),
        (ev.Event, {}, ConfigError, "kind must be a class"),
        (3, {}, ConfigError, "got 3"),
        (ev.BlockEvicted, {"blok_id": 3}, TypeError, "BlockEvicted has no field 'blok_id'; did you mean 'block_id'?"),
        (ev.PrefixCacheReset, {"step": 3}, TypeError, "PrefixCacheReset has no field 'step'"),
        ("violation", {"block": 3}, TypeError, "ViolationFound has no field 'block'"),
        (None, {}, ConfigError, "needs an event"),
        (None, {"blok_id": 3}, TypeError, "no event has the field 'blok_id'"),
        (None, {"block_id": 3, "token_id": 4}, TypeError, "no event has the field 'block_id' and 'token_id'"),
        (bool, {}, ConfigError, "kind must be a class"),
        (lambda event: True, {"block_id": 3}, ConfigError, "check block_id inside the test"),
    ],
)
def test_what_there_is_not_is_refused_by_name(
    lab: Lab, kind: Any, fields: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        lab.break_on(kind, **fields)
    assert lab.breakpoints == ()


def test_without_checks_nobody_finds_violations() -> None:
    with Lab("simulated", check=False) as lab:
        for kind in ("violation", "ViolationFound", ev.ViolationFound):
            with pytest.raises(ConfigError, match="made with check=False"):
                lab.break_on(kind)
        with pytest.raises(ConfigError, match="made with check=False"):
            lab.break_on(rule="ref_count")


# -- coming and going --------------------------------------------------------------------------------------------------


def test_closed_ones_wait_no_more_and_leave_no_listener(lab: Lab) -> None:
    before = {kind: len(subscriptions) for kind, subscriptions in lab.hooks.items()}
    with lab.break_on(ev.BlockMerged) as waiting:
        assert [*lab.breakpoints] == [waiting] and waiting.is_open
        assert repr(waiting) == "breakpoint 1: BlockMerged, met 0 times"
    assert repr(waiting) == "breakpoint 1: BlockMerged, met 0 times (closed)"
    waiting.close()
    assert lab.breakpoints == ()
    assert {kind: len(subscriptions) for kind, subscriptions in lab.hooks.items()} == before
    lab.run()
    assert step_of(lab) == 6


def test_a_closed_lab_waits_for_nothing(lab: Lab) -> None:
    lab.close()
    with pytest.raises(LabClosedError, match="this lab is closed; make a new one"):
        lab.break_on(ev.BlockMerged)
    assert lab.breakpoints == ()


def test_a_step_that_was_taken_back_stops_nothing(lab: Lab) -> None:
    lab.break_on(ev.BlockAllocated, block_id=0)
    with broken(lab, "sample", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        lab.run()
    assert lab.stopped_at is None
    lab.run()
    assert lab.stopped_at is not None and step_of(lab) == 1


def test_a_rewind_and_a_fork_pass_by(lab: Lab) -> None:
    lab.run()
    waiting = lab.break_on(ev.BlockMerged)
    lab.rewind(3)
    assert step_of(lab) == 3 and waiting.num_hits == 0 and lab.stopped_at is None
    with lab.fork() as fork:
        assert fork.breakpoints == ()


def test_reset_keeps_the_breakpoints_and_forgets_the_stop(lab: Lab) -> None:
    waiting = lab.break_on(ev.BlockMerged)
    lab.run()
    lab.reset()
    assert lab.stopped_at is None and lab.breakpoints == (waiting,)


def test_a_rewind_forgets_the_stop_too(lab: Lab) -> None:
    waiting = lab.break_on(ev.BlockMerged)
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.step == 1
    lab.rewind(1)
    assert lab.stopped_at is None and lab.breakpoints == (waiting,)


def test_a_refused_rewind_does_not(lab: Lab) -> None:
    lab.break_on(ev.BlockMerged)
    lab.run()
    with pytest.raises(ConfigError):
        lab.rewind(9)
    assert lab.stopped_at is not None and lab.stopped_at.step == 1


def test_a_fork_has_stopped_nowhere_and_leaves_the_stop_alone(lab: Lab) -> None:
    lab.break_on(ev.BlockMerged)
    lab.run()
    stop = lab.stopped_at
    with lab.fork(0) as fork:
        fork.run()
        assert fork.stopped_at is None and lab.stopped_at is stop is not None


def test_a_kept_stop_never_describes_another_event(lab: Lab) -> None:
    """Its number belongs to a recording that has started over."""
    lab.break_on(ev.BlockMerged)
    lab.run()
    stop = lab.stopped_at
    assert stop is not None
    expected = f"stopped after step 1, event {stop.event_number}: B's #4 is merged into the equal #0: B's table[0] "
    lab.reset()
    assert repr(stop).startswith(expected) and "BlockMerged(" not in repr(stop)
    lab.add(token_ids=range(30), max_tokens=6)
    lab.run()
    assert repr(stop).startswith(expected)


def test_without_a_recording() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, record=False) as lab:
        lab.break_on(ev.TokenSampled, position=5)
        lab.generate([[1, 2, 3]], max_tokens=9)
        stop = lab.stopped_at
        assert stop is not None and stop.step == 3 and stop.event_number is stop.moment is None
        assert str(stop).startswith("stopped after step 3: A's next token, at position 5, is token ")


def test_the_views_show_the_event(lab: Lab) -> None:
    dashboard = lab.show()
    lab.break_on(ev.BlockMerged, into_block_id=1)
    lab.run()
    assert lab.stopped_at is not None and lab.moment == lab.stopped_at.moment
    wait_until(lambda: dashboard.feeds[0].sent == lab.timeline.end, "the views to hear of all events")
    assert lab.moment == lab.stopped_at.moment == dashboard.feeds[0].moment
    lab.run()
    wait_until(lambda: dashboard.feeds[0].sent == lab.timeline.end, "the views to hear of the other steps")
    assert lab.moment is None


def test_breakpoints_come_and_go_while_it_runs() -> None:
    with Lab("simulated", num_blocks=2000, block_size=4, check=False) as lab:
        lab.add(token_ids=[1, 2, 3], max_tokens=3000)
        done = threading.Event()

        def come_and_go() -> None:
            while not done.is_set():
                lab.break_on(ev.PrefixCacheReset).close()

        thread = threading.Thread(target=come_and_go)
        thread.start()
        lab.run()
        done.set()
        join(thread)
        assert step_of(lab) == 3000 and lab.hooks.failures == []
