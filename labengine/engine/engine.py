"""The engine: add requests, take steps. A step is schedule, forward, sample, update, or it never happened."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock

from labengine.config import EngineConfig, SamplingParams, checked_token_ids
from labengine.core.connector import Connector, LoadError
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.proposer import Proposer
from labengine.core.request import Request, RequestStatus
from labengine.core.state import take_snapshot
from labengine.core.step_plan import Logits, ScheduledRequest, StepPlan
from labengine.engine.checked_proposer import CheckedProposer
from labengine.engine.failure import failure_event, is_failure, name_of
from labengine.engine.interrupts import interrupts_allowed, interrupts_deferred
from labengine.engine.request_maker import RequestMaker, seed_of
from labengine.engine.request_options import RequestOptions
from labengine.engine.runner import Runner
from labengine.engine.step_report import Phase, StepReport
from labengine.engine.transfers import Transfers
from labengine.events import (
    EngineStarted,
    Event,
    ForwardRan,
    SlotsWritten,
    StateAdvanced,
    StepEnded,
    StepFailed,
    StepRolledBack,
    StepStarted,
)
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from labengine.system.code_roles import Role, plays, rolls_back

plays(__name__, Role.ENGINE)

_RECOVERY_HINT = "The state cannot be trusted: use reset() to start over, or rewind() to go back to an earlier step."


class Engine:
    """Continuous batching over a paged KV cache, one step at a time. Not thread-safe: the lab holds the lock."""

    anticipates = False
    """True if requests may hold placeholders in the middle of a step; see ahead.py."""

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        parts: Parts,
        hooks: Hooks,
        connector: Connector | None = None,
        journal: Journal | None = None,
        proposer: Proposer | CheckedProposer | None = None,
    ) -> None:
        self.config = config
        self.parts = parts
        self.hooks = hooks
        self.runner = runner
        self.num_added = 0
        """Number of requests added so far, including forgotten ones; the next request's id."""
        self.step_number = 0
        self.report = StepReport(0)
        self.reached: Phase | None = None
        """The last phase of the step that leaves traces after a rollback; see forget_written."""
        self.begins_anew = False
        """True if the engine rolled a step back to repeat it, because a load from the external tier failed."""
        self.failure: BaseException | None = None
        """The exception that a part raised in the newest step, which was rolled back; StepFailed carries it."""
        self.ends_at: tuple[str, int] | None = None
        """Event and number at which a step is being broken off on purpose; see session/history/broken_steps.py."""
        self._open_step = Lock()
        self.journal = Journal() if journal is None else journal
        """Inverses that roll the open step back."""
        self.scheduler = parts.assemble(config, hooks, self.journal, connector)
        self.maker = RequestMaker(config, self.scheduler)
        self.requests = self.scheduler.requests
        """All kept requests by id; see EngineConfig.keep_finished."""
        self.transfers = Transfers(connector, self.scheduler.external, runner, hooks)
        self.proposer = proposer
        if EngineStarted in hooks:
            groups = tuple((spec.kind, spec.block_size, spec.window) for spec in config.groups)
            hooks.emit(EngineStarted(config.num_blocks, groups, parts.name, self.scheduler.manager.pool.null_block))

    def add(
        self,
        token_ids: Sequence[int],
        options: SamplingParams | RequestOptions,
        leader_id: int | None = None,
    ) -> int:
        """Queue a request and return its id, counted from 0.

        options: the sampling alone, or all options. leader_id: a request with the same tokens; this one forks from it
        once they are computed.
        Raises ConfigError for a prompt that is empty or never fits.
        """
        asked = RequestOptions(options) if isinstance(options, SamplingParams) else options
        request = self.maker.request(self.num_added, checked_token_ids(token_ids), asked)
        if leader_id is not None:
            self.scheduler.refuse_forks()
        self.queue(request, leader_id=leader_id)
        return request.request_id

    def branch(self, request_id: int, seed: int | None = None, token_id: int | None = None) -> int:
        """Queue another continuation of a request; return its id. See RequestMaker.branch."""
        self.refuse_while_busy("branch()")
        parent = self.requests[request_id]
        request = self.maker.branch(self.num_added, parent, seed, token_id)
        with self._atomic_change():
            self.scheduler.branch(request, parent)
            self.num_added += 1
        return request.request_id

    def queue_next(self, *requests: Request, leader_id: int | None = None) -> None:
        """Queue new requests under the next ids, as `queue` does: others may have been added since they were made."""
        for number, request in enumerate(requests, self.num_added):
            request.request_id = request.arrival = number
            request.seed = seed_of(request.sampling, number, self.config)
        self.queue(*requests, leader_id=leader_id)

    def queue(self, *requests: Request, leader_id: int | None = None) -> None:
        """Queue a new request, and with it the requests that wait for its tokens: all or none.

        leader_id: an existing request, for whose tokens all of them wait.
        """
        self.refuse_while_busy("add()")
        with self._atomic_change():
            for request in requests:
                if leader_id is None:
                    self.scheduler.add(request)
                    leader_id = request.request_id
                else:
                    self.scheduler.join(request, self.requests[leader_id])
            self.num_added += len(requests)

    def abort(self, request_id: int) -> bool:
        """End a request, or with a beam its whole search; return False if it has already finished.

        Raises KeyError for an unknown id. A failing cancellation of a load is raised after the request has ended.
        """
        self.refuse_while_busy("abort()")
        request = self.requests[request_id]
        if request.status is RequestStatus.FINISHED:
            return False
        external, ending = self.scheduler.external, self.scheduler.ends_with(request)
        loading = [one for one in ending if one in external.loading]
        with interrupts_deferred(), ExitStack() as afterwards:
            for one in loading:
                afterwards.callback(external.cancel, one)
            with self._atomic_change():
                for one in ending:
                    self.scheduler.abort(one)
            self.scheduler.forget_finished()
        return True

    @rolls_back
    def step(self) -> StepReport:
        """Take one whole step; return its report, which is falsy if nothing waits or runs."""
        for _ in self.phases():
            pass
        return self.report

    @rolls_back
    def phases(self) -> Generator[Phase]:
        """Take one step, and yield after each phase. Closing it before the end rolls the step back.

        If a load from the external tier fails, the step is rolled back and repeated without it.
        """
        self.refuse_while_busy("step()")
        if self.scheduler.is_idle:
            self.report = StepReport(self.step_number)
            return
        self.transfers.collect(is_idle=not self.scheduler.running and not self.scheduler.waiting)
        while True:
            try:
                yield from self._attempt()
                return
            except LoadError as error:
                self.transfers.forget(error)

    @rolls_back
    def _attempt(self) -> Generator[Phase]:
        with self._open_step, self._all_or_nothing():
            plan = self._schedule()
            yield "schedule"
            logits = self._forward(plan)
            yield "forward"
            token_ids = self._sample(plan, logits)
            yield "sample"
            self._update(plan, token_ids)
            self._draft(plan)
        self._forget_finished()
        yield "update"

    def snapshot(self) -> Snapshot:
        """Return the current state, also inside a step."""
        return take_snapshot(self.step_number, self.requests, self.scheduler.manager)

    @property
    def num_finished_steps(self) -> int:
        """Number of finished steps, without the open one."""
        return self.step_number - self._open_step.locked()

    @property
    def num_used_blocks(self) -> int:
        """Blocks held by at least one request."""
        return self.scheduler.manager.pool.num_used

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content, as after new weights; return False while a request holds blocks."""
        self.refuse_while_busy("reset_prefix_cache()")
        with self._atomic_change():
            return self.scheduler.manager.reset_prefix_cache()

    @rolls_back
    def _schedule(self) -> StepPlan:
        with interrupts_deferred():
            plan = self.scheduler.schedule()
        self._peak_used_blocks = self.num_used_blocks
        self._copy(plan)
        self.transfers.load(plan)
        return plan

    @rolls_back
    def _copy(self, plan: StepPlan) -> None:
        """Copy blocks while no block of the step is written: a source may be given away in the same step."""
        self._written = StepPlan((), plan.preempted, plan.loads, copies=plan.copies)
        if plan.loads or plan.copies:
            self.reached = "schedule"
        for copy in plan.copies:
            self.runner.copy_block(copy.group, copy.block_id, copy.into_block_id)

    @rolls_back
    def _forward(self, plan: StepPlan) -> Logits:
        if not plan.scheduled:
            return None
        self._written, self.reached = plan, "forward"
        logits = self.runner.forward(plan)
        if SlotsWritten in self.hooks or StateAdvanced in self.hooks:
            for request in plan.scheduled:
                self._emit_written(request)
        if ForwardRan in self.hooks:
            self.hooks.emit(ForwardRan(len(plan.scheduled), plan.num_tokens))
        self.transfers.save(plan)
        self.reached = "sample"
        return logits

    @rolls_back
    def _emit_written(self, request: ScheduledRequest) -> None:
        for group, runs in zip(self.scheduler.manager.groups, request.slot_runs, strict=False):
            if not group.keeps_states:
                if SlotsWritten in self.hooks:
                    self.hooks.emit(SlotsWritten(request.request_id, group.index, request.start, runs))
            elif StateAdvanced in self.hooks:
                start = request.start
                for end, (block_id, _, _) in zip(request.state_ends(group.index), runs, strict=True):
                    self.hooks.emit(StateAdvanced(request.request_id, group.index, block_id, start, end))
                    start = end

    @rolls_back
    def _sample(self, plan: StepPlan, logits: Logits) -> list[int]:
        """Return one token per row of the plan; the tokens of beams are ignored, as their search chooses."""
        token_ids = self.runner.sample(plan, logits) if plan.sampling else []
        beams = self.scheduler.beams
        if beams is not None and (num_tokens := beams.num_likeliest(plan)):
            found = self.runner.likeliest(plan, logits, num_tokens)
            with interrupts_deferred():
                beams.note_likeliest(plan, found)
        return token_ids

    @rolls_back
    def _update(self, plan: StepPlan, token_ids: list[int]) -> None:
        with interrupts_deferred():
            finished = self.scheduler.update(plan, token_ids)
        self.report = self._report(plan, token_ids, finished)

    @rolls_back
    def _draft(self, plan: StepPlan) -> None:
        """Have the proposer guess the next tokens. This may take long, and can be interrupted."""
        if self.proposer is None:
            return
        for part in plan.sampling:
            request = self.requests[part.request_id]
            num_wanted = self.scheduler.drafts.num_wanted(request)
            if num_wanted > 0:
                with interrupts_allowed():
                    drafts = self.proposer.propose(tuple(request.token_ids), num_wanted)
                with interrupts_deferred():
                    self.scheduler.drafts.keep(request, tuple(drafts))

    def _forget_finished(self) -> None:
        """Drop old finished requests after a step, which can no longer be rolled back."""
        with interrupts_deferred():
            self.scheduler.forget_finished()

    def _report(self, plan: StepPlan, token_ids: list[int], finished: tuple[int, ...]) -> StepReport:
        rows = zip(plan.rows, zip(token_ids), strict=True)
        sampled: dict[int, tuple[int, ...]] = {row.request_id: new for row, new in rows if row.sampling.beams == 1}
        if (beams := self.scheduler.beams) is not None:
            sampled |= {request_id: (token_id,) for request_id, token_id in beams.chosen.items()}
        judged = [part for part in plan.sampling if part.num_drafts] if len(plan.rows) > len(plan.sampling) else ()
        drafted, accepted = {}, {}
        for part in judged:
            sampled[part.request_id] = tuple(self.requests[part.request_id].token_ids[part.num_known :])
            drafted[part.request_id] = part.num_drafts
            accepted[part.request_id] = self.scheduler.drafts.accepted.get(part.request_id, 0)
        return StepReport(
            self.step_number,
            {request.request_id: len(request.token_ids) for request in plan.scheduled},
            plan.preempted,
            finished,
            sampled,
            drafted,
            accepted,
            self._peak_used_blocks,
            tuple(request.request_id for request in self.scheduler.external.loading),
        )

    # -- all or nothing ------------------------------------------------------------------------------------------------

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Roll a step back if any exception ends it."""
        step_before, report_before = self.step_number, self.report
        self._written, self.reached, self.failure = StepPlan(()), None, None
        self.journal.open()
        try:
            self.step_number = step_before + 1
            if StepStarted in self.hooks:
                self.hooks.emit(StepStarted(self.step_number))
            yield
            if StepEnded in self.hooks:
                self.hooks.emit(StepEnded(self.step_number))
        except BaseException as error:
            with interrupts_deferred():
                self.begins_anew = isinstance(error, LoadError)
                if is_failure(error):
                    self._note_failure(error)
                self.step_number, self.report = step_before, report_before
                self._roll_back(error)
            raise
        self.journal.commit()

    @contextmanager
    def _atomic_change(self) -> Iterator[None]:
        """Apply a change between two steps completely or not at all; its events are emitted when it is complete."""
        with interrupts_deferred():
            with self.silent_change() as events:
                yield
            self.hooks.emit_all(events)

    @contextmanager
    def silent_change(self) -> Iterator[list[Event]]:
        """Apply a change between two steps completely or not at all; the caller emits its events after that.

        The caller holds interrupts back.
        """
        self.journal.open()
        with self.hooks.held() as events:
            try:
                yield events
            except BaseException as error:
                self.journal.rollback()
                self._note_torn(error)
                raise
        self.journal.commit()

    def _note_failure(self, error: BaseException) -> None:
        """Emit StepFailed before the rollback: listeners see the state in which the exception was raised."""
        self.failure = error
        if StepFailed in self.hooks:
            self.hooks.emit(failure_event(self.step_number, error))

    def _roll_back(self, error: BaseException) -> None:
        """Undo the step, and invalidate the slots that its forward pass may have written to."""
        self.journal.rollback()
        self._note_torn(error)
        try:
            if StepRolledBack in self.hooks:
                self.hooks.emit(StepRolledBack(self.step_number + 1, name_of(error)))
        finally:
            self._forget_written(error)

    def _note_torn(self, error: BaseException) -> None:
        for failure in self.journal.failures:
            error.add_note(f"The step could not be rolled back completely: {failure!r}. {_RECOVERY_HINT}")

    def _forget_written(self, error: BaseException) -> None:
        try:
            self.scheduler.forget_written(self._written)
        except Exception as failure:
            error.add_note(f"The slots written in the step could not be invalidated: {failure!r}. {_RECOVERY_HINT}")

    def refuse_while_busy(self, call: str) -> None:
        if self.hooks.is_emitting:
            raise RuntimeError(f"{call} was called inside a hook listener: listeners may only observe")
        if self._open_step.locked():
            raise RuntimeError(f"{call} was called in the middle of a step: finish or close its phases() first")
