"""The watch: judges an engine in every step, and reports each violation once, with the event that caused it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from labengine import events as ev
from labengine.check.blame import Blamed, Suspects, all_overrides
from labengine.check.claims import Claims, Noted
from labengine.check.findings import Findings, event_of
from labengine.check.first_event import BrokenState, Suspicion
from labengine.check.idle import serves_who_fits
from labengine.check.invariants import check_invariants
from labengine.check.judge import Judge, WatchedEngine
from labengine.check.queues import Queues
from labengine.check.shadow import Difference, Shadow
from labengine.check.slot_memory import SavedBlocks, SlotMemory
from labengine.check.step_rules import (
    JudgedStep,
    Rule,
    computes_something,
    counts_what_it_computed,
    failed_for_want_of_blocks,
    freed_again,
    hands_out_what_was_sampled,
    is_granted,
    schedules_the_admitted,
)
from labengine.check.stream import CHANGE_NOTHING, Stream
from labengine.check.tier import TierContent
from labengine.check.tree_judge import TREE_EVENTS, TreeJudge
from labengine.check.watched_runner import WatchableRunner, WatchedRunner
from labengine.core.connector import BlockKV
from labengine.core.seams import tier_class
from labengine.core.step_plan import StepPlan
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks, Subscription, is_of_listener
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation, gravest_first

ON_A_PLAN: tuple[Rule, ...] = (computes_something, schedules_the_admitted, is_granted, serves_who_fits)
AT_A_STEPS_END: tuple[Rule, ...] = (counts_what_it_computed, hands_out_what_was_sampled)


class Watch:
    """Reads an engine and never changes it.

    Create the watch after the timeline has subscribed and before the engine; give the engine `wrap(runner)` as its
    runner, then `follow` it. ViolationFound reports violations at the end of the forward pass or of the step, in a
    failing step before the rollback. They are kept, oldest first, and a step's report lists its own. Each has a
    `first_event`: the event that contradicts the core, or the first one after which the rule was broken; if the
    recording does not show it, the newest event about the same blocks or requests. A watch that fails stops, and
    reports that under the rule `watch`.
    """

    def __init__(self, hooks: Hooks, timeline: Timeline | None = None) -> None:
        self._hooks = hooks
        self._timeline = timeline
        self._findings = Findings(timeline, self._stop)
        self._suspicions: list[Suspicion] = []
        self._saved = SavedBlocks()
        self._tier = TierContent()
        self._judge: Judge | None = None
        self._claims: Claims | None = None
        self._stream: Stream | None = None
        self._engine: WatchedEngine | None = None
        self._shadow: Shadow | None = None
        self._queues: Queues | None = None
        self._tree: TreeJudge | None = None
        self._blamed: list[Blamed] = []
        self._overrides = ""
        """The overrides as text: no event shows which of them led to a broken state, a wrong write or a wrong read."""
        self._step = 0
        self._is_open = False
        """True from a step's start to its end."""
        self._plan: StepPlan | None = None
        self._sampled: Sequence[int] = ()
        """The open step's plan; None before its forward pass, and in a step that schedules nothing."""
        self._num_before_step = 0
        self._subscriptions: list[Subscription] = []

    @property
    def violations(self) -> list[Violation]:
        """The violations of the engine, oldest first."""
        return self._findings.violations

    def wrap(self, runner: WatchableRunner) -> WatchableRunner:
        """Return the runner with the oracle attached."""
        return WatchedRunner(runner, self)

    def follow(self, engine: WatchedEngine, memory: SlotMemory | None = None) -> None:
        """Judge this engine from now on. Clears the violations.

        memory: the content of the slots, updated from now on; without it the engine is empty.
        """
        self.close()
        self._findings, self._suspicions, self._blamed = Findings(self._timeline, self._stop), [], []
        self._step, self._is_open, self._num_before_step = 0, False, 0
        self._engine = engine
        self._judge = judge = Judge(engine, self._saved)
        if memory is not None:
            judge.oracle.memory = memory
        suspects = Suspects(engine.parts, tier_class(engine.scheduler.external.connector))
        self._overrides = all_overrides(suspects)
        self._queues = Queues(engine.scheduler, suspects)
        self._tree = tree = TreeJudge(engine.scheduler.manager.pool, engine.requests, suspects)
        self._claims = Claims(engine.scheduler, engine.requests, suspects, judge.oracle, self._tier)
        self._stream = stream = self._stream_of(engine, suspects)
        self._shadow = Shadow(engine.scheduler, self._hooks, engine.journal, self.note_difference, self._stop)
        subscribe = self._hooks.subscribe
        self._subscriptions = [
            subscribe(stream.note, *(kind for kind in ev.EVENT_KINDS if kind not in CHANGE_NOTHING)),
            subscribe(stream.note_remark, *CHANGE_NOTHING),
            subscribe(self._note_step, ev.StepStarted),
            subscribe(judge.note_block, ev.BlockAllocated, ev.BlockTouched, ev.BlockCached, ev.BlockFreed),
            subscribe(judge.note_replaced, *get_args(ev.EntryReplaced)),
            subscribe(judge.note_eviction, ev.BlockEvicted),
            subscribe(judge.note_beam, ev.BeamReplaced),
            subscribe(judge.note_release, ev.RequestFinished, ev.RequestPreempted),
            subscribe(judge.note_forgotten, ev.RequestForgotten),
            subscribe(judge.oracle.loaded, ev.BlocksLoaded),
            subscribe(judge.oracle.received, ev.RequestReceived),
            subscribe(judge.oracle.saved, ev.BlocksSaved),
            subscribe(judge.note_rollback, ev.StepRolledBack),
            subscribe(tree.note, *TREE_EVENTS),
            subscribe(self._note_claim, *get_args(Noted)),
            subscribe(self._note_failure, ev.StepFailed),
            subscribe(self._note_end, ev.ForwardRan, ev.StepRolledBack, ev.StepEnded),
        ]

    def _stream_of(self, engine: WatchedEngine, suspects: Suspects) -> Stream:
        number = 1 if self._timeline is None else self._timeline.end
        pool = engine.scheduler.manager.pool
        return Stream(lambda: Fold.of(engine.snapshot()), number, pool, engine.requests, suspects, engine.journal)

    @property
    def memory(self) -> SlotMemory:
        """The content of every slot. Only while an engine is followed."""
        assert self._judge is not None
        return self._judge.oracle.memory

    def close(self) -> None:
        """Stop watching; the violations stay. A second call has no effect."""
        for subscription in self._subscriptions:
            subscription.close()
        if self._shadow is not None:
            self._shadow.close()
        self._subscriptions, self._judge, self._stream, self._engine = [], None, None, None
        self._claims = self._queues = self._tree = None

    @property
    def overrides(self) -> Mapping[str, bool | None]:
        """The overridden methods: True for a decision that differed from production's, None if never called."""
        return {} if self._shadow is None else {**dict.fromkeys(self._shadow.never_called), **self._shadow.called}

    def check(self, snapshot: Snapshot) -> list[Violation]:
        """Judge every invariant on the complete state; return all violations found so far."""
        merges = self._judge is not None and self._judge.merges
        self._compare(lambda stream: stream.look_ahead() if self._is_open else stream.settle(compare_all=True))
        if not self._findings.is_full:
            self._suspicions += map(BrokenState, check_invariants(snapshot, merges=merges))
        self._report()
        return list(self.violations)

    # -- called by the watched runner ----------------------------------------------------------------------------------

    def before_forward(self, plan: StepPlan) -> None:
        """Report the violations of the schedule at once; wrong writes are reported after the forward pass."""
        self._compare(lambda stream: self._judge_plan(plan, stream))
        self._compare(self._judge_tree)
        self._ask(lambda judge: judge.judge_schedule(plan))
        if self._suspicions:
            self._compare(lambda stream: stream.look_ahead())
        self._report()
        self._ask(lambda judge: judge.judge_writes(plan))
        self._ask_claims(lambda claims, stream: claims.note_plan(plan))

    def _judge_plan(self, plan: StepPlan, stream: Stream) -> list[Blamed]:
        self._plan = plan
        return self._judge_step(ON_A_PLAN, plan, stream)

    def _judge_tree(self, stream: Stream) -> list[Blamed]:
        return [] if self._tree is None else self._tree.judge(stream)

    def _judge_booked(self, stream: Stream) -> list[Blamed]:
        """Return violations of the rules on a step that has ended."""
        if self._plan is None:
            return self._judge_plan(StepPlan(()), stream)
        return self._judge_step(AT_A_STEPS_END, self._plan, stream)

    def _judge_step(self, rules: Sequence[Rule], plan: StepPlan, stream: Stream) -> list[Blamed]:
        engine = self._engine
        assert engine is not None
        step = JudgedStep(plan, stream, engine.scheduler, engine.parts, self._sampled, engine.failure)
        return [blamed for rule in rules for blamed in rule(step)]

    def after_forward(self, plan: StepPlan) -> None:
        """Judge the reads of the forward pass."""
        self._ask(lambda judge: judge.judge_reads(plan))

    def after_sample(self, plan: StepPlan, token_ids: Sequence[int]) -> None:
        """Note what the model sampled, one token per row of the plan."""
        self._sampled = token_ids

    def block_overwritten(self, block_id: int) -> None:
        """Note that a load writes to a block."""
        if self._judge is not None:
            self._judge.oracle.overwritten(block_id)
        self._ask_claims(lambda claims, stream: claims.note_overwritten(block_id))

    def block_delivered(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Note what a load has written to a block."""
        if self._judge is not None:
            self._judge.oracle.delivered(group, block_id, kv)

    def block_copied(self, group: int, block_id: int, into_block_id: int) -> None:
        """Note that a block's content is now in another block too."""
        if self._judge is not None:
            self._judge.oracle.copied(block_id, into_block_id, None, group)

    def copy_of(self, group: int, block_id: int, kv: BlockKV | None) -> BlockKV | None:
        """Return a block's KV with the identities of its content, for the external tier."""
        return kv if self._judge is None else self._judge.oracle.memory.copy(group, block_id, kv)

    # -- called by the shadow ------------------------------------------------------------------------------------------

    def note_difference(self, one: Difference) -> None:
        """Emit an override's decision that differs from production's. A look-up that finds less breaks a rule."""
        stream = self._stream
        number = 0 if stream is None else stream.last_number + 1
        if ev.DecisionDiffered in self._hooks:
            about = (
                one.method,
                one.replaces,
                one.decided,
                one.instead_of,
                -1 if one.request_id is None else one.request_id,
            )
            self._hooks.emit(ev.DecisionDiffered(*about))
        if one.num_found is not None:
            less, more = one.num_found
            subject = "" if one.request_id is None else f" for request {one.request_id}"
            text = f"{one.method} finds {less} tokens{subject}, but {one.replaces} finds {more} in the same state"
            request_ids = () if one.request_id is None else (one.request_id,)
            self._blamed.append(Blamed(Violation("longest", text, request_ids), number))

    # -- reporting -----------------------------------------------------------------------------------------------------

    def _note_step(self, event: ev.StepStarted) -> None:
        """Compare the events between two steps before the next one changes anything."""
        self._compare(lambda stream: stream.begin())
        self._report()
        self._ask_queues(Queues.begin)
        self._step, self._is_open, self._num_before_step = event.step, True, len(self.violations)
        self._plan, self._sampled = None, ()

    def _note_failure(self, event: ev.StepFailed) -> None:
        """Compare and report the state in which a part raised; it may show the cause."""
        self._compare(self._judge_failed)
        self._report()

    def _judge_failed(self, stream: Stream) -> list[Blamed]:
        """Return the violations before a part raised. An exception from a listener shows nothing about the core."""
        assert self._engine is not None
        error = self._engine.failure
        freed = [*freed_again(error, stream, self._timeline, self._overrides)]
        found = self._judge_step((failed_for_want_of_blocks,), StepPlan(()), stream)
        if error is None or not is_of_listener(error):
            found += stream.look_ahead()
        return found or freed  # an uncounted reference also leads to a second free, and is then the cause

    def _note_claim(self, event: Noted) -> None:
        self._ask_claims(lambda claims, stream: claims.note(event, stream.last_number))
        if not self._is_open:
            self._report()

    def _note_end(self, event: ev.ForwardRan | ev.StepRolledBack | ev.StepEnded) -> None:
        if type(event) is ev.StepEnded:
            self._compare(self._judge_booked)
            self._compare(lambda stream: stream.settle())
            self._compare(self._judge_tree)
            self._ask_claims(Claims.judge_names)
            self._ask(Judge.judge_changes)
            self._ask_queues(Queues.end)
            if self._shadow is not None:
                self._shadow.settle()
        elif type(event) is ev.StepRolledBack:
            self._compare(lambda stream: stream.take_back())
            self._ask_queues(Queues.take_back)
        self._report()
        self._is_open = type(event) is ev.ForwardRan
        if type(event) is ev.StepEnded and len(self.violations) > self._num_before_step:
            self._fill_step_report()

    def _fill_step_report(self) -> None:
        """Add the step's violations to its report."""
        engine = self._engine
        if engine is not None:
            found = gravest_first(self.violations[self._num_before_step :])
            engine.report = replace(engine.report, violations=tuple(found))

    def _ask(self, question: Callable[[Judge], list[Suspicion]]) -> None:
        """Collect the judge's suspicions. A failing judge must not disturb the engine."""
        if self._judge is None:
            return
        try:
            self._suspicions += question(self._judge)
        except Exception as error:
            self._stop(error)

    def _compare(self, question: Callable[[Stream], list[Blamed]]) -> None:
        """Collect contradictions between stream and core. A failure here must not disturb the engine."""
        if self._stream is None:
            return
        try:
            blamed = question(self._stream)
            self._blamed += blamed
            if blamed and self._judge is not None:
                self._judge.note_contradicted(one.violation for one in blamed)
        except Exception as error:
            self._stop(error)

    def _ask_claims(self, question: Callable[[Claims, Stream], list[Blamed]]) -> None:
        """Collect violations of what events claim. A failure here must not disturb the engine."""
        claims = self._claims
        if claims is not None:
            self._compare(lambda stream: question(claims, stream))

    def _ask_queues(self, question: Callable[[Queues, int], list[Blamed]]) -> None:
        """Collect violations of the orders of requests. A failure here must not disturb the engine."""
        queues = self._queues
        if queues is not None:
            self._compare(lambda stream: question(queues, stream.last_number))

    def _stop(self, error: Exception) -> None:
        self.close()
        self._keep(Violation("watch", f"the check itself failed and has stopped: {error!r}"), None)

    def _report(self) -> None:
        """Keep and emit new violations, each with its first event; contradictions of the events come first."""
        if self._blamed:
            self._report_blamed()
        if self._suspicions:
            self._report_suspicions()

    def _report_blamed(self) -> None:
        blamed, self._blamed = self._blamed, []
        for violation, first_event in blamed:
            if self._findings.is_new(violation):
                self._keep(violation, first_event)

    def _report_suspicions(self) -> None:
        suspicions, self._suspicions = self._suspicions, []
        if not (found := self._findings.new_among(suspicions)):
            return
        requests = None if self._judge is None else self._judge.requests
        stream = self._stream
        events = ([], None) if stream is None else (stream.newest_events(), stream.last_number)
        for suspicion, number in zip(found, self._findings.causes_of(found, requests, *events), strict=True):
            violation = suspicion.violation
            self._keep(replace(violation, message=violation.message + self._overrides), number)

    def _keep(self, violation: Violation, first_event: int | None) -> None:
        misnamed = () if self._claims is None else self._claims.misnamed(violation)
        kept = replace(violation, step=self._step, first_event=first_event, misnamed=misnamed)
        self._findings.keep(kept)
        if ev.ViolationFound in self._hooks:
            self._hooks.emit(event_of(kept))
