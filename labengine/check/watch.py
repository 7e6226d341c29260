"""The watch: has an engine judged in every step, and tells each violation once, with the event that made it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.first_event import BrokenState, Suspicion, first_events
from labengine.check.invariants import check_invariants
from labengine.check.judge import Judge, WatchedEngine
from labengine.check.nearest_event import NearestEvents
from labengine.check.progress import judge_progress
from labengine.check.slot_memory import SavedBlocks
from labengine.check.stream import Stream
from labengine.check.watched_runner import Runner, WatchedRunner
from labengine.core.step_plan import StepPlan
from labengine.fold import Fold
from labengine.hooks import Hooks, Subscription
from labengine.snapshot import Snapshot
from labengine.timeline import Timeline
from labengine.violation import Subject, Violation

MAX_VIOLATIONS = 1000
MAX_FIRST_EVENTS = 50
"""An engine that breaks everything shall not have each breach traced through the whole recording: a second per walk."""


class Watch:
    """Looks at an engine and never steers it.

    Make it when the timeline has subscribed and before the engine; give the engine `around(runner)` for a runner, and
    `follow` it. Violations are told by ViolationFound at the end of the forward pass or of the step, and where a step
    fails, before it is taken back; they are kept, oldest first, and a step's report lists its own. Each has a
    `first_event`: the event that contradicts the core, or the first one after which the rule was broken; where the
    recording does not tell, the newest event about the same blocks or requests. A watch that fails itself stops, and
    says so by the rule `watch`.
    """

    def __init__(self, hooks: Hooks, timeline: Timeline | None = None) -> None:
        self.violations: list[Violation] = []
        self._hooks = hooks
        self._timeline = timeline
        self._told: set[Subject] = set()
        self._suspicions: list[Suspicion] = []
        self._saved = SavedBlocks()
        self._judge: Judge | None = None
        self._stream: Stream | None = None
        self._engine: WatchedEngine | None = None
        self._blamed: list[Blamed] = []
        self._step = 0
        self._is_open = False
        """True from a step's start to its end."""
        self._num_before_step = 0
        self._subscriptions: list[Subscription] = []

    def around(self, runner: Runner) -> Runner:
        """The runner, with the oracle beside it."""
        return WatchedRunner(runner, self)

    def follow(self, engine: WatchedEngine) -> None:
        """Judge this engine from now on. It is empty, and so is the list of violations."""
        self.close()
        self.violations, self._told, self._suspicions, self._blamed = [], set(), [], []
        self._step, self._is_open, self._num_before_step = 0, False, 0
        self._engine = engine
        self._judge = judge = Judge(engine, self._saved)
        self._stream = stream = self._stream_of(engine)
        subscribe = self._hooks.subscribe
        self._subscriptions = [
            subscribe(stream.note),
            subscribe(self._note_step, ev.StepStarted),
            subscribe(judge.note_block, ev.BlockAllocated, ev.BlockTouched, ev.BlockCached, ev.BlockFreed),
            subscribe(judge.note_merge, ev.BlockMerged),
            subscribe(judge.note_eviction, ev.BlockEvicted),
            subscribe(judge.note_release, ev.RequestFinished, ev.RequestPreempted),
            subscribe(judge.note_forgotten, ev.RequestForgotten),
            subscribe(judge.note_load, ev.BlocksLoaded),
            subscribe(judge.note_save, ev.BlocksSaved),
            subscribe(judge.note_rollback, ev.StepRolledBack),
            subscribe(self._note_failure, ev.StepFailed),
            subscribe(self._note_end, ev.ForwardRan, ev.StepRolledBack, ev.StepEnded),
        ]

    def _stream_of(self, engine: WatchedEngine) -> Stream:
        number = 1 if self._timeline is None else self._timeline.end
        pool = engine.scheduler.manager.pool
        return Stream(lambda: Fold.of(engine.snapshot()), number, pool, engine.requests, engine.parts, engine.journal)

    def close(self) -> None:
        """Stop watching. Twice is harmless; what was found stays."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions, self._judge, self._stream, self._engine = [], None, None, None

    def check(self, snapshot: Snapshot) -> list[Violation]:
        """Everything found so far, and every invariant judged now on the whole state."""
        merges = self._judge is not None and self._judge.merges
        self._compare(lambda stream: stream.look_ahead() if self._is_open else stream.settle(whole=True))
        if len(self.violations) < MAX_VIOLATIONS:
            self._suspicions += map(BrokenState, check_invariants(snapshot, merges=merges))
        self._tell()
        return list(self.violations)

    # -- beside the runner ---------------------------------------------------------------------------------------------

    def before_forward(self, plan: StepPlan) -> None:
        """What the step has changed so far is told at once; where it will write is told when it has."""
        self._compare(lambda stream: judge_progress(plan, stream))
        self._ask(lambda judge: judge.judge_schedule(plan))
        if self._suspicions:
            self._compare(lambda stream: stream.look_ahead())
        self._tell()
        self._ask(lambda judge: judge.judge_writes(plan))

    def after_forward(self, plan: StepPlan) -> None:
        """What the step has read."""
        self._ask(lambda judge: judge.judge_reads(plan))

    def block_overwritten(self, block_id: int) -> None:
        """A load writes to a block."""
        if self._judge is not None:
            self._judge.oracle.overwritten(block_id)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _note_step(self, event: ev.StepStarted) -> None:
        """What has happened between two steps is compared before the next one changes anything."""
        self._compare(lambda stream: stream.begin())
        self._tell()
        self._step, self._is_open, self._num_before_step = event.step, True, len(self.violations)

    def _note_failure(self, event: ev.StepFailed) -> None:
        """What was held when the exception was raised: the cause may be there to see."""
        self._compare(lambda stream: stream.look_ahead())
        self._tell()

    def _note_end(self, event: ev.ForwardRan | ev.StepRolledBack | ev.StepEnded) -> None:
        if type(event) is ev.StepEnded:
            self._compare(lambda stream: stream.settle())
            self._ask(Judge.judge_changes)
        elif type(event) is ev.StepRolledBack:
            self._compare(lambda stream: stream.take_back())
        self._tell()
        self._is_open = type(event) is ev.ForwardRan
        if type(event) is ev.StepEnded and len(self.violations) > self._num_before_step:
            self._report()

    def _report(self) -> None:
        """The step's report lists what was found in it."""
        engine = self._engine
        if engine is not None:
            engine.report = replace(engine.report, violations=tuple(self.violations[self._num_before_step :]))

    def _ask(self, question: Callable[[Judge], list[Suspicion]]) -> None:
        """Collect what the judge finds. Nothing that goes wrong with it may disturb the engine."""
        if self._judge is None:
            return
        try:
            self._suspicions += question(self._judge)
        except Exception as error:
            self._stop(error)

    def _compare(self, question: Callable[[Stream], list[Blamed]]) -> None:
        """Collect what contradicts the stream. Nothing that goes wrong with it may disturb the engine."""
        if self._stream is None:
            return
        try:
            self._blamed += question(self._stream)
        except Exception as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        self.close()
        self._keep(Violation("watch", f"the check itself failed, and has stopped: {error!r}"), None)

    def _tell(self) -> None:
        """Keep and emit what is new, each with its first event; what contradicts the events goes first."""
        if self._blamed:
            self._tell_blamed()
        if self._suspicions:
            self._tell_suspicions()

    def _tell_blamed(self) -> None:
        blamed, self._blamed = self._blamed, []
        for violation, first_event in blamed:
            if not self._told.issuperset(violation.subjects) and len(self.violations) < MAX_VIOLATIONS:
                self._keep(violation, first_event)

    def _tell_suspicions(self) -> None:
        suspicions, self._suspicions = self._suspicions, []
        fresh: dict[frozenset[Subject], Suspicion] = {}
        for suspicion in suspicions:
            subjects = suspicion.violation.subjects
            if not self._told.issuperset(subjects):
                fresh.setdefault(subjects, suspicion)
        told = [*fresh.values()][: MAX_VIOLATIONS - len(self.violations)]
        if not told:
            return
        nearest = NearestEvents(self.violations, self._stream)
        for suspicion, first_event in zip(told, self._first_events(told), strict=True):
            violation = suspicion.violation
            self._keep(violation, nearest.about(violation) if first_event is None else first_event)

    def _first_events(self, suspicions: list[Suspicion]) -> list[int | None]:
        traced = suspicions[: max(0, MAX_FIRST_EVENTS - len(self.violations))]
        found: list[int | None] = [None] * len(suspicions)
        if traced and self._timeline is not None and self._judge is not None:
            try:
                found[: len(traced)] = first_events(self._timeline, traced, self._judge.requests)
            except Exception as error:
                self._stop(error)
        return found

    def _keep(self, violation: Violation, first_event: int | None) -> None:
        v = replace(violation, step=self._step, first_event=first_event)
        self._told |= v.subjects
        self.violations.append(v)
        if ev.ViolationFound in self._hooks:
            told = ev.ViolationFound(v.rule, v.message, v.request_ids, v.block_ids, self._step, v.first_event)
            self._hooks.emit(told)
