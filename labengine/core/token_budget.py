"""vLLM's scheduling: one budget of tokens, spent first on running requests and then on waiting ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import BlockTransfer, Connector
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import NOT_ADMITTED, Admission, Scheduler
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.events import BlocksLoaded, LoadFailed


class TokenBudgetScheduler(Scheduler):
    """Schedules by a token budget; any prefill may be split into chunks.

    A request is admitted only if its whole prompt fits, and not in a step that preempted; max_num_seqs limits the
    running requests. Source: vLLM v1's scheduler (0.32, synchronous, scheduler_reserve_full_isl).
    """

    capabilities: ClassVar[tuple[str, ...]] = ("forks", "beams", "hand_over")

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for state groups with an external tier, which files KV by blocks of tokens."""
        if connector is not None and any(group.kind == "state" for group in config.groups):
            raise ConfigError("the external tier cannot keep states: omit either external or the state groups")

    def schedule(self) -> StepPlan:
        """Plan running requests in order, then waiting ones, until the step's budget of tokens is spent."""
        self.manager.begin_step()
        self.take_arrived()
        chunk = self.longest_chunk()
        preempted: list[int] = []
        batch = self._schedule_running(chunk, preempted)
        if not preempted:
            self._admit_waiting(chunk, batch)
            while not batch and self._take_back_last(preempted):
                self._admit_waiting(chunk, batch)
        saves = self.choose_saves(batch)
        copies = self.manager.take_copies()
        forks = () if self.forks is None else self.forks.of_batch(batch)
        return StepPlan(tuple(batch), tuple(preempted), self.external.take_loads(), saves, copies, forks)

    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        batch: list[ScheduledRequest] = []
        budget, place, num_preempted = self.budget_left(batch), 0, 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            num_tokens = self.num_plannable(request)
            if num_tokens > 1:
                num_tokens = self.clipped(request, request.next_position, min(num_tokens, budget, chunk))
            if num_tokens <= 0:
                place += 1
                continue
            if not self.allocate_or_preempt(request, request.next_position + num_tokens, batch, preempted):
                break
            if len(preempted) > num_preempted:  # a victim may have been at any place, in the batch or not
                num_preempted, place = len(preempted), self.running.index(request)
                budget = self.budget_left(batch)
            batch.append(self.plan(request, num_tokens, RequestStatus.RUNNING))
            budget -= num_tokens + self.drafts.num_inputs
            place += 1
        return batch

    def budget_left(self, batch: Sequence[ScheduledRequest]) -> int:
        """Return how many tokens a step with this batch can compute for one more request."""
        return super().budget_left(batch) - self.drafts.num_inputs * (len(batch) + 1)

    def num_plannable(self, request: Request) -> int:
        """Return how many tokens a step could compute for a running request: all that it has. 0 leaves it out."""
        num_known = len(request.token_ids) - request.num_computed_tokens
        return num_known + self.drafts.num_affordable(request) if request.drafts else num_known

    def clipped(self, request: Request, start: int, num_tokens: int) -> int:
        """Return how many of num_tokens tokens from `start` on a chunk takes: it ends where states can be cached.

        0 if they include no such position: the request waits for more of a step's budget.
        """
        end = start + num_tokens
        return min(group.chunk_end(request, start, end) for group in self.manager.groups) - start

    def _admit_waiting(self, chunk: int, batch: list[ScheduledRequest]) -> None:
        if not self.waiting:
            return
        budget = self.budget_left(batch)
        skipped: list[Request] = []
        while self.waiting and budget > 0 and len(self.running) < self.config.max_num_seqs:
            request, num_waiting = self.next_waiting(), len(self.waiting)
            if self.forks is not None and not self.forks.has_seats(request):
                break
            if self.skips(request, skipped):
                self._remove_waiting(request)
                skipped.append(request)
                continue
            num_tokens = self.admit(request, min(budget, chunk), is_first=not batch)
            if num_tokens is NOT_ADMITTED:
                break
            if request.is_loading:  # out of the queue until the external tier has finished
                if len(self.waiting) == num_waiting:
                    raise RuntimeError(f"request {request.request_id} is loading but still in the waiting queue")
                continue
            self._start_running(request)
            batch.append(self.plan(request, num_tokens, RequestStatus.RUNNING))
            budget -= num_tokens + self.drafts.num_inputs
        for request in reversed(skipped):
            self._queue_first(request)

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        """Return True to skip a waiting request in this step and continue with those behind it; here none is skipped.

        skipped: the requests that this step has already skipped. They keep their places. vLLM skips, for example, a
        request for which its connector cannot yet tell how much it holds.
        """
        return False

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit a request only if its whole prompt fits: otherwise it would hold blocks that running requests need.

        Returns how many tokens it computes in this step: 0 if the external tier has to load its KV first, NOT_ADMITTED
        if it does not fit.
        """
        if request.has_blocks:  # the external tier has delivered
            num_left = self.num_admitted(request, request.num_computed_tokens, limit)
            if num_left is NOT_ADMITTED:
                return NOT_ADMITTED
            return num_left if self.manager.allocate(request, request.num_computed_tokens + num_left) else NOT_ADMITTED
        hit = self.manager.find_prefix(request)
        self.manager.note_shared_prefix(request, hit)
        num_external = self.match_external(request, hit)
        num_spare = int(self.config.watermark * self.config.num_blocks) if self.running else 0
        if not self.manager.can_admit(request, hit, num_external, num_spare):
            return NOT_ADMITTED
        num_computed = hit.num_tokens + num_external
        is_loading = num_external > 0 and self.external.is_async
        admitted = 0 if is_loading else self.num_admitted(request, num_computed, limit)
        if admitted is NOT_ADMITTED:
            return NOT_ADMITTED
        num_tokens = admitted
        self._set(request, "is_loading", is_loading)
        if not self.manager.admit(request, hit, num_computed + num_tokens, num_external, num_spare=num_spare):
            return NOT_ADMITTED
        if is_loading:
            self._set(request, "status", RequestStatus.WAITING)  # as ExternalHit says, and before the tier may raise
        if num_external:
            self.external.load(request, hit.num_tokens, num_computed)
        if is_loading:
            self._start_loading(request, num_computed)
        return num_tokens

    def num_admitted(self, request: Request, num_computed: int, limit: int) -> Admission:
        """Return how many tokens an admitted request computes in this step, as far as the step has room.

        NOT_ADMITTED for none, if its chunk would have to end before its first token (see `clipped`).
        """
        num_tokens = min(request.num_tokens - num_computed, limit)
        return self.clipped(request, num_computed, num_tokens) or NOT_ADMITTED if num_tokens > 0 else num_tokens

    def choose_victim(self, request: Request) -> Request:
        """Return the least urgent running request.

        If that is `request` itself, prefer a request that holds blocks but does not run yet, or a beam that waits for
        the others of its search, if only such requests run besides it. Otherwise two requests could preempt each other
        for ever, each loading what the other's preemption dropped, and a beam could preempt itself for ever, while
        those that wait for it hold the blocks that it lacks.
        """
        victim = super().choose_victim(request)
        if victim is not request:
            return victim
        if self.external.loading:
            return next(reversed(self.external.loading))
        held = None if self.beams is None else self.beams.last_held(request)
        return self._last_holder() or held or victim

    def _last_holder(self) -> Request | None:
        """Return the last waiting request whose load has arrived."""
        return next((request for request in reversed(self.waiting) if request.has_blocks), None)

    def _take_back_last(self, preempted: list[int]) -> bool:
        """Preempt a request that holds blocks but computes nothing. Returns False if there is none.

        Otherwise requests that each hold part of their blocks could wait for each other for ever. The victim is the
        youngest beam that waits for the others of its search, if only such beams run; else, if nothing runs, the last
        waiting request whose load has arrived, which keeps its place.
        """
        if self.external.loading or not self.waiting:
            return False
        victim = self.running[-1] if self.running else self._last_holder()
        if victim is None or (self.running and not self._is_held(victim)) or victim is self.next_waiting():
            return False
        self._preempt_for_blocks(victim)
        preempted.append(victim.request_id)
        return True

    def _is_held(self, request: Request) -> bool:
        """Return True for a beam that waits for the others of its search."""
        return self.beams is not None and self.beams.holds(request)

    def match_external(self, request: Request, hit: Hit) -> int:
        """Return how many tokens after a hit the external tier supplies; a failed load is not tried again."""
        return self.external.match(request, hit)

    def choose_saves(self, batch: Sequence[ScheduledRequest]) -> tuple[BlockTransfer, ...]:
        """Return the blocks to save after the forward pass: those that this batch fills and the tier lacks."""
        return self.external.saves(batch, self.requests)

    def longest_chunk(self) -> int:
        """Return the most tokens of one request per step, so that a long prompt does not delay others.

        A request that is alone has no such limit.
        """
        threshold = self.config.long_prefill_token_threshold
        num_requests = len(self.running) + len(self.waiting) + len(self.external.loading)
        return threshold if threshold and num_requests > 1 else self.config.max_num_batched_tokens

    def _start_loading(self, request: Request, num_computed: int) -> None:
        self._remove_waiting(request)
        self.external.wait_for(request, num_computed)

    def take_arrived(self) -> None:
        """Queue requests whose loads are over at the front, in the order in which they began to wait.

        A request whose load failed gives back its blocks, recomputes, and does not ask the tier again.
        """
        arrived = self.external.take_arrived()
        for request, _, _ in reversed(arrived):
            self.requeue(request)
        for request, num_computed, is_there in arrived:  # in this order, as vLLM: the first of equal blocks is served
            self._set(request, "is_loading", False)
            if is_there:
                if BlocksLoaded in self._hooks:
                    loaded = self.external.blocks_of(request, num_computed)
                    self._hooks.emit(BlocksLoaded(request.request_id, tuple(transfer.ids for transfer in loaded)))
                self.book_computed(request, num_computed)
            else:
                if LoadFailed in self._hooks:
                    self._hooks.emit(LoadFailed(request.request_id, self.external.last_failure))
                self.external.failed_requests.add(request.request_id)
                self.take_blocks(request)
