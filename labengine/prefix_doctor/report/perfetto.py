"""A recording as a trace for ui.perfetto.dev: steps, requests, the pool, and who took whose blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from labengine import events as ev
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.report.evictions import Evictions
from labengine.prefix_doctor.report.perfetto_tracks import Tracks
from labengine.prefix_doctor.report.pool import PoolCounts
from labengine.prefix_doctor.report.step_spans import Span, spans_of
from labengine.record.fold_state import FINISHED
from labengine.record.wording import counted

COUNTERS = {"used": "blocks in use", "cached_free": "free blocks with cached content", "free": "free blocks without"}


def perfetto_of(recordings: Sequence[RecordedEngine]) -> bytes:
    """Return the trace of recordings on one clock: the pieces of a stream, or the replicas of a run.

    A step without a recorded time lasts 1 ms. Raises ConfigError if the extra `exports` is missing.
    """
    tracks, origin = Tracks(), min((at for one in recordings for at in one.times.values()), default=0.0)
    for recording in recordings:
        _Engine(recording, tracks, spans_of(recording, origin)).write()
    return tracks.to_bytes()


class _Engine:
    """Writes one recording.

    Within a step only the order of events is known: the scheduler's decisions are placed at its start, the update
    after the forward pass at its end. Events between steps are placed at the next step's start.
    """

    def __init__(self, recording: RecordedEngine, tracks: Tracks, spans: dict[int, Span]) -> None:
        self._recording, self._tracks, self._spans = recording, tracks, spans
        self._state, self._evictions = recording.first.copy(), Evictions(recording.first)
        self._pool = PoolCounts(self._state)
        root = tracks.new(recording.title)
        self._steps = tracks.new("steps", root, 0)
        self._counters = {
            kind: tracks.new(name, root, rank, is_counter=True) for rank, (kind, name) in enumerate(COUNTERS.items(), 1)
        }
        self._counted = dict[str, int]()
        self._requests_group = tracks.new("requests", root, len(COUNTERS) + 1)
        self._requests = dict[int, int]()
        self._phases = dict[int, str]()
        self._starts = iter([start for start, _ in spans.values()][1:])
        self._at = next(iter(spans.values()), (0, 0))[0]
        self._span = self._at, self._at
        self._open_step: int | None = None
        self._facts = dict[str, int]()
        """The step's numbers of requests and tokens, once it has computed them."""
        self._lost = Counter[tuple[int, int | None]]()
        """Evicted blocks by (request that took them, last holder), until the former is scheduled."""
        self._victims: list[int] = []
        """Preempted requests, until the request that gets their blocks is scheduled."""

    def write(self) -> None:
        """Write all tracks."""
        for request_id, request in self._state.requests.items():
            if request.status != FINISHED:
                is_prefill = request.num_computed_tokens < request.num_prompt_tokens
                self._enter(request_id, "waiting" if request.status != "running" else _phase(is_prefill))
        if self._recording.is_late:
            self._count()
        for event in self._recording.events:
            self._follow(event)
        self._end_step()
        self._count()

    def _follow(self, event: ev.Event) -> None:
        if isinstance(event, (ev.ForwardRan, ev.TokenSampled)) and self._open_step is not None:
            self._end_decisions()
        self._apply(event)
        match event:
            case ev.StepStarted(step):
                self._begin_step(step)
            case ev.StepEnded():
                self._end_step()
            case ev.ForwardRan(num_requests, num_tokens):
                self._facts = {"requests": num_requests, "tokens": num_tokens}
            case ev.RequestAdded(request_id):
                self._enter(request_id, "waiting")
            case ev.RequestScheduled(request_id):
                self._enter(request_id, _phase(event.is_prefill))
                self._show_taken(request_id)
            case ev.RequestPreempted(request_id):
                self._enter(request_id, "waiting")
                self._victims.append(request_id)
            case ev.RequestFinished(request_id):
                self._leave(request_id)

    def _apply(self, event: ev.Event) -> None:
        """Keep the state, the pool's numbers and the blocks' holders up to date."""
        self._state.apply(event)
        if isinstance(event, ev.EngineStarted):
            self._pool = PoolCounts(self._state)
        self._pool.update(self._state.take_changes().blocks)
        eviction = self._evictions.follow(event)
        if eviction is not None and eviction.request_id is not None:
            self._lost[eviction.request_id, eviction.owner] += 1

    # -- steps and the pool --------------------------------------------------------------------------------------------

    def _begin_step(self, step: int) -> None:
        self._end_step()
        self._show_left_over()
        self._open_step, self._span = step, self._spans[step]
        self._at = self._span[0]
        self._tracks.begin(self._steps, self._at, f"step {step}")

    def _end_decisions(self) -> None:
        """Show what the scheduler decided, and go on to the step's end."""
        if self._at != self._span[1]:
            self._count()
            self._show_left_over()
            self._at = self._span[1]

    def _end_step(self) -> None:
        if self._open_step is None:
            return
        self._end_decisions()
        self._tracks.end(self._steps, self._at, **self._facts)
        self._open_step, self._facts = None, {}
        self._count()
        self._at = next(self._starts, self._at)

    def _count(self) -> None:
        for kind, number in self._pool.counts.items():
            if self._counted.get(kind) != number:
                self._counted[kind] = number
                self._tracks.count(self._counters[kind], self._at, number)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _track(self, request_id: int) -> int:
        if request_id not in self._requests:
            name = self._recording.name_of(request_id)
            self._requests[request_id] = self._tracks.new(name, self._requests_group, len(self._requests))
        return self._requests[request_id]

    def _enter(self, request_id: int, phase: str) -> None:
        if self._phases.get(request_id) == phase:
            return
        self._leave(request_id)
        self._phases[request_id] = phase
        self._tracks.begin(self._track(request_id), self._at, phase)

    def _leave(self, request_id: int) -> None:
        if self._phases.pop(request_id, None) is not None:
            self._tracks.end(self._track(request_id), self._at)

    # -- who took whose blocks -----------------------------------------------------------------------------------------

    def _show_taken(self, request_id: int) -> None:
        """Show what a request that has just been scheduled took from others."""
        name = self._recording.name_of
        for taker, owner in [pair for pair in self._lost if pair[0] == request_id]:
            blocks = counted(self._lost.pop((taker, owner)), "cached block")
            whose = "" if owner is None else " of its own" if owner == taker else f" of {name(owner)}"
            self._arrow(taker, owner, f"evicts {blocks}{whose}", f"{blocks} evicted by {name(taker)}")
        for victim in self._victims:
            self._arrow(request_id, victim, f"preempts {name(victim)}", f"preempted by {name(request_id)}")
        self._victims.clear()

    def _show_left_over(self) -> None:
        """Show evictions for requests that were not scheduled after all, and preemptions that served no request."""
        for victim in self._victims:
            self._tracks.instant(self._track(victim), self._at, "preempted")
        self._victims.clear()
        for taker in {taker for taker, _ in self._lost}:
            self._show_taken(taker)

    def _arrow(self, source: int, target: int | None, at_source: str, at_target: str) -> None:
        flow = None if target in (None, source) else self._tracks.new_flow()
        self._tracks.instant(self._track(source), self._at, at_source, flow)
        if flow is not None and target is not None:
            self._tracks.instant(self._track(target), self._at, at_target, flow)


def _phase(is_prefill: bool) -> str:
    return "prefill" if is_prefill else "decode"
