"""What a connector does becomes events that agree with every keyframe; what no event expresses is a gap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fake_vllm import FakeBlock, FakeConnector, FakeRequest, FakeScheduler, Status, transferred
from labengine import events as ev
from labengine.check.invariants import check_invariants
from labengine.session.saved.trace import Trace
from streams import opened, tapped, without_rate_limits

PROMPT = list(range(11))


@pytest.fixture(autouse=True)
def every_keyframe(monkeypatch: pytest.MonkeyPatch) -> None:
    without_rate_limits(monkeypatch)


def step(scheduler: Any, output: Any = None) -> None:
    scheduler.update_from_output(scheduler.schedule(), output)


def with_connector(folder: Path, tokens: dict[str, int], sends: str = "") -> Any:
    """Return a tapped scheduler whose connector holds tokens of request a, which is added."""
    scheduler, _ = tapped(folder, FakeScheduler(12))
    scheduler.connector = FakeConnector(tokens, set(sends.split()))
    scheduler.add_request(FakeRequest("a", PROMPT, 3))
    return scheduler


def without_a_gap(folder: Path, scheduler: Any) -> Trace:
    trace = opened(folder, scheduler)
    assert trace.facts["stream"]["gaps"] == [""] and not trace.violations
    assert not check_invariants(trace.snapshot())
    return trace


def kinds(trace: Trace, *wanted: type[ev.Event]) -> list[ev.Event]:
    return [event for event in trace.timeline.events() if isinstance(event, wanted)]


# -- loads -------------------------------------------------------------------------------------------------------------


def test_a_late_load_counts_once_its_request_is_taken_up(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {"a": 10})
    step(scheduler)
    step(scheduler, transferred(received="a"))
    step(scheduler)
    trace = without_a_gap(tmp_path, scheduler)
    hit, loaded, computed, *_ = kinds(trace, ev.ExternalHit, ev.BlocksLoaded, ev.TokensComputed)
    keys = scheduler.requests["a"].block_hashes
    assert hit == ev.ExternalHit(0, 10, is_loading=True) and computed == ev.TokensComputed(0, 10)
    assert loaded == ev.BlocksLoaded(0, ((0, 0, 1, keys[0]), (0, 1, 2, keys[1]), (0, 2, 3, b"")))
    cached = [event.block_hash for event in trace.timeline.of_kind(ev.BlockCached)]
    assert cached[:2] == keys[:2], "a load's hashes are those under which its blocks are registered"


def test_blocks_of_a_load_that_failed_are_freed(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {"a": 10})
    step(scheduler)
    step(scheduler, transferred(received="a", failed="a"))
    step(scheduler)
    trace = without_a_gap(tmp_path, scheduler)
    assert not kinds(trace, ev.BlocksLoaded)
    failed, *freed, computed, hit = kinds(trace, ev.LoadFailed, ev.BlockFreed, ev.TokensComputed, ev.PrefixHit)[1:7]
    assert isinstance(failed, ev.LoadFailed) and computed == ev.TokensComputed(0, 0)
    assert {event.reason for event in freed if isinstance(event, ev.BlockFreed)} == {"load_failed"}
    assert len(freed) == 3 and hit == ev.PrefixHit(0, 0, ((),))


def test_a_recording_that_begins_during_a_load_follows_it(tmp_path: Path) -> None:
    scheduler = FakeScheduler(12)
    scheduler.connector = FakeConnector({"a": 10}, set())
    scheduler.add_request(FakeRequest("a", PROMPT, 3))
    step(scheduler)
    tapped(tmp_path, scheduler)
    assert scheduler.requests["a"].status is Status.WAITING_FOR_REMOTE_KVS
    step(scheduler, transferred(received="a"))
    step(scheduler)
    trace = opened(tmp_path, scheduler)
    (loaded,) = trace.timeline.of_kind(ev.BlocksLoaded)
    assert len(loaded.transfers) == 3 and not trace.violations and len(trace.facts["stream"]["gaps"]) == 1


# -- blocks after the end ----------------------------------------------------------------------------------------------


def test_a_finished_request_holds_its_blocks_while_they_are_sent(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {}, sends="a")
    for _ in range(4):
        step(scheduler)
    held = len(scheduler.kv_cache_manager.group.req_to_blocks["a"])
    scheduler.add_request(FakeRequest("b", PROMPT, 2))
    step(scheduler)
    step(scheduler, transferred(sent="a"))
    trace = without_a_gap(tmp_path, scheduler)
    events = trace.timeline.events()
    finished, released = events.index(ev.RequestFinished(0, "length", True)), events.index(ev.RequestReleased(0))
    state = trace.timeline.state(finished + 1)
    assert state.holding == {0} and len(state.requests[0].block_tables[0]) == held > 2
    assert not check_invariants(state.snapshot())
    freed = [event for event in events[finished:released] if isinstance(event, ev.BlockFreed)]
    assert [event.request_id for event in freed].count(0) == held
    assert trace.fold().holding == set() and trace.fold().requests[0].block_tables == [[]]


def test_an_abort_during_a_load_holds_the_blocks_until_it_lands(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {"a": 10}, sends="a")
    step(scheduler)
    scheduler.finish_requests("a", Status.FINISHED_ABORTED)
    step(scheduler)
    step(scheduler, transferred(sent="a"))
    trace = without_a_gap(tmp_path, scheduler)
    ended = kinds(trace, ev.RequestFinished, ev.RequestReleased)
    assert ended == [ev.RequestFinished(0, "abort", True), ev.RequestReleased(0)]


# -- references of no table --------------------------------------------------------------------------------------------


def test_frees_that_wait_for_a_step_keep_their_references(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {})
    step(scheduler)
    pool, group = scheduler.kv_cache_manager.block_pool, scheduler.kv_cache_manager.group
    blocks = group.pop_blocks_for_free("a")
    scheduler.deferred_frees.append(blocks)
    scheduler.running.clear()
    scheduler._preempt_request(scheduler.requests["a"], 0.0)
    step(scheduler)
    pool.free_blocks(reversed(blocks))
    step(scheduler)
    trace = without_a_gap(tmp_path, scheduler)
    (deferred,) = trace.timeline.of_kind(ev.FreeDeferred)
    assert deferred.block_ids == tuple(block.block_id for block in blocks)
    unpinned = trace.timeline.of_kind(ev.BlockUnpinned)
    assert sorted(event.block_id for event in unpinned) == sorted(deferred.block_ids)
    moment = 2 + trace.timeline.events().index(deferred)  # its preemption has followed
    state = trace.timeline.state(moment)
    assert state.pins == dict.fromkeys(deferred.block_ids, 1) and not check_invariants(state.snapshot())
    state.pins.clear()
    assert {one.rule for one in check_invariants(state.snapshot())} >= {"ref_count"}, "the rule counts pins"


def test_pins_are_counted_and_taken_off_in_order(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {})
    step(scheduler)
    pool = scheduler.kv_cache_manager.block_pool
    pinned = [pool.blocks[1], pool.blocks[9], pool.blocks[9]]
    pool.touch(pinned)
    step(scheduler)
    pool.unpin_blocks(pinned[:2], print)
    pool.free_blocks(pinned[2:])
    step(scheduler)
    trace = without_a_gap(tmp_path, scheduler)
    pins = [(event.block_id, event.ref_count) for event in trace.timeline.of_kind(ev.BlockPinned)]
    assert pins == [(1, 2), (9, 1), (9, 2)]
    unpinned = [
        (event.block_id, event.ref_count, event.queue_end) for event in trace.timeline.of_kind(ev.BlockUnpinned)
    ]
    assert unpinned == [(1, 1, None), (9, 1, None), (9, 0, "head")]


def test_a_hit_inside_a_block_goes_on_in_a_copy(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {})
    step(scheduler)
    manager = scheduler.kv_cache_manager
    source = manager.group.req_to_blocks["a"][1]
    (copy,) = manager.block_pool.get_new_blocks(1)
    manager.group._apply_cow("a", 1, source, copy)
    step(scheduler)
    manager.block_pool.free_blocks([source, copy])
    step(scheduler)
    trace = without_a_gap(tmp_path, scheduler)
    assert trace.timeline.of_kind(ev.BlockCopied) == [ev.BlockCopied(source.block_id, copy.block_id, 0, 0, 1)]


def test_hashes_move_to_another_block(tmp_path: Path) -> None:
    scheduler = with_connector(tmp_path, {})
    step(scheduler)
    pool = scheduler.kv_cache_manager.block_pool
    pool.move_block_hashes(pool.blocks[1], pool.blocks[9])
    step(scheduler)
    trace = without_a_gap(tmp_path, scheduler)
    state = trace.timeline.state(1 + trace.timeline.events().index(ev.HashesMoved(1, 9)))
    assert state.block_tokens[9] == tuple(PROMPT[:4]) and not state.block_keys[1]
    assert state.prefix_map[state.block_keys[9][0]] == (9,)


# -- what no event expresses -------------------------------------------------------------------------------------------


def _hole(scheduler: Any) -> None:
    group, pool = scheduler.kv_cache_manager.group, scheduler.kv_cache_manager.block_pool
    scheduler.add_request(FakeRequest("b", PROMPT, 3))
    group.add_local_computed_blocks("b", [pool.blocks[5], pool.blocks[0]])
    scheduler.waiting.remove(scheduler.requests.pop("b"))
    del group.req_to_blocks["b"]


def _growth(scheduler: Any) -> None:
    group = scheduler.kv_cache_manager.group
    group.req_to_blocks["grown"] = []
    pool = group.block_pool
    group.block_pool = type("Pool", (), {"get_new_blocks": lambda self, number: [pool.null_block]})()
    group.allocate_new_blocks("grown", 1)
    group.block_pool = pool
    del group.req_to_blocks["grown"]


def _copy(scheduler: Any) -> None:
    group, pool = scheduler.kv_cache_manager.group, scheduler.kv_cache_manager.block_pool
    group._apply_cow("a", 0, group.req_to_blocks["a"][0], pool.blocks[7])


def _insert(scheduler: Any) -> None:
    pool = scheduler.kv_cache_manager.block_pool
    pool._insert_block_hash(b"x" * 32 + bytes(4), pool.blocks[7], 4)


def _taken_out(scheduler: Any) -> list[FakeBlock]:
    """Return a block that a table has lost, and no method has freed."""
    return [scheduler.kv_cache_manager.group.req_to_blocks["a"].pop()]


def _free(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.free_blocks(_taken_out(scheduler))


def _free_twice(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.free_blocks(2 * _taken_out(scheduler))


def _unpin(scheduler: Any) -> None:
    scheduler.kv_cache_manager.block_pool.unpin_blocks(_taken_out(scheduler), print)


def _session(scheduler: Any) -> None:
    scheduler.add_request(scheduler.requests["a"])
    scheduler.waiting.remove(scheduler.requests["a"])


def _raise(scheduler: Any) -> None:
    with suppress(KeyError):
        scheduler._free_blocks(FakeRequest("unknown", [], 1))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_hole, "a prefix hit has a hole"),
        (_growth, "a table grew by an entry without a block"),
        (_copy, "copy-on-write of a partially hit block"),
        (_insert, "a hash moved to another block"),
        (_free, "blocks were freed that are not in any table"),
        (_free_twice, "block 3 was freed but had no reference"),
        (_unpin, "blocks were unpinned that had not been pinned"),
        (_session, "a streaming session continued"),
        (_raise, "FakeScheduler._free_blocks raised KeyError"),
    ],
)
def test_what_no_event_expresses_is_a_gap_with_its_reason(
    change: Callable[[Any], None], why: str, tmp_path: Path
) -> None:
    scheduler = with_connector(tmp_path, {})
    step(scheduler)
    change(scheduler)
    step(scheduler)
    trace = opened(tmp_path, scheduler)
    assert trace.facts["stream"]["gaps"] == ["", why]
    assert trace.fold().step > 1 and f"after a gap: {why}" in trace.note
