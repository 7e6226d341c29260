"""The tap on a scheduler of the tests' own, with vLLM's method names: what it writes, refuses and survives."""

from __future__ import annotations

import ast
import json
import os
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, fields
from logging import WARNING
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest

import labengine
import labengine_vllm
from checkout import ROOT
from fake_vllm import FakeBlock, FakeConnector, FakeRequest, FakeScheduler, FullAttentionManager, Status, run_fake
from labengine import events as ev
from labengine.check.invariants import check_invariants
from labengine_vllm.engine import METHODS, Engine, UnknownEngineError
from labengine_vllm.files import FileWriter
from labengine_vllm.header import DECIDED_BY
from labengine_vllm.kinds import KINDS
from labengine_vllm.outbox import Outbox
from labengine_vllm.tap import Tap
from labengine_vllm.wrapping import Wrapping
from streams import BROKEN_OFF, break_off, opened, tapped, without_rate_limits
from waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def every_keyframe(monkeypatch: pytest.MonkeyPatch) -> None:
    without_rate_limits(monkeypatch)


UNTAPPED = run_fake(FakeScheduler(8))
"""The requests' tokens without a tap."""


def test_a_run_becomes_a_recording_that_agrees_with_every_keyframe(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path / "tap")
    assert run_fake(scheduler) == UNTAPPED
    trace = opened(tmp_path / "tap", scheduler)
    kinds = Counter(type(event).__name__ for event in trace.timeline.events())
    assert {"RequestPreempted", "BlockTouched", "BlockEvicted", "PrefixCacheReset"} < set(kinds)
    assert kinds["EngineStarted"] == 1 and kinds["RequestFinished"] == kinds["RequestAdded"] == 4
    assert trace.facts["stream"]["gaps"] == [""] and not trace.violations
    assert [trace.fold().requests[i].token_ids for i in range(4)] == [tokens for _, tokens in UNTAPPED]
    assert trace.request_names == {i: f"cmpl-{i}" for i in range(4)}


def test_several_blocks_without_a_hash_go_to_the_head_in_vllms_order(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    request = FakeRequest("a", list(range(15)), 2)
    scheduler.add_request(request)
    scheduler.update_from_output(scheduler.schedule(), None)
    scheduler.kv_cache_manager.block_pool.evict_blocks(set(range(1, 8)))
    scheduler.finish(request, Status.FINISHED_ABORTED)
    trace = opened(tmp_path, scheduler)
    freed = trace.timeline.of_kind(ev.BlockFreed)
    assert len([event for event in freed if event.queue_end == "head"]) > 2
    assert trace.facts["stream"]["gaps"] == [""] and not trace.violations


def test_only_the_user_can_read_the_files(tmp_path: Path) -> None:
    tapped(tmp_path / "tap")
    (file,) = (tmp_path / "tap").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_rows_are_labengines_events() -> None:
    """A field that vLLM never sets is left out: it has a default, and comes last."""
    ours = {kind.__name__: fields(kind) for kind in ev.EVENT_KINDS}
    for kind, *names in KINDS:
        assert [field.name for field in ours[kind]][: len(names)] == names
        assert all(field.default is not MISSING for field in ours[kind][len(names) :]), kind
    assert {kind.partition(":")[0] for kind in DECIDED_BY} < set(ours)


def test_the_package_needs_the_standard_library_alone() -> None:
    """vLLM and its msgspec are used where they are, and imported inside a function or a try."""
    for file in (ROOT / "vllm_tap" / "labengine_vllm").glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            roots = {str(name).partition(".")[0] for name in names}
            assert not roots & {"vllm", "torch", "labengine", "msgspec", "numpy"}, f"{file.name}: {roots}"


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(labengine_vllm.VARIABLE, raising=False)
    labengine_vllm.register()  # would raise here, where no vLLM is


def test_each_new_scheduler_is_tapped_once(tmp_path: Path) -> None:
    class Own(FakeScheduler):
        pass

    for _ in range(2):  # vLLM may load its plugins twice
        labengine_vllm.attach_to_new(Own, f"file:{tmp_path}")
    scheduler = Own(8)
    assert run_fake(scheduler) == UNTAPPED
    assert opened(tmp_path, scheduler).fold().requests.keys() == {0, 1, 2, 3}
    assert len(list(tmp_path.iterdir())) == 1


# -- what is not known is refused --------------------------------------------------------------------------------------


def _other_preempt(self: FakeScheduler, victim: FakeRequest, timestamp: float) -> None:
    FakeScheduler._preempt_request(self, victim, timestamp)


OtherScheduler = type("OtherScheduler", (FakeScheduler,), {"_preempt_request": _other_preempt})


class ChunkedLocalAttentionManager(FullAttentionManager):
    pass


class MambaManager(FullAttentionManager):
    """A state group by its name; it keeps blocks as full attention does."""

    mamba_cache_mode, num_speculative_blocks, has_prefill_checkpoint_blocks = "align", 0, False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pending_cow_copies: list[tuple[FakeBlock, FakeBlock]] = []

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int) -> None:
        """Leave every block."""


def scheduler_with(group_class: type[FullAttentionManager]) -> FakeScheduler:
    """Return a scheduler whose only group is of this class."""
    scheduler = FakeScheduler(8)
    manager = scheduler.kv_cache_manager
    manager.group = group_class(manager.block_pool, 4)
    manager.coordinator.single_type_managers = (manager.group,)
    return scheduler


def test_an_unknown_signature_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = OtherScheduler(8)
    assert labengine_vllm.attach(scheduler, f"file:{tmp_path / 'tap'}") is None
    assert "OtherScheduler._preempt_request takes (victim, timestamp), not (request, timestamp, ...)" in caplog.text
    assert "the tap supports vLLM 0.30, 0.31, 0.32" in caplog.text and len(caplog.records) == 1
    assert run_fake(scheduler) == UNTAPPED and not (tmp_path / "tap").exists()


def test_a_wrapper_that_passes_on_what_it_gets_is_tapped(tmp_path: Path) -> None:
    def bare(self: FakeScheduler, *args: Any, **kwargs: Any) -> None:
        FakeScheduler.add_request(self, *args, **kwargs)

    scheduler, _ = tapped(tmp_path, type("Wrapped", (FakeScheduler,), {"add_request": bare})(8))
    assert run_fake(scheduler) == UNTAPPED
    assert len(opened(tmp_path, scheduler).fold().requests) == 4


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(UnknownEngineError, match="KV-cache group ChunkedLocalAttentionManager; the tap supports"):
        Engine.of(scheduler_with(ChunkedLocalAttentionManager))


def test_a_state_group_is_known() -> None:
    assert [kind for kind, _, _ in Engine.of(scheduler_with(MambaManager)).group_rows()] == ["state"]


@pytest.mark.parametrize("address", ["file:", "folder", "http://host", "unix:"])
def test_an_unknown_address_is_named(address: str, caplog: pytest.LogCaptureFixture) -> None:
    assert labengine_vllm.attach(FakeScheduler(8), address) is None
    assert f"LABENGINE_TAP must be unix:DIR, tcp:127.0.0.1:PORT or file:DIR, got {address!r}" in caplog.text


@pytest.mark.parametrize("text", ["many", "0", "9" * 5_000])
def test_a_setting_that_is_no_number_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LABENGINE_TAP_FILE_MB", text)
    assert labengine_vllm.attach(FakeScheduler(8), f"file:{tmp_path}") is None
    assert f"LABENGINE_TAP_FILE_MB must be a positive integer, got {text[:40]!r}" in caplog.text


def test_a_port_of_many_digits_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert labengine_vllm.attach(FakeScheduler(8), f"tcp:127.0.0.1:{'9' * 5_000}") is None
    assert "a port must be a number from 0 to 65535, got '999" in caplog.text and len(caplog.text) < 500


# -- an error of the tap's takes it off --------------------------------------------------------------------------------


def _call_rare_method(scheduler: FakeScheduler, name: str) -> None:
    """Call a method that a run of the fake scheduler does not."""
    manager, pool = scheduler.kv_cache_manager, scheduler.kv_cache_manager.block_pool
    group, block, request = manager.group, pool.blocks[1], FakeRequest("rare", [1, 2, 3, 4], 1)
    output = SimpleNamespace(finished_recving=set(), finished_sending=set())
    scheduler.connector = FakeConnector({}, set())
    calls: dict[str, Callable[[], object]] = {
        "_update_from_kv_xfer_finished": lambda: scheduler._update_from_kv_xfer_finished(output),
        "_update_waiting_for_remote_kv": lambda: scheduler._update_waiting_for_remote_kv(request),
        "_handle_failed_recving": lambda: scheduler._handle_failed_recving(set()),
        "_handle_invalid_blocks": lambda: scheduler._handle_invalid_blocks(set(), {}),
        "move_block_hashes": lambda: pool.move_block_hashes(block, pool.blocks[2]),
        "_remove_blocks_in_range": lambda: group._remove_blocks_in_range("rare", 0, 0),
        "allocate_external_computed_blocks": lambda: group.allocate_external_computed_blocks("rare", 0),
        "cache_partial_block": lambda: pool.cache_partial_block(request, block, request.key(0, 4), 4),
        "unpin_blocks": lambda: pool.unpin_blocks([], None),
        "_apply_cow": lambda: group._apply_cow("rare", 0, block, block),
        "update_draft_token_ids": lambda: scheduler.update_draft_token_ids(
            SimpleNamespace(req_ids=[], draft_token_ids=[])
        ),
        "remove_skipped_blocks": lambda: group.remove_skipped_blocks("rare", 0),  # type: ignore[attr-defined]
    }
    if name in calls:
        group.req_to_blocks["rare"] = [block]
        calls[name]()
        group.req_to_blocks.pop("rare")
        block.ref_cnt = 0
        pool._remove_cached_block_hashes(block)


WITHOUT_OBSERVERS = {"finish_requests", "reset_prefix_cache"}
"""Methods of the scheduler that a tap only has to know of: what they change is seen where it is changed."""


def _observers() -> list[tuple[str, str]]:
    """Return (method, side) for each observer that a tap puts around a method; schedule and shutdown have their own."""
    found = [("schedule", "before"), ("shutdown", "before"), ("shutdown", "after")]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:

        def noted(self: Wrapping, target: Any, name: str, before: Any = None, after: Any = None) -> Any:
            found.extend((name, side) for side, one in (("before", before), ("after", after)) if one is not None)
            return getattr(target, name)

        patch.setattr(Wrapping, "_watched", noted)
        tapped(Path(folder))[1].close()
        tapped(Path(folder), scheduler_with(MambaManager))[1].close()
    return list(dict.fromkeys(found))


def test_every_method_is_observed() -> None:
    observed = {name for name, _ in _observers()}
    assert observed | WITHOUT_OBSERVERS == {name for names in METHODS.values() for name in names}


@pytest.mark.parametrize(("name", "side"), _observers())
def test_an_error_at_any_wrapper_detaches_the_tap(
    name: str, side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("injected")

    watched = Wrapping._watched

    def faulty(self: Wrapping, target: Any, method: str, before: Any = None, after: Any = None) -> Any:
        if method == name:
            before, after = (raising, after) if side == "before" else (before, raising)
        return watched(self, target, method, before, after)

    scheduler = scheduler_with(MambaManager) if name in METHODS["state"] else FakeScheduler(8)
    monkeypatch.setattr(Wrapping, "_watched", faulty)
    untouched = {id(target): dict(vars(target)) for _, target in Engine.of(scheduler).objects()}
    _, tap = tapped(tmp_path, scheduler)
    if name == "schedule" and side == "before":
        monkeypatch.setattr(tap.outbox, "error", ZeroDivisionError("injected"))
    _call_rare_method(scheduler, name)
    assert run_fake(scheduler) == UNTAPPED
    if name == "shutdown":
        monkeypatch.setattr(Tap, "_finish_step" if side == "before" else "_send_keyframe", raising)
    scheduler.shutdown()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= WARNING]
    assert len(warnings) == 1 and "ZeroDivisionError: injected" in warnings[0], warnings
    assert "the engine continues" in warnings[0] and name in warnings[0] and not tap.is_attached
    for _, target in Engine.of(scheduler).objects():
        assert vars(target).keys() == untouched[id(target)].keys(), "a wrapper is left"


def test_a_writer_that_fails_detaches_the_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, tap = tapped(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileWriter, "write", full)
    scheduler.add_request(FakeRequest("a", [1, 2, 3], 9))
    scheduler.update_from_output(scheduler.schedule(), None)
    tap.outbox._thread.join(PATIENCE)
    scheduler.update_from_output(scheduler.schedule(), None)
    assert "No space left on device" in caplog.text and not tap.is_attached
    assert scheduler.requests["a"].num_output_tokens == 2


def test_an_error_of_the_engine_is_the_engines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It passes through as it is; the rows after it are missing until a keyframe, and the recording says so."""
    scheduler, tap = tapped(tmp_path)
    scheduler.add_request(FakeRequest("a", [1, 2, 3], 9))
    scheduler.update_from_output(scheduler.schedule(), None)
    with pytest.raises(KeyError, match="unknown"):
        scheduler._free_blocks(FakeRequest("unknown", [], 1))
    assert tap.is_attached and all(record.levelno < WARNING for record in caplog.records)
    for _ in range(3):
        scheduler.update_from_output(scheduler.schedule(), None)
    trace = opened(tmp_path, scheduler)
    assert trace.facts["stream"]["gaps"][1].startswith("FakeScheduler._free_blocks raised KeyError")
    assert trace.fold().requests[0].token_ids == scheduler.requests["a"]._all_token_ids


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_a_change_that_no_event_expresses_ends_a_piece(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    for n in range(2):
        scheduler.add_request(FakeRequest(f"r{n}", list(range(9)), 8))
    for step in range(6):
        if step == 3:
            break_off(scheduler)
        scheduler.update_from_output(scheduler.schedule(), None)
    trace = opened(tmp_path, scheduler)
    assert trace.facts["stream"]["gaps"] == ["", BROKEN_OFF]
    assert "piece 2 of 2" in trace.title and f"It begins before step 4, after a gap: {BROKEN_OFF}" in trace.note
    assert trace.view_source().note == trace.note
    earlier = labengine.attach(tmp_path, piece=1)
    assert earlier.fold().step == 3 and "Piece 2 follows" in earlier.note and not earlier.violations


def test_a_change_behind_the_taps_back_is_shown_as_a_contradiction(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    scheduler.add_request(FakeRequest("a", list(range(9)), 8))
    for step in range(6):
        if step == 3:
            scheduler.kv_cache_manager.block_pool.get_new_blocks(1)  # for no table
        scheduler.update_from_output(scheduler.schedule(), None)
    trace = opened(tmp_path, scheduler)
    earlier = labengine.attach(tmp_path, piece=1)
    (violation,) = earlier.violations
    assert (
        violation.rule == "said" and "the free queue has" in violation.message and "ref_count of #" in violation.message
    )
    assert "contradicted the earlier events" in trace.note and earlier.fold().step == 3 and trace.fold().step == 6


def test_a_writer_that_does_not_write_never_blocks_the_engine(tmp_path: Path) -> None:
    """Its queue is bounded; what does not fit is counted and dropped, and a keyframe follows."""
    may_write, scheduler = Flag(), FakeScheduler(8)

    class SlowWriter(FileWriter):
        def write(self, message: Any) -> None:
            assert may_write.wait(PATIENCE)
            super().write(message)

    engine = Engine.of(scheduler)
    header = {"format": "labengine stream", "version": 1, "rank": 0, "stream": "1-a", "kinds": KINDS, "pid": 1}
    header |= {"engine": "vllm", "scheduler": "S", "model": "m", "methods": {}}
    outbox = Outbox(SlowWriter(str(tmp_path), header), max_events=80)
    Tap(engine, outbox)
    assert run_fake(scheduler) == UNTAPPED  # and not one message was written by then
    may_write.set()
    scheduler.add_request(FakeRequest("last", [5, 6, 7], 3))
    wait_until(lambda: outbox._num_taken == outbox._num_put, "the writer to have room for all that follows")
    for _ in range(3):
        scheduler.update_from_output(scheduler.schedule(), None)
    trace = opened(tmp_path, scheduler)
    why, dropped, unseen = trace.facts["stream"]["gaps"][1].split("; ")
    assert why == "the queue to the writer was full"
    assert int(dropped.split()[0]) > 0 and int(unseen.split()[0]) > 0
    assert trace.fold().step >= 10 and trace.request_names == {4: "last"} and not trace.violations


# -- files -------------------------------------------------------------------------------------------------------------


def _run_with_files(folder: Path, max_bytes: int, max_files: int, stream: str = "1-a") -> FakeScheduler:
    scheduler = FakeScheduler(8)
    engine = Engine.of(scheduler)
    header = {**labengine_vllm.tap.header(engine, stream)}
    Tap(engine, Outbox(FileWriter(str(folder), header, max_bytes, max_files)))
    for round_ in range(6):
        scheduler.add_request(FakeRequest(f"r{round_}", list(range(5 + round_)), 6))
        for _ in range(6):
            scheduler.update_from_output(scheduler.schedule(), None)
    return scheduler


def test_files_rotate_with_a_keyframe_first(tmp_path: Path) -> None:
    scheduler = _run_with_files(tmp_path, max_bytes=6000, max_files=100)
    trace = opened(tmp_path, scheduler)
    files = sorted(tmp_path.iterdir())
    assert len(files) > 3
    for file in files:
        header, first, *_ = map(json.loads, file.read_text().splitlines())
        assert header["format"] == "labengine stream" and "k" in first
    assert trace.facts["stream"]["gaps"] == [""] and len(trace.timeline.of_kind(ev.StepEnded)) == trace.fold().step > 30
    one_file = labengine.attach(files[2])
    assert "vLLM had run before" in one_file.note


def test_the_oldest_files_are_removed(tmp_path: Path) -> None:
    scheduler = _run_with_files(tmp_path, max_bytes=6000, max_files=2)
    trace = opened(tmp_path, scheduler)
    assert len(list(tmp_path.iterdir())) == 2
    assert "vLLM had run before" in trace.note
    assert not check_invariants(trace.snapshot()) and trace.fold().step > 30


def test_the_log_says_that_prompts_are_written_and_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labengine_vllm.logger, "disabled", False)
    labengine_vllm.logger.setLevel("INFO")
    tapped(tmp_path / "one")
    assert f"writes every prompt and every token into {tmp_path / 'one'}" in caplog.text
    monkeypatch.setenv("LABENGINE_TAP_TOKENS", "0")
    tapped(tmp_path / "two")
    assert f"writes every decision, without token ids, into {tmp_path / 'two'}" in caplog.text


def test_the_newest_files_of_all_starts_are_kept_and_those_that_are_written(tmp_path: Path) -> None:
    living, _ = tapped(tmp_path)
    (written_now,) = tmp_path.iterdir()
    (tmp_path / "rank1-9-abc-0001.labstream").touch()
    (tmp_path / "notes.labstream").touch()
    for start in range(12):
        scheduler = _run_with_files(tmp_path, max_bytes=1 << 20, max_files=3, stream=f"{start}-x")
        scheduler.shutdown()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == sorted(
        [written_now.name, "notes.labstream", "rank1-9-abc-0001.labstream"]
        + [f"rank0-{start}-x-0001.labstream" for start in (9, 10, 11)]
    )
    living.shutdown()
    os.utime(written_now, (0, 0))
    _run_with_files(tmp_path, max_bytes=1 << 20, max_files=3, stream="12-x").shutdown()
    assert not written_now.exists()


def test_the_tap_notes_when_all_requests_are_done(tmp_path: Path) -> None:
    scheduler, _ = tapped(tmp_path)
    run_fake(scheduler)
    scheduler.shutdown()
    (file,) = tmp_path.iterdir()
    messages = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    idle = [message["n"] for message in messages if message.get("idle")]
    assert idle and idle[-1] == max(message["n"] for message in messages if message.get("e"))
    assert len(idle) < len(messages) / 2
