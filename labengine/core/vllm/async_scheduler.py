"""vLLM's asynchronous scheduling: a step is planned before the tokens of the step before it are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.core.vllm.scheduler import VllmScheduler
from labengine.events import UNKNOWN_TOKEN, DraftsJudged, RequestScheduled


class Unbooked(NamedTuple):
    """The planned but unbooked tokens of one request."""

    num_tokens: int = 0
    num_outputs: int = 0
    """Tokens that the planned steps will sample, if all their drafts are accepted."""
    num_stale: int = 0
    """Of num_tokens, those planned before a preemption: their KV is gone, and only their outputs count."""


class AsyncTokenBudgetScheduler(VllmScheduler):
    """Plans step k + 1 before step k is booked, at most one step ahead.

        schedule 1 | schedule 2, book 1 | schedule 3, book 2 | book 3

    A request's num_computed_tokens counts booked tokens; its next step begins at `next_position`, if all drafts in
    flight are accepted. The drafts are placeholders, which the worker fills in between two steps. A request that is
    preempted while one of its steps runs still receives that step's tokens, and is admitted again only afterwards.
    Source: vLLM v1's AsyncScheduler (0.32), with two steps in flight.
    """

    plans_ahead = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.unbooked: tuple[StepPlan, Sequence[int]] | None = None
        """The step that ran last and its sampled tokens, if `update` books; None when all steps are booked."""
        self._ahead: dict[int, Unbooked] = {}

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs, and every step is booked."""
        return self.unbooked is None and super().is_idle

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for an external tier, whose loads and saves follow booked steps."""
        super().refuse_what_it_lacks(config, connector)
        if connector is not None:
            raise ConfigError("edition 'vllm-async' has no external tier: use edition 'vllm'")

    def restore_unbooked(self, request: Request, unbooked: Any) -> None:
        """Restore a request's Unbooked, when the lab begins in the middle of a recording."""
        self._set_ahead(request.request_id, unbooked)

    def ahead_of(self, request: Request) -> Unbooked:
        """Return a request's planned but unbooked tokens."""
        return self._ahead.get(request.request_id, Unbooked())

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Plan a step as the synchronous scheduler does, counting the tokens in flight."""
        plan = super().schedule()
        for part in plan.scheduled:
            ahead = self._ahead.get(part.request_id, Unbooked())
            num_outputs = 1 + part.num_drafts if part.samples else 0
            counted = ahead._replace(
                num_tokens=ahead.num_tokens + part.num_tokens, num_outputs=ahead.num_outputs + num_outputs
            )
            self._set_ahead(part.request_id, counted)
            num_next = self.config.num_drafts if part.samples else 0
            self.drafts.keep(self.requests[part.request_id], (UNKNOWN_TOKEN,) * num_next)
        return plan

    def num_known(self, request: Request) -> int:
        """Return how many tokens a request has, including those in flight; all drafts count as accepted."""
        return request.num_tokens + self.ahead_of(request).num_outputs

    def num_plannable(self, request: Request) -> int:
        """Return how many tokens a step could compute: none once the tokens in flight are sure to reach max_tokens."""
        num_outputs, start = self.ahead_of(request).num_outputs, request.next_position
        last = request.num_prompt_tokens + request.sampling.max_tokens
        if num_outputs and start + 2 - num_outputs >= last:
            return 0
        return super().num_plannable(request)

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        """Return True while a preempted request's last token is in flight: it must not be sampled twice.

        With two steps in flight the token is booked before the next step is planned, except after a rollback (see
        `forget_written`).
        """
        return self.ahead_of(request).num_stale > 0

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Add a request with its blocks to the step. Its last tokens may not be booked yet."""
        start, num_known = request.next_position, self.num_known(request)
        end = start + num_tokens
        num_drafts, samples = max(0, end - num_known), end >= num_known
        if num_drafts > len(request.drafts):  # padded
            self.drafts.keep(request, (UNKNOWN_TOKEN,) * num_drafts)
        is_decode = samples and num_tokens == 1 + num_drafts and num_known > request.num_prompt_tokens
        self._set(request, "status", status)
        self._set(request, "is_prefilling", not samples)
        self._set(request, "drafts", request.drafts[:num_drafts])  # those without room in this step are dropped
        if RequestScheduled in self._hooks:
            self._hooks.emit(
                RequestScheduled(request.request_id, start, num_tokens, not is_decode, status.value, num_drafts)
            )
        part = ScheduledRequest(
            request_id=request.request_id,
            token_ids=self._token_ids(request, start, end),
            start=start,
            block_tables=tuple(tuple(table) for table in request.block_tables),
            slot_runs=tuple(self.manager.slot_runs(request, start, end, group) for group in self.manager.groups),
            is_prefill=not is_decode,
            samples=samples,
            sampling=request.sampling,
            seed=request.seed,
            num_drafts=num_drafts,
        )
        return self._with_checkpoint(request, part)

    def _token_ids(self, request: Request, start: int, end: int) -> tuple[int, ...]:
        """Return the tokens of positions [start, end), UNKNOWN_TOKEN for those known only to the worker."""
        known = request.token_ids[start:end]
        return (*known, *[self._unbooked_token(request)] * (end - start - len(known)))

    def _unbooked_token(self, request: Request) -> int:
        plan, sampled = self.unbooked or (StepPlan(()), ())
        tokens = zip(plan.sampling, sampled, strict=False)
        return next((token for part, token in tokens if part.request_id == request.request_id), UNKNOWN_TOKEN)

    def take_blocks(self, victim: Request) -> None:
        """Free a request's blocks. Steps in flight still deliver their tokens, but no KV."""
        super().take_blocks(victim)
        num_tokens = self.ahead_of(victim).num_tokens
        self._set_ahead(victim.request_id, Unbooked(num_tokens, 0, num_tokens))

    # -- booking -------------------------------------------------------------------------------------------------------

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Keep this step's tokens and book the step before, for a model that runs steps at once, without drafts.

        Raises ConfigError with drafts: the positions of a step's tokens are known only when the step before is booked.
        """
        if self.config.num_drafts:
            raise ConfigError("edition 'vllm-async' cannot run a model with speculation: use edition 'vllm'")
        before = self.unbooked
        self._journal.record((setattr, self, "unbooked", before))
        self.unbooked = (plan, tuple(sampled)) if plan.scheduled else None
        return self.book(before[0], [(token_id,) for token_id in before[1]]) if before else ()

    def book(self, plan: StepPlan, sampled: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Book a computed step, request by request, passing over requests that have ended meanwhile.

        sampled: per request of plan.sampling, its accepted drafts and one token after them; empty if the model gave
        none. Tokens after a request's end are left out. Returns the ids of finished requests.
        """
        outputs, finished = iter(sampled), []
        for part in plan.scheduled:
            token_ids = next(outputs) if part.samples else ()
            request = self.requests.get(part.request_id)
            if request is None or request.status is RequestStatus.FINISHED:
                continue
            num_rejected = part.num_drafts - len(token_ids) + 1 if part.num_drafts and token_ids else 0
            if part.num_drafts and token_ids:
                self._note_judged(request, part.num_drafts, num_rejected)
            self._book_tokens(request, part.num_tokens, num_rejected)
            if token_ids and (reason := self._book_outputs(request, token_ids)):
                finished.append(self._end(request, reason))
        return tuple(finished)

    def book_computed(self, request: Request, num_tokens: int) -> None:
        """Note that the first num_tokens tokens have KV. The next token registers their full blocks."""
        self.count_computed(request, num_tokens)

    def _note_judged(self, request: Request, num_drafts: int, num_rejected: int) -> None:
        """Emit the verdict on a step's drafts; the request's present drafts are for the next step."""
        waiting = request.drafts
        self.drafts.keep(request, (UNKNOWN_TOKEN,) * num_drafts)
        self._set(request, "drafts", ())
        if DraftsJudged in self._hooks:
            self._hooks.emit(DraftsJudged(request.request_id, num_drafts - num_rejected, num_rejected))
        self.drafts.keep(request, waiting)

    def _book_tokens(self, request: Request, num_tokens: int, num_rejected: int) -> None:
        ahead = self.ahead_of(request)
        num_left = ahead.num_tokens - num_tokens
        if ahead.num_stale:
            self._set_ahead(
                request.request_id, ahead._replace(num_tokens=num_left, num_stale=ahead.num_stale - num_tokens)
            )
            return
        num_outputs = ahead.num_outputs - num_rejected
        self._set_ahead(request.request_id, ahead._replace(num_tokens=num_left, num_outputs=num_outputs))
        self.book_computed(request, request.num_computed_tokens + num_tokens - num_rejected)

    def _book_outputs(self, request: Request, token_ids: Sequence[int]) -> FinishReason | None:
        """Append tokens up to the request's end, and register full blocks of the tokens before the last one."""
        before, reason = request.num_tokens, None
        for token_id in token_ids:
            self.append_token(request, token_id)
            if (reason := self.finish_reason(request)) is not None:
                break
        if request.status is RequestStatus.RUNNING:
            ahead = self.ahead_of(request)
            num_outputs = ahead.num_outputs - request.num_tokens + before
            self._set_ahead(request.request_id, ahead._replace(num_outputs=num_outputs))
            self.manager.register(request, request.next_position - num_outputs, "computed")
        return reason

    def _end(self, request: Request, reason: FinishReason) -> int:
        if request in self.waiting:
            self._remove_waiting(request)
        else:
            self._remove_running(request)
        self.finish(request, reason)
        return request.request_id

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request and free its blocks; its tokens in flight are passed over."""
        super().finish(request, reason)
        self._journal.record((self._ahead.__setitem__, request.request_id, self.ahead_of(request)))
        self._ahead.pop(request.request_id, None)
        self._set(request, "num_unbooked_tokens", 0)

    def _set_ahead(self, request_id: int, ahead: Unbooked) -> None:
        self._journal.record((self._ahead.__setitem__, request_id, self._ahead.get(request_id, Unbooked())))
        self._ahead[request_id] = ahead
        self._set(self.requests[request_id], "num_unbooked_tokens", ahead.num_tokens - ahead.num_stale)
