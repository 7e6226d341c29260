"""A recording as a Perfetto trace, read with Perfetto's own protobuf classes: slices, flows and counters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

import labengine
from differential import vllm_streams
from labengine import events as ev
from labengine.config import ConfigError
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.report.perfetto import COUNTERS, perfetto_of
from labengine.record.files.file_access import Limits
from labengine.record.fold import Fold
from recorded_files import written

RUNS = list(vllm_streams.read())
LIMITS = Limits("a recording", 10**9, 36_000.0)  # the time counts from here
MS = 1_000_000


@dataclass
class ReadTrack:
    """A track as a trace processor builds it. slices: (name, start, end or None, facts); flows: (id, name, time)."""

    name: str
    parent: str
    slices: list[tuple[str, int, int | None, dict[str, int]]] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)
    flows: list[tuple[int, str, int]] = field(default_factory=list)
    instants: list[tuple[str, int]] = field(default_factory=list)


def tracks_of(trace: bytes) -> dict[str, ReadTrack]:
    """Build the tracks; packets of one writer with equal times keep their order."""
    tracks, opened, flows = dict[int, ReadTrack](), defaultdict[int, list[int]](list), defaultdict[int, int](int)
    packets = Trace.FromString(trace).packet
    for one in (packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")):
        tracks[one.uuid] = ReadTrack(one.name, tracks[one.parent_uuid].name if one.parent_uuid else "")
    for packet in sorted((one for one in packets if one.HasField("track_event")), key=lambda one: one.timestamp):
        event, at = packet.track_event, packet.timestamp
        track = tracks[event.track_uuid]
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            opened[event.track_uuid].append(len(track.slices))
            track.slices.append((event.name, at, None, {}))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            place = opened[event.track_uuid].pop()
            facts = {one.name: one.int_value for one in event.debug_annotations}
            track.slices[place] = (*track.slices[place][:2], at, facts)
        elif event.type == TrackEvent.TYPE_COUNTER:
            track.counts.append((at, event.counter_value))
        else:
            track.instants.append((event.name, at))
            track.flows += [(flow, event.name, at) for flow in event.flow_ids]
            for flow in event.flow_ids:
                flows[flow] += 1
    assert set(flows.values()) <= {2}, "an arrow has two ends"
    assert len({track.name for track in tracks.values()}) == len(tracks)
    return {track.name: track for track in tracks.values()}


def recorded(seed: int, folder: Path) -> RecordedEngine:
    """A stream of vLLM's own scheduler."""
    return recordings_of(written(RUNS[seed][1], folder), None, LIMITS)[0]


def crowded(edition: str) -> RecordedEngine:
    """A lab whose requests preempt one another and evict one another's blocks."""
    lab = labengine.Lab(
        "simulated", num_blocks=14, block_size=4, edition=edition, max_num_seqs=4, max_num_batched_tokens=32
    )
    for i in range(8):
        lab.add(token_ids=list(range(100 * (i % 3), 100 * (i % 3) + 10 + i)), max_tokens=12)
    lab.run()
    return recordings_of(lab, None, LIMITS)[0]


def seen_from(recording: RecordedEngine) -> list[tuple[int, dict[str, int]]]:
    """Return the pool from each moment on, folded separately: after the scheduler's decisions, and after each step."""
    state, found = recording.first.copy(), list[tuple[int, dict[str, int]]]()
    starts = {i: round((at - min(recording.times.values())) * 1e9) for i, at in recording.times.items()}
    for event, following in zip(recording.events, [*recording.events[1:], ev.StepEnded(0)], strict=True):
        state.apply(event)
        if isinstance(following, ev.ForwardRan):
            found.append((starts.get(state.step, (state.step - 1) * MS), pool_of(state)))
    return found


def pool_of(state: Fold) -> dict[str, int]:
    evictable = state.tree.evictable()
    cached = {block_id for block_id, keys in enumerate(state.block_keys) if keys and block_id in state.free_queue}
    free = len(state.free_queue) - len(cached)
    return {"used": state.num_used_blocks, "cached_free": len(evictable | cached), "free": free}


@pytest.mark.parametrize("source", ["vllm", "labengine-radix", 3, 8, 13])
def test_slices_are_the_steps_and_counters_the_pool(source: str | int, tmp_path: Path) -> None:
    recording = crowded(source) if isinstance(source, str) else recorded(source, tmp_path)
    tracks = tracks_of(perfetto_of([recording]))
    steps = [event.step for event in recording.events if isinstance(event, ev.StepStarted)]
    assert [name for name, *_ in tracks["steps"].slices] == [f"step {step}" for step in steps]
    ran = [event for event in recording.events if isinstance(event, ev.ForwardRan)]
    facts = [one for *_, one in tracks["steps"].slices if one]
    assert facts == [{"requests": one.num_requests, "tokens": one.num_tokens} for one in ran]
    rng, expected = Random(f"moments {source}"), seen_from(recording)
    for _ in range(100):
        at, counts = rng.choice(expected)
        moment = at + rng.randrange(MS)
        shown = {}
        for kind, name in COUNTERS.items():
            series = tracks[name].counts
            shown[kind] = series[bisect_right(series, moment, key=lambda one: one[0]) - 1][1]
        assert shown == counts
    state = recording.first.copy()
    state.apply_all(recording.events)
    assert {kind: tracks[name].counts[-1][1] for kind, name in COUNTERS.items()} == pool_of(state)


def test_a_request_waits_prefills_decodes_and_is_preempted() -> None:
    recording = crowded("vllm")
    tracks = tracks_of(perfetto_of([recording]))
    phases = {name: [phase for phase, *_ in track.slices] for name, track in tracks.items() if track.parent}
    assert phases["A"] == ["waiting", "prefill", "decode"]
    assert phases["D"] == ["waiting", "prefill", "decode", "waiting", "prefill", "decode"]
    for name in "ABCDEFGH":
        ends = [(start, end) for _, start, end, _ in tracks[name].slices]
        assert all(end == start for (_, end), (start, _) in pairwise(ends))
    first = next(event for event in recording.events if isinstance(event, ev.RequestFinished))
    steps = [e.step for e in recording.events[: list(recording.events).index(first)] if isinstance(e, ev.StepStarted)]
    assert tracks[recording.name_of(first.request_id)].slices[-1][2] == steps[-1] * MS


def test_arrows_lead_from_the_evictor_to_the_last_holder_and_from_the_preemptor_to_the_victim() -> None:
    recording = crowded("vllm")
    tracks = tracks_of(perfetto_of([recording]))
    ends: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for track in tracks.values():
        for flow, name, _ in track.flows:
            ends[flow].append((track.name, name))
    preempted = [set(pair) for pair in ends.values() if any("preempt" in name for _, name in pair)]
    assert {("A", "preempts D"), ("D", "preempted by A")} in preempted
    alone = [(track, at) for track in tracks.values() for one, at in track.instants if one == "preempted"]
    assert all(("waiting", at) in [one[:2] for one in track.slices] for track, at in alone)
    assert len(preempted) + len(alone) == sum(isinstance(event, ev.RequestPreempted) for event in recording.events)
    shown = [one for track in tracks.values() for one, _ in track.instants if one.startswith("evicts")]
    num_evicted = sum(int(re.findall(r"\d+", one)[0]) for one in shown)
    assert num_evicted == sum(isinstance(event, ev.BlockEvicted) for event in recording.events) > 10
    pairs = [pair for pair in ends.values() if any(name.startswith("evicts") for _, name in pair)]
    assert {("B", "evicts 1 cached block of D"), ("D", "1 cached block evicted by B")} in [set(pair) for pair in pairs]


def test_recorded_times_and_hostile_names_are_kept(tmp_path: Path) -> None:
    recording = crowded("vllm")
    name = 'a"b<script>\\ü'
    times = {1: 50.0, 2: 50.25, 3: 50.125}  # the clock was set back
    timed = replace(recording, times=times, names={0: name}, title="one")
    late = replace(recorded(3, tmp_path), title="two", times={})
    trace = perfetto_of([timed])
    tracks = tracks_of(trace)
    assert [start for _, start, *_ in tracks["steps"].slices[:4]] == [0, 250 * MS, 250 * MS, 251 * MS]
    assert tracks[name].slices[0][0] == "waiting"
    timed = replace(timed, step_seconds={1: 0.2, 2: 9.0, 4: 9.0})
    ends = [end for _, _, end, _ in tracks_of(perfetto_of([timed]))["steps"].slices[:4]]
    assert ends == [200 * MS, 250 * MS, 251 * MS, 252 * MS], "only where the start is recorded, and not past the next"
    both = Trace.FromString(perfetto_of([timed, late])).packet
    roots = [
        p.track_descriptor.name for p in both if p.HasField("track_descriptor") and not p.track_descriptor.parent_uuid
    ]
    assert roots == ["one", "two"]


def test_a_late_recording_begins_with_its_state(tmp_path: Path) -> None:
    recording = recorded(3, tmp_path)
    cut = next(i for i, event in enumerate(recording.events) if event == ev.StepStarted(12))
    first = recording.first.copy()
    first.apply_all(recording.events[:cut])
    tracks = tracks_of(perfetto_of([replace(recording, first=first, events=recording.events[cut:])]))
    running = {recording.name_of(i): one for i, one in first.requests.items() if one.status == "running"}
    assert running and all(tracks[name].slices[0][0] in ("prefill", "decode") for name in running)
    assert tracks["blocks in use"].counts[0][1] == first.num_used_blocks


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labengine.system.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"a Perfetto trace needs perfetto: pip install .*\[exports\]"):
        perfetto_of([])
