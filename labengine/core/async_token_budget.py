"""vLLM's asynchronous scheduling: a step is planned before the tokens of the step before it are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.external_loads import ExternalLoads
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import UNSAMPLED, ScheduledRequest, StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm_partial_hits import VllmSlidingWindowGroup
from labengine.core.waiting_queue import WaitingQueue
from labengine.events import RequestScheduled, TokensComputed
from labengine.record.hooks import Hooks


class Unbooked(NamedTuple):
    """What is planned of one request, and not booked yet."""

    num_tokens: int = 0
    num_outputs: int = 0
    """Tokens that these steps will sample."""
    num_stale: int = 0
    """Of num_tokens, those planned before the request was preempted: their KV is gone, and only their outputs count."""


class AsyncTokenBudgetScheduler(TokenBudgetScheduler):
    """Plans step k + 1 before step k is booked: its update books the step before.

        schedule 1 | schedule 2, book 1 | schedule 3, book 2 | book 3

    A request's num_computed_tokens counts booked tokens; `next_position` is where its next step begins. A request that
    is preempted while a step of it runs still receives that step's token, and is admitted again only after it.
    Source: vLLM v1's AsyncScheduler (0.32), with two steps in flight.
    """

    def __init__(
        self,
        config: EngineConfig,
        manager: KVCacheManager,
        external: ExternalLoads,
        waiting: WaitingQueue,
        hooks: Hooks,
        journal: Journal,
    ) -> None:
        super().__init__(config, manager, external, waiting, hooks, journal)
        self.unbooked: tuple[StepPlan, Sequence[int]] | None = None
        """The step that ran last, and what it sampled; None when all steps are booked."""
        self._ahead: dict[int, Unbooked] = {}

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for an external tier, whose loads and saves follow booked steps, and for speculation."""
        super().refuse_what_it_lacks(config, connector)
        if connector is not None:
            raise ConfigError("edition vllm-async has no external tier: use edition vllm")
        if config.num_drafts:
            raise ConfigError("edition vllm-async has no speculation: use edition vllm")

    @property
    def is_idle(self) -> bool:
        """True when nothing waits, nothing runs, and every step is booked."""
        return self.unbooked is None and super().is_idle

    def ahead_of(self, request: Request) -> Unbooked:
        """Return what is planned of a request and not booked."""
        return self._ahead.get(request.request_id, Unbooked())

    def next_position(self, request: Request) -> int:
        """Return the first position of a request that no step has been planned for."""
        ahead = self.ahead_of(request)
        return request.num_computed_tokens + ahead.num_tokens - ahead.num_stale

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Plan a step as the synchronous scheduler does, counting the tokens that are on their way."""
        plan = super().schedule()
        for part in plan.scheduled:
            ahead = self._ahead.get(part.request_id, Unbooked())
            counted = ahead._replace(
                num_tokens=ahead.num_tokens + part.num_tokens, num_outputs=ahead.num_outputs + part.samples
            )
            self._set_ahead(part.request_id, counted)
        return plan

    def num_plannable(self, request: Request) -> int:
        """Return how many tokens a step could compute: none once the token under way reaches max_tokens."""
        ahead, start = self.ahead_of(request), self.next_position(request)
        last = request.num_prompt_tokens + request.sampling.max_tokens
        if ahead.num_outputs and start + 2 - ahead.num_outputs >= last:
            return 0
        return request.num_tokens + ahead.num_outputs - start

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        """Return True while a preempted request's last token is on its way: it must not be sampled twice."""
        return self.ahead_of(request).num_stale > 0

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Add a request that has its blocks to the step. Its last token may not be booked yet."""
        start, num_outputs = self.next_position(request), self.ahead_of(request).num_outputs
        end = start + num_tokens
        num_answered = request.num_generated_tokens + num_outputs
        is_decode = num_tokens == 1 and end >= request.num_tokens and num_answered > 0
        self._set(request, "status", status)
        if RequestScheduled in self._hooks:
            self._hooks.emit(RequestScheduled(request.request_id, start, num_tokens, not is_decode, status.value))
        return ScheduledRequest(
            request_id=request.request_id,
            token_ids=self._token_ids(request, start, end),
            start=start,
            block_tables=tuple(tuple(table) for table in request.block_tables),
            slot_runs=tuple(self.manager.slot_runs(request, start, end, group) for group in self.manager.groups),
            is_prefill=not is_decode,
            samples=end == request.num_tokens + num_outputs,
            sampling=request.sampling,
            seed=request.seed,
        )

    def _token_ids(self, request: Request, start: int, end: int) -> tuple[int, ...]:
        """Return tokens for the model: the scheduler has not seen the last one, and the model has."""
        known = request.token_ids[start:end]
        return (*known, *[self._unbooked_token(request)] * (end - start - len(known)))

    def _unbooked_token(self, request: Request) -> int:
        plan, sampled = self.unbooked or (StepPlan(()), ())
        tokens = zip(plan.sampling, sampled, strict=False)
        return next((token for part, token in tokens if part.request_id == request.request_id), UNSAMPLED)

    def take_blocks(self, victim: Request) -> None:
        """Free a request's blocks. The steps that are under way still deliver their tokens, and nothing else."""
        super().take_blocks(victim)
        num_tokens = self.ahead_of(victim).num_tokens
        self._set_ahead(victim.request_id, Unbooked(num_tokens, 0, num_tokens))

    # -- booking -------------------------------------------------------------------------------------------------------

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Keep this step's tokens, and book the step before."""
        before = self.unbooked
        self._journal.record((setattr, self, "unbooked", before))
        self.unbooked = (plan, tuple(sampled)) if plan.scheduled else None
        return self.book(*before) if before else ()

    def book(self, plan: StepPlan, sampled: Sequence[int | None]) -> tuple[int, ...]:
        """Book a computed step, request by request; a request that has ended meanwhile is passed over.

        sampled: one token per request of plan.sampling; None where the model gave none.
        """
        tokens, finished = iter(sampled), []
        for part in plan.scheduled:
            token_id = next(tokens) if part.samples else None
            request = self.requests.get(part.request_id)
            if request is None or request.status is RequestStatus.FINISHED:
                continue
            self._book_tokens(request, part.num_tokens)
            if token_id is not None and (reason := self._book_output(request, token_id)):
                finished.append(self._end(request, reason))
        return tuple(finished)

    def book_computed(self, request: Request, num_tokens: int) -> None:
        """Note that the first num_tokens tokens have KV. Their full blocks are registered with the next token."""
        self._set(request, "num_computed_tokens", num_tokens)
        if TokensComputed in self._hooks:
            self._hooks.emit(TokensComputed(request.request_id, num_tokens))

    def _book_tokens(self, request: Request, num_tokens: int) -> None:
        ahead = self.ahead_of(request)
        num_left = ahead.num_tokens - num_tokens
        if ahead.num_stale:
            self._set_ahead(
                request.request_id, ahead._replace(num_tokens=num_left, num_stale=ahead.num_stale - num_tokens)
            )
            return
        self._set_ahead(request.request_id, ahead._replace(num_tokens=num_left))
        self.book_computed(request, request.num_computed_tokens + num_tokens)

    def _book_output(self, request: Request, token_id: int) -> FinishReason | None:
        """Append a token, and register the full blocks of the tokens before it."""
        ahead = self.ahead_of(request)
        self.append_token(request, token_id)
        if request.status is RequestStatus.RUNNING:
            num_outputs = ahead.num_outputs - 1
            self._set_ahead(request.request_id, ahead._replace(num_outputs=num_outputs))
            self.manager.register(request, self.next_position(request) - num_outputs, "computed")
        return self.finish_reason(request)

    def _end(self, request: Request, reason: FinishReason) -> int:
        if request in self.waiting:
            self._remove_waiting(request)
        else:
            self._remove_running(request)
        self.finish(request, reason)
        return request.request_id

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request and free its blocks; what is under way of it is passed over."""
        super().finish(request, reason)
        self._journal.record((self._ahead.__setitem__, request.request_id, self.ahead_of(request)))
        self._ahead.pop(request.request_id, None)

    def _set_ahead(self, request_id: int, ahead: Unbooked) -> None:
        self._journal.record((self._ahead.__setitem__, request_id, self._ahead.get(request_id, Unbooked())))
        self._ahead[request_id] = ahead


class AsyncSlidingWindowGroup(VllmSlidingWindowGroup):
    """A sliding window whose blocks are dropped one step later, when the step that reads them is booked."""

    num_steps_in_flight = 2
