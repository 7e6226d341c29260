"""A driven lab's watch on recorded streams of vLLM: sound, with faults put into their events, and with failed steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.core.request import ExtraKeys
from labengine.driven.watch import DrivenWatch
from labengine.record.files.file_access import Limits
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.vllm.conformance.checks import StreamJudge
from labengine.vllm.conformance.recorded import read
from labengine.vllm.stream.pieces import Piece
from recorded_files import written


@cache
def recorded() -> tuple[tuple[ev.Event, ...], ...]:
    """The events of each recorded run of vLLM's synchronous scheduler."""
    with TemporaryDirectory() as folder:
        runs = (items for workload, items in vllm_streams.read() if not workload["async"])
        pieces = [read(written(items, Path(folder)), Limits("a stream"), 1_000_000).piece for items in runs]
    return tuple(tuple(piece.timeline.events()) for piece in pieces)


@dataclass
class Replayed:
    """An engine whose events are given to it."""

    piece: Piece
    extra_keys: dict[int, ExtraKeys]
    step_number = 0
    is_contradicted = False

    @property
    def timeline(self) -> Timeline:
        return self.piece.timeline

    @property
    def requests(self) -> dict[int, Any]:
        return {number: SimpleNamespace(extra_keys=self.extra_keys.get(number, ())) for number in range(1000)}

    def record(self, event: ev.Event) -> None:
        self.piece.record(event)


class Watched:
    """A replayed engine and its watch. seen: the violations that a listener gets."""

    def __init__(self, first: ev.Event, extra_keys: dict[int, ExtraKeys] | None = None) -> None:
        hooks, timeline = Hooks(strict=True), Timeline()
        state = Fold()
        state.apply(first)
        self.engine: Any = Replayed(Piece(state, "", timeline, hooks), extra_keys or {})
        self.watch = DrivenWatch(hooks, timeline)
        self.watch.follow(self.engine)
        self.seen: list[ev.ViolationFound] = []
        hooks.subscribe(self.seen.append, ev.ViolationFound)

    def play(self, events: Iterable[ev.Event]) -> list[Violation]:
        for event in events:
            self.engine.record(event)
        assert len(self.seen) == len(self.watch.violations)
        return self.watch.violations

    @property
    def events(self) -> Sequence[ev.Event]:
        return self.engine.timeline.events()


def once(kind: type[ev.Event], number: int, **fields: Any) -> Callable[[Sequence[ev.Event]], Iterator[ev.Event]]:
    """Return a change of one event of a kind, after `number` others that it would change, too."""

    def changed(events: Sequence[ev.Event]) -> Iterator[ev.Event]:
        left = number
        for event in events:
            if type(event) is kind and any(getattr(event, name) != value for name, value in fields.items()):
                left -= 1
                if left == -1:
                    event = replace(event, **fields)  # type: ignore[type-var]
            yield event

    return changed


def test_sound_recordings_break_no_rule() -> None:
    for first, *events in recorded():
        watched = Watched(first)
        assert watched.play(events) == []
        assert watched.watch.check(watched.engine.timeline.state().snapshot()) == []
    assert len(recorded()) >= 5


@pytest.mark.parametrize(
    ("kind", "number", "fields", "rule"),
    [
        (ev.BlockTouched, 3, {"ref_count": 5}, "ref_count"),
        (ev.BlockFreed, 5, {"queue_end": None}, "partition"),
        (ev.SlotsWritten, 3, {"runs": ((1, 0, 1),)}, "slot"),
    ],
)
def test_a_fault_is_named_with_its_step_and_first_event(
    kind: type[ev.Event], number: int, fields: dict[str, Any], rule: str
) -> None:
    first, *events = max(recorded(), key=lambda one: sum(isinstance(event, ev.BlockTouched) for event in one))
    watched = Watched(first)
    found = next(one for one in watched.play(once(kind, number, **fields)(events)) if one.rule == rule)
    assert found.first_event is not None
    cause = watched.events[found.first_event]
    assert isinstance(cause, kind)
    assert all(getattr(cause, name) == value for name, value in fields.items())
    steps = [event.step for event in watched.events[: found.first_event] if isinstance(event, ev.StepStarted)]
    assert found.step == steps[-1]


def test_violations_are_in_the_recording_right_after_what_shows_them() -> None:
    first, *events = recorded()[0]
    watched = Watched(first)
    watched.play(once(ev.SlotsWritten, 3, runs=((1, 0, 1),))(events))
    at = [number for number, event in enumerate(watched.events) if isinstance(event, ev.ViolationFound)]
    assert [watched.events[number] for number in at] == watched.seen != []
    assert isinstance(watched.events[at[0] - 1], ev.ForwardRan)


def test_after_a_failed_step_the_state_before_it_is_judged() -> None:
    """Each step is played up to its forward pass, fails, and is played again."""
    for first, *events in recorded()[:3]:
        watched, step = Watched(first), list[ev.Event]()
        for event in events:
            step.append(event)
            if isinstance(event, ev.StepEnded):
                _fail(watched, step)
                assert watched.play(step) == []
                step = []
        assert watched.play(step) == []


def _fail(watched: Watched, events: Sequence[ev.Event]) -> None:
    """Play a step up to its forward pass, and roll it back."""
    start = next(i for i, event in enumerate(events) if isinstance(event, ev.StepStarted))
    forward = next((i for i, event in enumerate(events) if isinstance(event, ev.ForwardRan)), start)
    watched.play(events[:start])
    watched.play(events[start : forward + 1])
    opened = events[start]
    assert isinstance(opened, ev.StepStarted)
    watched.play([ev.StepRolledBack(opened.step, "RuntimeError")])
    watched.engine.piece.fold = watched.engine.timeline.state()
    del events[:start]  # type: ignore[attr-defined]


def test_a_hit_across_tenants_is_told_by_the_requests_salts() -> None:
    first, *events = next(run for run in recorded() if any(_shares(event) for event in run))
    hit = next(event for event in events if _shares(event))
    assert Watched(first).play(events) == []
    found = Watched(first, {hit.request_id: (("cache_salt", "theirs"),)}).play(events)
    assert "scope" in {one.rule for one in found}


def test_an_adapters_number_which_vllm_does_not_hash_is_no_other_tenant() -> None:
    first, *events = next(run for run in recorded() if any(_shares(event) for event in run))
    adapter = ("lora", "sql"), ("lora_path", "/sql")
    numbered: dict[int, ExtraKeys] = {one: (*adapter, ("lora_int_id", str(one))) for one in range(1000)}
    assert Watched(first, numbered).play(events) == []
    hit = next(event for event in events if _shares(event))
    moved = numbered | {hit.request_id: (("lora", "sql"), ("lora_path", "/other"), ("lora_int_id", "1"))}
    [message] = {one.message for one in Watched(first, moved).play(events) if "hits block" in one.message}
    assert "adapter path '/sql'" in message and "number" not in message


def _shares(event: Any) -> bool:
    return isinstance(event, ev.PrefixHit) and event.num_tokens > 0


def test_the_recording_goes_on_where_the_engines_state_contradicts_it() -> None:
    first, *events = recorded()[0]
    boundary = next(i for i, event in enumerate(events) if isinstance(event, ev.StepEnded)) + 1
    watched = Watched(first)
    watched.play(events[:boundary])
    timeline, piece = watched.engine.timeline, watched.engine.piece
    before, wrong = timeline.state(), timeline.state()
    wrong.ref_counts[5] += 7
    piece.contradict(["the ref_count of #5 is different"])
    piece.go_on_from(wrong)
    assert [one.rule for one in watched.watch.violations] == ["said"]
    assert watched.watch.violations[0].first_event == boundary
    assert timeline.state(boundary).ref_counts == before.ref_counts
    assert timeline.state().ref_counts[5] == before.ref_counts[5] + 7
    assert timeline.until(timeline.end).state().ref_counts == timeline.state().ref_counts
    found = watched.play(events[boundary:])
    assert {one.rule for one in found} > {"said"}, "the state's own fault, found by the rules"
    assert timeline.generation == 1


def test_checks_of_a_state_and_another_engine() -> None:
    first, *events = recorded()[0]
    watched = Watched(first)
    watched.play(events)
    broken = watched.engine.timeline.state()
    broken.ref_counts[3] += 1
    assert {one.rule for one in watched.watch.check(broken.snapshot())} >= {"ref_count"}
    assert watched.seen and watched.watch.overrides == {}
    watched.watch.follow(watched.engine)
    assert watched.watch.violations == []


def test_a_failing_check_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *events = recorded()[0]
    watched = Watched(first)

    def fail(event: ev.Event) -> None:
        raise RuntimeError("no judge")

    monkeypatch.setattr(watched.watch._judge, "follow", fail)
    for event in events:
        watched.engine.record(event)
    assert [one.rule for one in watched.watch.violations] == ["watch"] == [event.rule for event in watched.seen]


def test_a_state_that_is_copied_for_hits_is_known_though_vllm_tells_only_that_its_hashes_moved() -> None:
    states = {"groups": [GroupSpec(2), GroupSpec(4, kind="state")], "num_blocks": 24}
    with labengine.Lab("simulated", edition="vllm", **states) as lab:
        for prompt in ((0, 1, 2), (0, 1, 2, 9)):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.run()
        events, judge = lab.timeline.events(), StreamJudge(lab.timeline.state(0), {})
    is_told = [not isinstance(before, ev.HashesMoved | ev.BlockPinned) for before in (None, *events)]
    kept = [one for one, told in zip(events, is_told, strict=False) if told or not isinstance(one, ev.StateCopied)]
    assert len(kept) == len(events) - 1 and ev.HashesMoved in map(type, kept)
    assert not [one for event in kept for one in judge.follow(event)]
