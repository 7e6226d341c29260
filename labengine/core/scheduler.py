"""The scheduler: admission, budgets, preemption, and the results of computed and failed steps."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from labengine.config import ConfigError
from labengine.core.beam_searches import BeamSearches
from labengine.core.drafts import Drafts
from labengine.core.forks import Forks
from labengine.core.hand_over import HandOver
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.request_queues import RequestQueues
from labengine.core.step_plan import UNSAMPLED, ScheduledRequest, StepPlan, scheduled_request
from labengine.events import RequestScheduled
from labengine.record.wording import group_suffix

NOT_ADMITTED: Final = None
Admission = int | None
"""The tokens that an admitted request computes in this step (0 while its KV is loaded first), or NOT_ADMITTED."""


class Scheduler(RequestQueues):
    """The rules that all engines share. A subclass decides how a step is filled."""

    capabilities: ClassVar[tuple[str, ...]] = ()
    """Those of "forks", "beams" and "hand_over" that this scheduling supports; an edition's parts provide them."""

    plans_ahead = False
    """True if a step is planned before the previous one is booked."""

    cuts_prompts = True
    """False if prompts are never split into chunks, so that a step's budget limits their length."""

    reserves_whole_prompts = False
    """True if a request gets the blocks of its whole prompt at once, even if a step computes only part of it."""

    drafts: Drafts

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.forks: Forks | None = None
        self.beams: BeamSearches | None = None
        self.hand_over: HandOver | None = None

    def refuse_forks(self, num_answers: int = 1) -> None:
        """Raise ConfigError if there are no forks, or for more answers to one prompt than can run together."""
        if self.forks is None:
            raise ConfigError(
                "this edition has no forks (nano-vLLM has no n): add the prompt several times, or use edition "
                "'labengine' or 'vllm'"
            )
        self.forks.refuse_too_many(num_answers)

    def refuse_beams(self, num_beams: int) -> None:
        """Raise ConfigError if there is no beam search, or for more beams than can run together."""
        if self.beams is None:
            raise ConfigError("this edition has no beam search: omit beams, or use edition 'labengine'")
        self.beams.refuse_too_many(num_beams)

    def budget_left(self, batch: Sequence[ScheduledRequest]) -> int:
        """Return how many tokens a step with this batch can compute for one more request."""
        return self.config.max_num_batched_tokens - sum(part.num_tokens for part in batch)

    def serves_all(self, batch: Sequence[ScheduledRequest], running: Collection[int]) -> bool:
        """Return True if a step with this batch has to serve each running request that fits. running: their ids."""
        return not self.plans_ahead  # a request may have all its tokens in planned steps, and nothing to compute

    def waits_for_modules(self, request: Request, budget: int) -> bool:
        """Return True while a chunk could only end among tokens that a drafter's modules read ahead; here never."""
        return False

    def beside_queues(self) -> Hashable:
        """Return the facts that later steps depend on and neither requests nor queues show; None for none."""
        return None

    def restore_unbooked(self, request: Request, unbooked: Any) -> None:
        """Restore a request's planned but unbooked tokens; none if each step is booked before the next."""

    def book(self, plan: StepPlan, sampled: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Book an earlier step, if steps are planned ahead. sampled: each request's tokens."""
        raise NotImplementedError(f"{type(self).__name__} can only commit the newest step, with update()")

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError for a request too large for the whole pool: it would block all behind it for ever."""
        needed, num_blocks = self.manager.num_blocks_needed(request.max_kv_tokens), self.manager.pool.num_usable
        if needed > num_blocks:
            raise ConfigError(
                f"a prompt of {request.num_prompt_tokens} tokens with max_tokens={request.sampling.max_tokens} needs "
                f"{needed} blocks, but the pool has {num_blocks}: shorten the prompt, lower max_tokens, or use "
                f"num_blocks={needed + self.config.num_blocks - num_blocks} or more"
            )

    def join(self, request: Request, leader: Request) -> None:
        """Accept one more answer to a leader's prompt.

        Without forks it is queued like any other: it hits the full blocks of the prompt and recomputes the tail.
        """
        request.arrival = leader.arrival
        if self.forks is None:
            self.add(request)
        else:
            self.forks.join(request, leader)

    def branch(self, request: Request, parent: Request) -> None:
        """Accept a request that continues another one's text. Without forks it is queued like any other request."""
        if self.forks is None:
            self.add(request)
        else:
            self.forks.branch(request, parent)

    def abort(self, request: Request) -> None:
        """End a request, whether it waits, runs or loads. Requests that wait for its tokens continue without it."""
        place = None
        if request in self.external.loading:
            self.finish(request, "abort")
            self.external.drop(request)
        else:
            place = self._leave(request)
            self.finish(request, "abort")
        if self.forks is not None:
            self.forks.follow(request, place)

    def _leave(self, request: Request) -> int | None:
        """Remove a request from where it waits or runs; return its place in the waiting queue, None if not there."""
        if self.beams is not None and self.beams.leave(request):
            return None
        if request in self.waiting:
            return self._remove_waiting(request)
        if not self.siblings.leave(request):
            self._remove_running(request)
        return None

    def ends_with(self, request: Request) -> tuple[Request, ...]:
        """Return the requests that aborting this one ends, in that order: it alone, or all beams of its search."""
        return (request,) if self.beams is None or request.sampling.beams == 1 else self.beams.all_of(request)

    def schedule(self) -> StepPlan:
        """Plan one step and allocate blocks for the tokens that it computes."""
        raise NotImplementedError

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book a computed step, request by request: cache, append the token, finish.

        sampled: one token per row of plan.rows, in that order; UNSAMPLED ones are filled in later. Returns the ids of
        finished requests.
        """
        tokens = iter(sampled)
        self.drafts.accepted.clear()
        finished: list[int] = []
        for scheduled in plan.scheduled:
            request = self.requests[scheduled.request_id]
            if scheduled.num_drafts:
                reason = self.drafts.judge(request, scheduled, list(islice(tokens, 1 + scheduled.num_drafts)))
                if reason is not None:
                    finished.append(self._end_running(request, reason))
                continue
            self.book_computed(request, scheduled.start + len(scheduled.token_ids))
            if scheduled.samples:
                if plan.forks and self.forks is not None:  # before the request may end and give back its blocks
                    self.forks.start(request)
                reason = self._take_token(request, next(tokens))
                if reason is not None:
                    finished.append(self._end_running(request, reason))
        for _, fork in plan.forks:
            request = self.requests[fork.request_id]
            if (reason := self._take_token(request, next(tokens))) is not None:
                finished.append(self._end_running(request, reason))
        if self.beams is not None:
            finished += self.beams.decide_due()
        return tuple(finished)

    def _take_token(self, request: Request, token_id: int) -> FinishReason | None:
        """Append a sampled token, except to a beam, whose search chooses; return the reason if it ends the request."""
        if request.sampling.beams > 1:
            return None
        self.append_token(request, token_id)
        return self.finish_reason(request)

    def fill_in(self, plan: StepPlan, sampled: Sequence[int]) -> bool:
        """Replace UNSAMPLED tokens with sampled ones, after an update that assumed that none is an end-of-text token.

        Returns False if a token ends its request unexpectedly: the update then has to be rolled back.
        """
        for scheduled, token_id in zip(plan.sampling, sampled, strict=True):
            request = self.requests[scheduled.request_id]
            if request.token_ids[-1] is not UNSAMPLED:
                return False
            request.token_ids[-1] = token_id
            if self.finish_reason(request) != request.finish_reason:
                return False
        return True

    def forget_written(self, plan: StepPlan) -> None:
        """Distrust, after a rollback, every slot that the step's forward pass may have written to.

        A formerly free block loses its cached content. A block that the step had taken from a request, by a preemption,
        a copy or a merge, belongs to that request again, but may hold another's KV; if the request's next token attends
        to it, the request is preempted to recompute. The same goes for a request whose state was overwritten in place,
        because the former state cannot be restored.
        """
        written = plan.written_blocks()
        written.update(load.block_id for load in plan.loads)
        written.update(copy.into_block_id for copy in plan.copies)
        self.manager.pool.evict_cached(sorted(written), "distrusted")
        written -= self._written_in_place(plan)
        for holder in reversed([*self.running, *self.external.loading, *self.waiting]):
            if self._attends_to(holder, written):
                self._preempt_distrusted(holder, written)

    def _written_in_place(self, plan: StepPlan) -> set[int]:
        """Return the blocks that a step wrote for their present holders, whose computed tokens are intact."""
        return {
            block_id
            for part in plan.scheduled
            for group, runs in zip(self.manager.groups, part.slot_runs, strict=True)
            for block_id, _, _ in runs
            if not group.keeps_states and block_id in self.requests[part.request_id].block_tables[group.index]
        }

    def _attends_to(self, request: Request, block_ids: set[int]) -> bool:
        """Return True if the next token of a request attends to one of these blocks."""
        num_tokens, tables = request.num_computed_tokens, request.block_tables
        return any(
            not block_ids.isdisjoint(tables[group.index][group.num_skipped_tokens(num_tokens) // group.block_size :])
            for group in self.manager.groups
        )

    def _preempt_distrusted(self, victim: Request, overwritten: Collection[int]) -> None:
        """Preempt a request after a rollback, whether it runs, waits or loads.

        overwritten: the blocks that may hold another's KV.
        """
        if victim in self.external.loading:  # its load arrived in that very step, but its blocks were overwritten
            self.external.drop(victim)
            self.external.cancel(victim)
            self.requeue(victim)
            self.take_blocks(victim)
        else:
            self.preempt(victim)

    # -- filling a step ------------------------------------------------------------------------------------------------

    def next_waiting(self) -> Request:
        """Return the waiting request to admit next: the first, so that no request is overtaken for ever.

        Called only while a request waits; must return one of `waiting`.
        """
        return self.waiting[0]

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Give a waiting request blocks; return how many tokens (at most limit) it computes in this step.

        0 if it is admitted and its KV is loaded first; NOT_ADMITTED, with nothing changed, if it has to keep waiting.
        is_first: True while the step's batch is empty.
        """
        raise NotImplementedError

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Add a request that has its blocks to the step: its next num_tokens tokens and the slots of their KV."""
        manager, start, token_ids = self.manager, request.num_computed_tokens, request.token_ids
        end = start + num_tokens
        is_last = end == len(token_ids)
        is_decode = num_tokens == 1 and is_last and end > request.num_prompt_tokens
        if drafts := request.drafts:  # only of decoding requests
            is_last, is_decode = True, request.num_generated_tokens > 0
            drafts = self.drafts.fitting(request, num_tokens)
        if request.status is not status:
            self._set(request, "status", status)
        if RequestScheduled in self._hooks:
            self._hooks.emit(
                RequestScheduled(request.request_id, start, num_tokens, not is_decode, status.value, len(drafts))
            )
        tables, slot_runs = tuple(map(tuple, request.block_tables)), []
        if tables != request.planned_tables:
            request.planned_tables = tables
        try:
            for group in manager.groups:
                slot_runs.append(manager.slot_runs(request, start, end, group))
        except IndexError:
            self._refuse_short_table(request, end)
            raise
        return scheduled_request(
            request_id=request.request_id,
            token_ids=(token_ids[start],) if num_tokens == 1 else (*token_ids[start:end], *drafts),
            start=start,
            block_tables=request.planned_tables,
            slot_runs=tuple(slot_runs),
            is_prefill=not is_decode,
            samples=is_last,
            sampling=request.sampling,
            seed=request.seed,
            num_drafts=len(drafts),
        )

    def _refuse_short_table(self, request: Request, end: int) -> None:
        """Raise NotGrantedError if a table of the request ends before token `end`."""
        for group in self.manager.groups:
            num_slots = len(request.block_tables[group.index]) * group.block_size
            if num_slots < end:
                raise NotGrantedError(
                    request.request_id,
                    f"request {request.request_id} is scheduled up to token {end}, but the blocks in its "
                    f"table{group_suffix(group.index)} hold only {num_slots}",
                ) from None

    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        """Allocate blocks for a running request's first num_tokens tokens, preempting requests until they are free.

        A victim leaves the step's batch, because its blocks go to another request. Returns False if the request itself
        was preempted.
        """
        while not self.manager.allocate(request, num_tokens):
            victim = self.choose_victim(request)
            self._preempt_for_blocks(victim)
            preempted.append(victim.request_id)
            batch[:] = [scheduled for scheduled in batch if scheduled.request_id != victim.request_id]
            if victim is request:
                return False
        return True

    def choose_victim(self, request: Request) -> Request:
        """Return the request to preempt because `request` lacks a block; it may be `request` itself.

        It is the least urgent running one: the others advance, so every request ends.
        """
        return self.waiting.least_urgent(self.running)

    def _preempt_for_blocks(self, victim: Request) -> None:
        """Preempt a request whose blocks are needed.

        Raises RuntimeError if it keeps them: the caller would loop for ever.
        """
        num_held = victim.num_table_entries
        self.preempt(victim)
        if victim.num_table_entries >= num_held:
            raise RuntimeError(
                f"request {victim.request_id} still holds its {num_held} block table entries: preempting it freed none"
            )

    def preempt(self, victim: Request) -> None:
        """Free all blocks of a request. A running or loading one is queued again, and a waiting one keeps its place.

        A computed beam waits for its search outside the queues. Raises RuntimeError for a request without blocks: the
        caller would loop for ever.
        """
        if not victim.has_blocks:
            raise RuntimeError(f"request {victim.request_id} holds no blocks: preempting it frees none")
        if victim in self.external.loading:
            self.external.give_up(victim)
            self._set(victim, "is_loading", False)
            self.requeue(victim)
        elif victim in self.running:
            self._remove_running(victim)
            if self.beams is None or not self.beams.park(victim):
                self.requeue(victim)
        self.take_blocks(victim)
