"""What a step computes: admission, budgets, preemption, and the bookkeeping once the step is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from labengine.config import ConfigError, EngineConfig
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.events import (
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    TokenSampled,
    TokensComputed,
)
from labengine.hooks import Hooks


class Scheduler:
    """Queues, and what all engines share; a subclass says how a step is filled.

    waiting: new requests at the back, preempted ones at the front. running: in the order of admission.
    """

    def __init__(self, config: EngineConfig, manager: KVCacheManager, hooks: Hooks, journal: Journal) -> None:
        self.config = config
        self.manager = manager
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._requests: dict[int, Request] = {}
        self._hooks = hooks
        self._journal = journal

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        return not self.waiting and not self.running

    def refuse_what_never_fits(self, request: Request) -> None:
        """ConfigError for a request that the whole pool could not hold: it would block everybody behind it."""
        needed, num_blocks = self.manager.num_blocks_needed(request.max_kv_tokens), self.config.num_blocks
        if needed > num_blocks:
            raise ConfigError(
                f"a prompt of {request.num_prompt_tokens} tokens with max_tokens={request.sampling.max_tokens} needs "
                f"{needed} blocks, and the pool has {num_blocks}: shorten the prompt, lower max_tokens, or use "
                f"num_blocks={needed} or more"
            )

    def add(self, request: Request) -> None:
        """Queue a request at the back."""
        self._requests[request.request_id] = request
        self.waiting.append(request)
        if RequestAdded in self._hooks:
            tokens = tuple(request.token_ids)
            self._hooks.emit(RequestAdded(request.request_id, tokens, request.sampling.max_tokens))

    def abort(self, request: Request) -> None:
        """End a request wherever it stands."""
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
        self._finish(request, "abort")

    def schedule(self) -> StepPlan:
        """Fill one step: blocks are allocated for what it will compute."""
        raise NotImplementedError

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book what the step computed, request by request: cache, append the token, finish. Returns who finished.

        sampled: one token per request of plan.sampling, in that order.
        """
        tokens = iter(sampled)
        finished = []
        for scheduled in plan.scheduled:
            request = self._requests[scheduled.request_id]
            self._book_computed(request, scheduled.end)
            if scheduled.samples:
                self._append_token(request, next(tokens))
                reason = self._finish_reason(request)
                if reason is not None:
                    self._remove_running(request)
                    self._finish(request, reason)
                    finished.append(request.request_id)
        return tuple(finished)

    def forget_written(self, plan: StepPlan) -> None:
        """After a step was taken back: trust no slot that its forward pass may have written to.

        A block that had been free loses its cached content. One that had belonged to a request preempted in that step
        is that request's again, with another's KV in it: the request is preempted once more, to recompute.
        """
        written = {block_id for request in plan.scheduled for runs in request.slot_runs for block_id, _, _ in runs}
        self.manager.pool.evict_cached(sorted(written))
        for request_id in plan.preempted:
            victim = self._requests[request_id]
            if any(written.intersection(table) for table in victim.block_tables):
                self._remove_running(victim)
                self._preempt(victim)

    # -- filling a step ------------------------------------------------------------------------------------------------

    def _plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Book a request that has its blocks into the step."""
        start, end = request.num_computed_tokens, request.num_computed_tokens + num_tokens
        is_decode = num_tokens == 1 and end == request.num_tokens and request.num_generated_tokens > 0
        self._set(request, "status", status)
        if RequestScheduled in self._hooks:
            self._hooks.emit(RequestScheduled(request.request_id, start, num_tokens, not is_decode, status.value))
        return ScheduledRequest(
            request_id=request.request_id,
            token_ids=tuple(request.token_ids[start:end]),
            start=start,
            block_tables=tuple(tuple(table) for table in request.block_tables),
            slot_runs=tuple(self.manager.slot_runs(request, start, end, group) for group in self.manager.groups),
            is_prefill=not is_decode,
            samples=end == request.num_tokens,
            sampling=request.sampling,
            seed=request.seed,
        )

    def _allocate_or_preempt(self, request: Request, num_tokens: int, preempted: list[int]) -> bool:
        """Blocks for a running request's first num_tokens tokens, preempting the youngest running request as needed.

        False when that was the request itself.
        """
        while not self.manager.allocate(request, num_tokens):
            victim = self.running.pop()
            self._journal.record(self.running.append, victim)
            self._preempt(victim)
            preempted.append(victim.request_id)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request) -> None:
        """Take all blocks away; the request waits in front, and recomputes what the cache no longer holds."""
        self.manager.free(victim, "preempted")
        self._set(victim, "num_computed_tokens", 0)
        self._set(victim, "status", RequestStatus.PREEMPTED)
        self._journal.record(self.waiting.popleft)
        self.waiting.appendleft(victim)
        if RequestPreempted in self._hooks:
            self._hooks.emit(RequestPreempted(victim.request_id))

    def _start_running(self, request: Request) -> None:
        """Move the first waiting request to the running ones."""
        self._journal.record(self.waiting.appendleft, request)
        self.waiting.popleft()
        self._journal.record(self.running.pop)
        self.running.append(request)

    # -- booking a computed step ---------------------------------------------------------------------------------------

    def _book_computed(self, request: Request, num_tokens: int) -> None:
        self.manager.register(request, num_tokens, "computed")
        self._set(request, "num_computed_tokens", num_tokens)
        if TokensComputed in self._hooks:
            self._hooks.emit(TokensComputed(request.request_id, num_tokens))

    def _append_token(self, request: Request, token_id: int) -> None:
        self._journal.record(request.token_ids.pop)
        request.token_ids.append(token_id)
        if TokenSampled in self._hooks:
            self._hooks.emit(TokenSampled(request.request_id, token_id, request.num_tokens - 1))

    def _finish_reason(self, request: Request) -> FinishReason | None:
        if not request.sampling.ignore_eos and request.token_ids[-1] in self.config.eos_token_ids:
            return "stop"
        return "length" if request.num_generated_tokens == request.sampling.max_tokens else None

    def _remove_running(self, request: Request) -> None:
        index = self.running.index(request)
        self._journal.record(self.running.insert, index, request)
        del self.running[index]

    def _finish(self, request: Request, reason: FinishReason) -> None:
        self.manager.free(request, "aborted" if reason == "abort" else "finished")
        self._set(request, "num_computed_tokens", 0)
        self._set(request, "status", RequestStatus.FINISHED)
        self._set(request, "finish_reason", reason)
        if RequestFinished in self._hooks:
            self._hooks.emit(RequestFinished(request.request_id, reason))

    def _set(self, request: Request, name: str, value: object) -> None:
        self._journal.record(setattr, request, name, getattr(request, name))
        setattr(request, name, value)


class PrefillFirstScheduler(Scheduler):
    """A step is all prefill or all decode; prefill goes first, and only its first request may be cut into chunks.

    Source: nano-vLLM's scheduler (bb823b3). max_num_seqs limits a step, not the running requests.
    """

    def schedule(self) -> StepPlan:
        """Prefill while anybody waits who fits, else decode."""
        return self._schedule_prefill() or self._schedule_decode()

    def _schedule_prefill(self) -> StepPlan | None:
        budget = self.config.max_num_batched_tokens
        batch: list[ScheduledRequest] = []
        while self.waiting and budget and len(batch) < self.config.max_num_seqs:
            scheduled = self._prefill(self.waiting[0], budget, is_first=not batch)
            if scheduled is None:
                break
            batch.append(scheduled)
            budget -= scheduled.num_tokens
        return StepPlan(tuple(batch)) if batch else None

    def _prefill(self, request: Request, budget: int, *, is_first: bool) -> ScheduledRequest | None:
        hit = None if request.has_blocks else self.manager.find_prefix(request)
        if hit is not None and not self.manager.can_admit(request, hit):
            return None
        missing = request.num_tokens - (request.num_computed_tokens if hit is None else hit.num_tokens)
        if missing > budget and not is_first:
            return None
        if hit is not None:
            self.manager.admit(request, hit, request.num_tokens)
        if missing > budget:
            return self._plan(request, budget, RequestStatus.WAITING)
        self._start_running(request)
        return self._plan(request, missing, RequestStatus.RUNNING)

    def _schedule_decode(self) -> StepPlan:
        batch: list[ScheduledRequest] = []
        preempted: list[int] = []
        while len(batch) < min(len(self.running), self.config.max_num_seqs):
            request = self.running[len(batch)]
            if self._allocate_or_preempt(request, request.num_tokens, preempted):
                batch.append(self._plan(request, 1, RequestStatus.RUNNING))
        return StepPlan(tuple(batch), tuple(preempted))


class TokenBudgetScheduler(Scheduler):
    """One budget of tokens per step, for running requests first and then for waiting ones; any prefill may be chunked.

    A request is admitted only while its whole prompt fits, and not in a step that preempted. max_num_seqs limits the
    running requests. Source: vLLM v1's scheduler (0.32, synchronous, scheduler_reserve_full_isl).
    """

    def schedule(self) -> StepPlan:
        """Running requests in order, then waiting ones."""
        preempted: list[int] = []
        batch = self._schedule_running(preempted)
        if not preempted:
            self._admit_waiting(batch)
        return StepPlan(tuple(batch), tuple(preempted))

    def _schedule_running(self, preempted: list[int]) -> list[ScheduledRequest]:
        budget = self.config.max_num_batched_tokens
        batch: list[ScheduledRequest] = []
        while len(batch) < len(self.running) and budget:
            request = self.running[len(batch)]
            num_tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            if not self._allocate_or_preempt(request, request.num_computed_tokens + num_tokens, preempted):
                break
            batch.append(self._plan(request, num_tokens, RequestStatus.RUNNING))
            budget -= num_tokens
        return batch

    def _admit_waiting(self, batch: list[ScheduledRequest]) -> None:
        budget = self.config.max_num_batched_tokens - sum(scheduled.num_tokens for scheduled in batch)
        while self.waiting and budget and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            hit = self.manager.find_prefix(request)
            if not self.manager.can_admit(request, hit):
                return
            num_tokens = min(request.num_tokens - hit.num_tokens, budget)
            self.manager.admit(request, hit, hit.num_tokens + num_tokens)
            self._start_running(request)
            batch.append(self._plan(request, num_tokens, RequestStatus.RUNNING))
            budget -= num_tokens
