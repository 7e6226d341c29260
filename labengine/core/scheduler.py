"""What a step computes: admission, budgets, preemption, and the bookkeeping once the step is computed."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.external_loads import ExternalLoads
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.core.unsampled import UNSAMPLED
from labengine.events import (
    RequestAdded,
    RequestFinished,
    RequestForgotten,
    RequestPreempted,
    RequestScheduled,
    TokenSampled,
    TokensComputed,
)
from labengine.hooks import Hooks


class Scheduler:
    """Queues, and what all engines share; a subclass says how a step is filled.

    waiting: new requests at the back, preempted ones at the front. running: in the order of admission.
    requests: every request that is kept, by id. finished: the ids of those that have finished, oldest first.
    external: what is to be loaded and saved, and the requests that wait for it.
    """

    def __init__(
        self, config: EngineConfig, manager: KVCacheManager, connector: Connector | None, hooks: Hooks, journal: Journal
    ) -> None:
        self.refuse_what_it_lacks(config, connector)
        self.config = config
        self.manager = manager
        self.external = ExternalLoads(connector, manager, config.scheduler_block_size, journal)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.requests: dict[int, Request] = {}
        self.finished: OrderedDict[int, None] = OrderedDict()
        self._hooks = hooks
        self._journal = journal

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """ConfigError for groups or an external tier that this way of scheduling does not know."""

    @property
    def is_idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        return not self.waiting and not self.running and not self.external.loading

    def refuse_what_never_fits(self, request: Request) -> None:
        """ConfigError for a request that the whole pool could not hold: it would block everybody behind it."""
        needed, num_blocks = self.manager.num_blocks_needed(request.max_kv_tokens), self.manager.pool.num_usable
        if needed > num_blocks:
            raise ConfigError(
                f"a prompt of {request.num_prompt_tokens} tokens with max_tokens={request.sampling.max_tokens} needs "
                f"{needed} blocks, and the pool has {num_blocks}: shorten the prompt, lower max_tokens, or use "
                f"num_blocks={needed + self.config.num_blocks - num_blocks} or more"
            )

    def add(self, request: Request) -> None:
        """Queue a request at the back."""
        self.requests[request.request_id] = request
        self.waiting.append(request)
        if RequestAdded in self._hooks:
            tokens = tuple(request.token_ids)
            self._hooks.emit(RequestAdded(request.request_id, tokens, request.sampling.max_tokens))

    def abort(self, request: Request) -> None:
        """End a request wherever it stands."""
        if request in self.external.loading:
            self._finish(request, "abort")
            self.external.drop(request)
            return
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self.running.remove(request)
        self._finish(request, "abort")

    def forget_finished(self) -> None:
        """Between steps: let the oldest finished requests go, so that config.keep_finished of them are left."""
        keep = self.config.keep_finished
        while keep is not None and len(self.finished) > keep:
            request_id, _ = self.finished.popitem(last=False)
            del self.requests[request_id]
            self.external.disappointed.discard(request_id)
            if RequestForgotten in self._hooks:
                self._hooks.emit(RequestForgotten(request_id))

    def schedule(self) -> StepPlan:
        """Fill one step: blocks are allocated for what it will compute."""
        raise NotImplementedError

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book what the step computed, request by request: cache, append the token, finish. Returns who finished.

        sampled: one token per request of plan.sampling, in that order; UNSAMPLED ones are filled in later.
        """
        tokens = iter(sampled)
        finished = []
        for scheduled in plan.scheduled:
            request = self.requests[scheduled.request_id]
            self._book_computed(request, scheduled.end)
            if scheduled.samples:
                self._append_token(request, next(tokens))
                reason = self._finish_reason(request)
                if reason is not None:
                    self._remove_running(request)
                    self._finish(request, reason)
                    finished.append(request.request_id)
        return tuple(finished)

    def fill_in(self, plan: StepPlan, sampled: Sequence[int]) -> bool:
        """After an update with UNSAMPLED tokens, which were taken for no eos: put the sampled ones in their places.

        False when the update was wrong, for a token ends its request otherwise than assumed: it has to be taken back.
        """
        for scheduled, token_id in zip(plan.sampling, sampled, strict=True):
            request = self.requests[scheduled.request_id]
            if request.token_ids[-1] is not UNSAMPLED:
                return False
            request.token_ids[-1] = token_id
            if self._finish_reason(request) != request.finish_reason:
                return False
        return True

    def forget_written(self, plan: StepPlan) -> None:
        """After a step was taken back: trust no slot that its forward pass may have written to.

        A block that had been free loses its cached content. One that had belonged to a request preempted in that step
        is that request's again, with another's KV in it: the request is preempted once more, to recompute.
        """
        written = {block_id for request in plan.scheduled for runs in request.slot_runs for block_id, _, _ in runs}
        written.update(load.block_id for load in plan.loads)
        self.manager.pool.evict_cached(sorted(written), "distrusted")
        for request_id in plan.preempted:
            victim = self.requests[request_id]
            if any(written.intersection(table) for table in victim.block_tables):
                self._preempt_anew(victim)

    def _preempt_anew(self, victim: Request) -> None:
        """Wherever the victim stood before the step: among the waiting it keeps its place."""
        if victim in self.waiting:
            self._take_blocks(victim)
            return
        if victim in self.external.loading:  # it had arrived in this very step, and what came is overwritten
            self.external.drop(victim)
        else:
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
            victim = self._preempt_for(request)
            preempted.append(victim.request_id)
            if victim is request:
                return False
        return True

    def _preempt_for(self, request: Request) -> Request:
        """Somebody gives all blocks back, so that others can end: the youngest who runs, perhaps the asker itself."""
        victim = self.running.pop()
        self._journal.record((self.running.append, victim))
        self._preempt(victim)
        return victim

    def _preempt(self, victim: Request) -> None:
        """Take all blocks away; the request waits in front, and recomputes what the cache no longer holds."""
        self._journal.record((self.waiting.popleft,))
        self.waiting.appendleft(victim)
        self._take_blocks(victim)

    def _take_blocks(self, victim: Request) -> None:
        """Preempt a request where it stands."""
        self.manager.free(victim, "preempted")
        self._set(victim, "num_computed_tokens", 0)
        self._set(victim, "status", RequestStatus.PREEMPTED)
        if RequestPreempted in self._hooks:
            self._hooks.emit(RequestPreempted(victim.request_id))

    def _start_running(self, request: Request) -> None:
        """Move the first waiting request to the running ones."""
        self._journal.record((self.waiting.appendleft, request))
        self.waiting.popleft()
        self._journal.record((self.running.pop,))
        self.running.append(request)

    # -- booking a computed step ---------------------------------------------------------------------------------------

    def _book_computed(self, request: Request, num_tokens: int) -> None:
        """The KV of the first num_tokens tokens is there: their full blocks may be named, for others to find."""
        self.manager.register(request, num_tokens, "computed")
        self._set(request, "num_computed_tokens", num_tokens)
        if TokensComputed in self._hooks:
            self._hooks.emit(TokensComputed(request.request_id, num_tokens))

    def _append_token(self, request: Request, token_id: int) -> None:
        """The sampled token comes last; its own KV is written by a later step."""
        self._journal.record((request.token_ids.pop,))
        request.token_ids.append(token_id)
        if TokenSampled in self._hooks:
            self._hooks.emit(TokenSampled(request.request_id, token_id, request.num_tokens - 1))

    def _finish_reason(self, request: Request) -> FinishReason | None:
        """An end-of-text token, or all the tokens that the request may have; None to go on."""
        token_id = request.token_ids[-1]
        if not request.sampling.ignore_eos and token_id is not UNSAMPLED and token_id in self.config.eos_token_ids:
            return "stop"
        return "length" if request.num_generated_tokens == request.sampling.max_tokens else None

    def _remove_running(self, request: Request) -> None:
        index = self.running.index(request)
        self._journal.record((self.running.insert, index, request))
        del self.running[index]

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """Give all blocks back; what the map leads to can be found until the blocks are reused."""
        self.manager.free(request, "aborted" if reason == "abort" else "finished")
        self._set(request, "num_computed_tokens", 0)
        self._set(request, "status", RequestStatus.FINISHED)
        self._set(request, "finish_reason", reason)
        self._journal.record((self.finished.pop, request.request_id, None))
        self.finished[request.request_id] = None
        for name in ("block_hashes", "links", "prefixes"):  # a quarter of what is kept of it, and of no use any more
            self._set(request, name, [])
        if RequestFinished in self._hooks:
            self._hooks.emit(RequestFinished(request.request_id, reason))

    def _set(self, request: Request, name: str, value: object) -> None:
        self._journal.record((setattr, request, name, getattr(request, name)))
        setattr(request, name, value)
