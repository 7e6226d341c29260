"""The scheduler: admission, budgets, preemption, and the bookkeeping after a computed step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from labengine.config import MAX_PRIORITY, ConfigError, EngineConfig, checked_int, is_single_int, shown
from labengine.core.beams import Likeliest
from labengine.core.connector import Connector
from labengine.core.external_loads import ExternalLoads
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.part_methods import class_name, definers
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.siblings import Siblings
from labengine.core.step_plan import UNSAMPLED, ScheduledRequest, SlotRun, StepPlan, scheduled_request
from labengine.core.waiting_queue import WaitingQueue
from labengine.events import (
    DraftsJudged,
    RequestAdded,
    RequestFinished,
    RequestForgotten,
    RequestPreempted,
    RequestScheduled,
    TokenSampled,
    TokensComputed,
    TokensDrafted,
)
from labengine.record.hooks import Hooks
from labengine.record.wording import group_suffix

NOT_ADMITTED: Final = None
Admission = int | None
"""The tokens that an admitted request computes in this step (0 while its KV is loaded first), or NOT_ADMITTED."""


class Scheduler:
    """Queues, and the rules that all engines share; a subclass decides how a step is filled.

    waiting: new requests at the back, preempted ones at the front. running: in the order of admission.
    requests: every kept request by id. finished: the ids of those that have finished, oldest first.
    external: blocks to load and save, and the requests that wait for a load.
    siblings: the requests that wait for another one's tokens.
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
        self.refuse_what_it_lacks(config, external.connector)
        self.config = config
        self.manager = manager
        self.external = external
        self.siblings = Siblings(journal)
        self.waiting = waiting
        self.running: list[Request] = []
        self.requests: dict[int, Request] = {}
        self.finished: OrderedDict[int, None] = OrderedDict()
        self.chosen: dict[int, int] = {}
        """Per beam, the token that its search has chosen in the newest update."""
        self._hooks = hooks
        self._journal = journal

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for groups, settings or an external tier that this scheduling does not support."""

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        return not self.waiting and not self.running and not self.external.loading

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError for a request that the whole pool could not hold: it would block all behind it for ever."""
        needed, num_blocks = self.manager.num_blocks_needed(request.max_kv_tokens), self.manager.pool.num_usable
        if needed > num_blocks:
            raise ConfigError(
                f"a prompt of {request.num_prompt_tokens} tokens with max_tokens={request.sampling.max_tokens} needs "
                f"{needed} blocks, and the pool has {num_blocks}: shorten the prompt, lower max_tokens, or use "
                f"num_blocks={needed + self.config.num_blocks - num_blocks} or more"
            )

    def add(self, request: Request) -> None:
        """Queue a request at the back."""
        self.accept(request)
        self._journal.record((self.waiting.remove_request, request))
        self.waiting.add_request(request)

    def accept(self, request: Request, leader: Request | None = None) -> None:
        """Keep a new request by its id. leader: the one for whose tokens it waits."""
        request.priority = self._priority_of(request)
        self._journal.record((self.requests.pop, request.request_id))
        self.requests[request.request_id] = request
        if RequestAdded in self._hooks:
            tokens, leader_id = tuple(request.token_ids), None if leader is None else leader.request_id
            self._hooks.emit(
                RequestAdded(
                    request.request_id,
                    tokens,
                    request.sampling.max_tokens,
                    request.num_generated_tokens,
                    leader_id,
                    request.priority,
                )
            )

    def _priority_of(self, request: Request) -> int:
        name = f"{type(self.waiting).__name__}.priority"
        return checked_int(name, self.waiting.priority(request), -MAX_PRIORITY, MAX_PRIORITY)

    def abort(self, request: Request) -> None:
        """End a request, whether it waits, runs or loads. Those that wait for its tokens go on without it."""
        place = None
        if request in self.external.loading:
            self.finish(request, "abort")
            self.external.drop(request)
        else:
            if request in self.waiting:
                place = self._remove_waiting(request)
            elif not self.siblings.leave(request):
                self._remove_running(request)
            self.finish(request, "abort")
        if self.siblings:
            self._follow(request, place)

    def ends_with(self, request: Request) -> tuple[Request, ...]:
        """Return the requests that an abort of this one ends, in the order in which they are aborted: it alone."""
        return (request,)

    def forget_finished(self) -> None:
        """Drop the oldest finished requests until config.keep_finished of them are left. Called between steps."""
        keep = self.config.keep_finished
        while keep is not None and len(self.finished) > keep:
            request_id, _ = self.finished.popitem(last=False)
            del self.requests[request_id]
            self.external.failed_requests.discard(request_id)
            if RequestForgotten in self._hooks:
                self._hooks.emit(RequestForgotten(request_id))

    # -- forks ---------------------------------------------------------------------------------------------------------

    def refuse_forks(self, num_answers: int = 1) -> None:
        """Raise ConfigError for more answers to one prompt than could run together; a subclass may refuse all forks."""
        if num_answers > self.config.max_num_seqs:
            raise ConfigError(
                f"n={num_answers}: the answers to one prompt run together, and max_num_seqs is "
                f"{self.config.max_num_seqs}: raise it, or add the prompt several times"
            )

    def refuse_beams(self, num_beams: int) -> None:
        """Raise ConfigError: only a BeamScheduler searches with beams."""
        raise ConfigError("this edition has no beam search: use edition 'labengine', or leave beams out")

    def num_likeliest(self, plan: StepPlan) -> int:
        """Return how many of the likeliest tokens `note_likeliest` needs per beam of a step; 0 without beams."""
        return 0

    def note_likeliest(self, plan: StepPlan, found: Sequence[Likeliest]) -> None:
        """Keep what may follow the step's beams, until `update`. found: one entry per beam of plan.beams."""

    def join(self, request: Request, leader: Request) -> None:
        """Accept a request with the tokens of another one: it waits, and forks from it once these are computed.

        So the prompt is computed once, and all take their first token from the same logits.
        """
        request.arrival = leader.arrival
        self.accept(request, leader)
        self.siblings.join(request, leader)

    def branch(self, request: Request, parent: Request) -> None:
        """Accept a request that goes on where another one stands, its newest token perhaps replaced.

        It shares the blocks of a parent that decodes, and waits for the tokens of another; without a seat, or with
        other tokens than it could wait for, it is queued, and shares what the cache has when it is admitted.
        """
        is_decoding = parent in self.running and parent.num_computed_tokens == parent.num_tokens - 1
        leader = self.siblings.leader_of(parent, self.requests)
        if is_decoding and self.has_seats(request):
            self.accept(request)
            self.fork(request, parent)
        elif not is_decoding and request.token_ids == parent.token_ids and self._can_join(request, leader):
            self.join(request, leader)
        else:
            self.add(request)

    def _can_join(self, request: Request, leader: Request) -> bool:
        num_beside = len(self.siblings.of(leader))
        return self.has_seats(request) if leader in self.running else num_beside + 1 < self.config.max_num_seqs

    def fork(self, request: Request, parent: Request) -> None:
        """Start a request on the blocks of another one, by reference: it runs at once, as the youngest."""
        self.manager.fork(request, parent)
        self._set(request, "status", RequestStatus.RUNNING)
        self._journal.record((self.running.pop,))
        self.running.append(request)

    def has_seats(self, request: Request) -> bool:
        """Return True while max_num_seqs leaves room for a request and those that will fork from it.

        They run at once then: nobody may have taken their places meanwhile.
        """
        num_running = len(self.running)
        if self.siblings:
            running = {one.request_id: one for one in self.running}
            num_running += self.siblings.num_beside(running) + len(self.siblings.of(request))
        return num_running < self.config.max_num_seqs

    def _follow(self, leader: Request, place: int | None) -> None:
        """Queue the first of a leader's siblings in its place, or at the front; the others wait for this one."""
        first, *others = self.siblings.take(leader) or (None,)
        if first is not None:
            if place is None:
                self._queue_first(first)
            else:
                self._journal.record((self.waiting.remove_request, first))
                self.waiting.put_back_request(first, place)
            for other in others:
                self.siblings.join(other, first)

    def forks_of(self, batch: Sequence[ScheduledRequest]) -> tuple[tuple[int, ScheduledRequest], ...]:
        """Return the requests that fork once this batch is computed: a leader's last token is in it."""
        if not self.siblings:
            return ()
        return tuple(
            (part.request_id, _without_tokens(part, sibling))
            for part in batch
            if part.samples
            for sibling in self.siblings.of(self.requests[part.request_id])
        )

    def schedule(self) -> StepPlan:
        """Plan one step, and allocate blocks for the tokens that it computes."""
        raise NotImplementedError

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book a computed step, request by request: cache, append the token, finish. Returns the ids of finished
        requests.

        sampled: one token per row of plan.rows, in that order; UNSAMPLED ones are filled in later.
        """
        tokens = iter(sampled)
        finished: list[int] = []
        for scheduled in plan.scheduled:
            request = self.requests[scheduled.request_id]
            if scheduled.num_drafts:
                reason = self.judge_drafts(request, scheduled, list(islice(tokens, 1 + scheduled.num_drafts)))
                if reason is not None:
                    finished.append(self._end_running(request, reason))
                continue
            self.book_computed(request, scheduled.start + len(scheduled.token_ids))
            if scheduled.samples:
                if plan.forks:  # before the request may end, and give its blocks back
                    for sibling in self.siblings.take(request):
                        self.fork(sibling, request)
                reason = self._take_token(request, next(tokens))
                if reason is not None:
                    finished.append(self._end_running(request, reason))
        for _, fork in plan.forks:
            request = self.requests[fork.request_id]
            if (reason := self._take_token(request, next(tokens))) is not None:
                finished.append(self._end_running(request, reason))
        return tuple(finished)

    def _take_token(self, request: Request, token_id: int) -> FinishReason | None:
        """Append a sampled token; return why the request ends by it."""
        self.append_token(request, token_id)
        return self.finish_reason(request)

    def _end_running(self, request: Request, reason: FinishReason) -> int:
        self._remove_running(request)
        self.finish(request, reason)
        return request.request_id

    # -- drafts --------------------------------------------------------------------------------------------------------

    def num_wanted_drafts(self, request: Request) -> int:
        """Return how many drafts a request can use: a step gives one token more than it accepts, up to max_tokens."""
        if request.status is not RequestStatus.RUNNING or request.num_computed_tokens != request.num_tokens - 1:
            return 0
        if request.sampling.beams > 1:  # its search chooses among beams, and not by the likeliest token alone
            return 0
        return min(self.config.num_drafts, request.sampling.max_tokens - request.num_generated_tokens - 1)

    def set_drafts(self, request: Request, drafts: tuple[int, ...]) -> None:
        """Keep guesses of a request's next tokens; () drops them."""
        if drafts == request.drafts:
            return
        self._set(request, "drafts", drafts)
        if TokensDrafted in self._hooks:
            self._hooks.emit(TokensDrafted(request.request_id, drafts))

    def judge_drafts(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        """Append what the model sampled up to the first token that its draft does not have; return why it ends there.

        sampled: its own token for each draft, and one behind the last. KV counts for accepted drafts only. That of the
        others stays in the blocks as garbage, and a later step overwrites it before any token attends to it.
        """
        num_accepted = self.num_accepted(part.token_ids[-part.num_drafts :], sampled)
        self._set(request, "drafts", ())
        if DraftsJudged in self._hooks:
            self._hooks.emit(DraftsJudged(request.request_id, num_accepted, part.num_drafts - num_accepted))
        for token_id in sampled[: num_accepted + 1]:
            self.append_token(request, token_id)
            if (reason := self.finish_reason(request)) is not None:
                break
        self.book_accepted(request, request.num_tokens - 1)
        return reason

    def num_accepted(self, drafts: Sequence[int], sampled: Sequence[int]) -> int:
        """Return how many drafts are accepted: those before the first that is not the token that the model samples.

        So the tokens are those that would be sampled without drafts. For a guess of one token that is the rejection
        sampling of Leviathan et al. (2023, appendix A.1): the model samples draft x with its own probability p(x), else
        another token with p / (1 - p(x)), and each is what a plain step would have drawn at that position.
        """
        pairs = zip(drafts, sampled, strict=False)
        return next((index for index, (draft, token) in enumerate(pairs) if draft != token), len(drafts))

    def book_accepted(self, request: Request, num_tokens: int) -> None:
        """Note that the first num_tokens tokens have KV, accepted drafts included, and register their full blocks."""
        self.book_computed(request, num_tokens)

    def fill_in(self, plan: StepPlan, sampled: Sequence[int]) -> bool:
        """Put sampled tokens in the places of UNSAMPLED ones, after an update that assumed that none is an eos.

        Returns False when a token ends its request otherwise than assumed: the update then has to be rolled back.
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

        A block that had been free loses its cached content. A block of a request that the step had preempted belongs to
        that request again, but holds another's KV: the request is preempted once more, to recompute. So is one that has
        its shared block again in place of a copy, if that block was given away after the copy; and one whose state was
        overwritten in place: the state before cannot be brought back.
        """
        written = plan.written_blocks()
        written.update(load.block_id for load in plan.loads)
        written.update(copy.into_block_id for copy in plan.copies)
        self.manager.pool.evict_cached(sorted(written), "distrusted")
        written -= self._written_in_place(plan)
        suspects = *plan.preempted, *(copy.request_id for copy in plan.copies), *self._with_states(plan)
        for request_id in dict.fromkeys(suspects):
            holder = self.requests[request_id]
            if any(written.intersection(table) for table in holder.block_tables):
                self._preempt_anew(holder)

    def _written_in_place(self, plan: StepPlan) -> set[int]:
        """Return the blocks that a step wrote for requests that hold them now: their computed tokens are intact."""
        return {
            block_id
            for part in plan.scheduled
            for group, runs in zip(self.manager.groups, part.slot_runs, strict=True)
            for block_id, _, _ in runs
            if not group.keeps_states and block_id in self.requests[part.request_id].block_tables[group.index]
        }

    def _with_states(self, plan: StepPlan) -> list[int]:
        """Return the requests of a step that have states."""
        has_states = any(group.keeps_states for group in self.manager.groups)
        return [part.request_id for part in plan.scheduled] if has_states else []

    def _preempt_anew(self, victim: Request) -> None:
        """Preempt a request of a rolled-back step, whether it runs, waits or loads."""
        if victim in self.external.loading:  # its load arrived in that very step, and its blocks are overwritten
            self.external.drop(victim)
            self.external.cancel(victim)
            self.requeue(victim)
            self.take_blocks(victim)
        else:
            self.preempt(victim)

    # -- filling a step ------------------------------------------------------------------------------------------------

    def next_waiting(self) -> Request:
        """Return the waiting request to admit next: the first, so that no request is overtaken for ever.

        Called while at least one request waits; must return one of `waiting`.
        """
        return self.waiting[0]

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Give a waiting request blocks; return how many tokens (at most limit) it computes in this step.

        0: it is admitted, and its KV is loaded first. NOT_ADMITTED, and nothing changes, when it has to go on waiting.
        is_first: True while the step's batch is empty.
        """
        raise NotImplementedError

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Add a request that has its blocks to the step: its next num_tokens tokens and the slots of their KV."""
        start, token_ids = request.num_computed_tokens, request.token_ids
        end = start + num_tokens
        is_last = end == len(token_ids)
        is_decode = num_tokens == 1 and is_last and end > request.num_prompt_tokens
        drafts: tuple[int, ...] = ()
        if request.drafts:  # of a request that decodes; those that have no room in this step are dropped
            drafts = request.drafts[: num_tokens - 1]
            is_last, is_decode = True, request.num_generated_tokens > 0
            if len(drafts) < len(request.drafts):
                self._set(request, "drafts", drafts)
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
            for group in self.manager.groups:
                slot_runs.append(self.manager.slot_runs(request, start, end, group))
            if type(self.manager).slot_runs is not KVCacheManager.slot_runs:
                self._check_slot_runs(slot_runs)
        except IndexError:
            self._refuse_short_table(request, end)
            raise
        return scheduled_request(
            request.request_id,
            (token_ids[start],) if num_tokens == 1 else (*token_ids[start:end], *drafts),
            start,
            request.planned_tables,
            tuple(slot_runs),
            not is_decode,
            is_last,
            request.sampling,
            request.seed,
            len(drafts),
        )

    def _check_slot_runs(self, slot_runs: Sequence[Any]) -> None:
        """Refuse an override's result that is no list of runs: each of its readers would fail elsewhere, or never end.

        Whether they are the right slots is for the rule `slot` to say.
        """
        for group, runs in zip(self.manager.groups, slot_runs, strict=True):
            is_list = isinstance(runs, (list, tuple))
            if not is_list or not all(_is_run(run, group.block_size) for run in runs):
                owner, size = class_name(definers(type(self.manager), "slot_runs")[0]), group.block_size
                raise ValueError(
                    f"{owner}.slot_runs has to return a tuple of runs (block_id, offset, length) of 0 to {size} tokens "
                    f"each, in whole numbers; it returned {shown(runs)}"
                )

    def _refuse_short_table(self, request: Request, end: int) -> None:
        """Raise NotGrantedError if a table of the request ends before token `end`."""
        for group in self.manager.groups:
            num_slots = len(request.block_tables[group.index]) * group.block_size
            if num_slots < end:
                raise NotGrantedError(
                    request.request_id,
                    f"request {request.request_id} is scheduled up to token {end}, and the blocks of its "
                    f"table{group_suffix(group.index)} hold {num_slots}",
                ) from None

    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        """Allocate blocks for a running request's first num_tokens tokens, preempting requests until they are free.

        A victim that was in the step's batch leaves it: its blocks go to another request. Returns False when the
        request itself was preempted.
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
        """Return the request that gives its blocks back because `request` lacks one; it may be `request` itself.

        The least urgent running one: the others get on, so every request ends.
        """
        return self.waiting.least_urgent(self.running)

    def _preempt_for_blocks(self, victim: Request) -> None:
        """Preempt a request whose blocks are needed.

        Raises RuntimeError if it keeps them: the caller would never end; TypeError for what is no request.
        """
        if not isinstance(victim, Request):
            method = f"{type(self).__name__}.choose_victim"
            raise TypeError(f"{method} has to return a request, one of self.running; it returned {shown(victim)}")
        num_held = victim.num_table_entries
        self.preempt(victim)
        if victim.num_table_entries >= num_held:
            raise RuntimeError(
                f"request {victim.request_id} still holds its {num_held} block table entries: preempting it frees none"
            )

    def preempt(self, victim: Request) -> None:
        """Free all blocks of a request. A running or loading one is queued again; a waiting one keeps its place.

        Raises RuntimeError for a request that holds no blocks: the caller would never end.
        """
        if not victim.has_blocks:
            raise RuntimeError(f"request {victim.request_id} holds no blocks: preempting it frees none")
        if victim in self.external.loading:
            self.external.give_up(victim)
            self._set(victim, "is_loading", False)
            self.requeue(victim)
        elif victim in self.running:
            self._remove_running(victim)
            self.requeue(victim)
        self.take_blocks(victim)

    def requeue(self, request: Request) -> None:
        """Queue a request that was admitted before at the front: it came before all that wait."""
        self._queue_first(request)

    def take_blocks(self, victim: Request) -> None:
        """Free a request's blocks. No KV is kept: it recomputes whatever the cache no longer holds."""
        self.manager.free(victim, "preempted")
        self._set(victim, "num_computed_tokens", 0)
        self._set(victim, "drafts", ())
        self._set(victim, "status", RequestStatus.PREEMPTED)
        if RequestPreempted in self._hooks:
            self._hooks.emit(RequestPreempted(victim.request_id))

    def _queue_first(self, request: Request) -> None:
        self._journal.record((self.waiting.remove_request, request))
        self.waiting.prepend_request(request)

    def _start_running(self, request: Request) -> None:
        """Move a waiting request to the running ones."""
        self._remove_waiting(request)
        self._journal.record((self.running.pop,))
        self.running.append(request)

    # -- booking a computed step ---------------------------------------------------------------------------------------

    def book_computed(self, request: Request, num_tokens: int) -> None:
        """Note that the first num_tokens tokens have KV, and register their full blocks.

        Other requests can now read them.
        """
        self.manager.register(request, num_tokens, "computed")
        self.count_computed(request, num_tokens)

    def count_computed(self, request: Request, num_tokens: int) -> None:
        """Count the first num_tokens tokens as computed."""
        self._journal.record((setattr, request, "num_computed_tokens", request.num_computed_tokens))
        request.num_computed_tokens = num_tokens
        if TokensComputed in self._hooks:
            self._hooks.emit(TokensComputed(request.request_id, num_tokens))

    def append_token(self, request: Request, token_id: int) -> None:
        """Append the sampled token; it counts as not computed, for a later step writes its KV."""
        self._journal.record((list.pop, request.token_ids))
        request.token_ids.append(token_id)
        if TokenSampled in self._hooks:
            self._hooks.emit(TokenSampled(request.request_id, token_id, request.num_tokens - 1))

    def finish_reason(self, request: Request) -> FinishReason | None:
        """Return "stop" at an end-of-text token, "length" at max_tokens, None to go on. The last token decides."""
        token_id = request.token_ids[-1]
        if not request.sampling.ignore_eos and token_id is not UNSAMPLED and token_id in self.config.eos_token_ids:
            return "stop"
        num_generated = len(request.token_ids) - request.num_prompt_tokens
        return "length" if num_generated == request.sampling.max_tokens else None

    def _remove_waiting(self, request: Request) -> int:
        place = self.waiting.remove_request(request)
        self._journal.record((self.waiting.put_back_request, request, place))
        return place

    def _remove_running(self, request: Request) -> None:
        index = self.running.index(request)
        self._journal.record((self.running.insert, index, request))
        del self.running[index]

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request and free its blocks; their cached content can be hit until they are reused."""
        self.manager.free(request, "aborted" if reason == "abort" else "finished")
        self.end(request, reason)

    def end(self, request: Request, reason: FinishReason, *, holds_blocks: bool = False) -> None:
        """Note a request's end. holds_blocks: True where its blocks are freed only later."""
        self._set(request, "num_computed_tokens", 0)
        self._set(request, "drafts", ())
        self._set(request, "status", RequestStatus.FINISHED)
        self._set(request, "finish_reason", reason)
        self._journal.record((self.finished.pop, request.request_id, None))
        self.finished[request.request_id] = None
        for name in ("block_hashes", "links", "prefixes"):  # a quarter of a kept request's memory, and no longer needed
            self._set(request, name, [])
        request.planned_tables = ()
        if RequestFinished in self._hooks:
            self._hooks.emit(RequestFinished(request.request_id, reason, holds_blocks))

    def _set(self, request: Request, name: str, value: object) -> None:
        self._journal.record((setattr, request, name, getattr(request, name)))
        setattr(request, name, value)


def _is_run(run: Any, block_size: int) -> bool:
    is_triple = isinstance(run, (list, tuple)) and len(run) == 3 and all(map(is_single_int, run))
    return is_triple and 0 <= run[2] <= block_size


def _without_tokens(part: ScheduledRequest, sibling: Request) -> ScheduledRequest:
    """Return a sibling's share of the step in which its leader's last token is computed: it samples, and no more."""
    runs: tuple[tuple[SlotRun, ...], ...] = ((),) * len(part.slot_runs)
    ids = sibling.request_id, (), part.end, part.block_tables, runs
    return ScheduledRequest(*ids, part.is_prefill, True, sibling.sampling, sibling.seed)
