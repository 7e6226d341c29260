"""All kept requests: the queues that they pass, and the booking of their tokens until they end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from labengine.config import MAX_PRIORITY, EngineConfig, checked_int
from labengine.core.connector import Connector
from labengine.core.external_loads import ExternalLoads
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import UNSAMPLED
from labengine.core.waiting_queue import WaitingQueue
from labengine.events import (
    RequestAdded,
    RequestFinished,
    RequestForgotten,
    RequestPreempted,
    TokenSampled,
    TokensComputed,
)
from labengine.record.hooks import Hooks


class Siblings:
    """Requests that will continue a leader's tokens and wait until it has computed them, in order of arrival.

    They are in no queue, because the leader computes for them.
    """

    def __init__(self, journal: Journal) -> None:
        self._of: dict[int, tuple[Request, ...]] = {}
        self._journal = journal

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, leader: Request) -> tuple[Request, ...]:
        """Return the siblings of a leader."""
        return self._of.get(leader.request_id, ())

    def join(self, sibling: Request, leader: Request) -> None:
        """Make a request wait for the leader's tokens."""
        self._journal.put(self._of, leader.request_id, (*self.of(leader), sibling))

    def take(self, leader: Request) -> tuple[Request, ...]:
        """Return the leader's siblings, which stop waiting."""
        siblings = self.of(leader)
        if siblings:
            self._journal.put(self._of, leader.request_id, None)
        return siblings

    def leave(self, sibling: Request) -> bool:
        """Remove a request; return False if it waits for no leader."""
        for leader_id, siblings in self._of.items():
            if sibling in siblings:
                left = tuple(one for one in siblings if one is not sibling)
                self._journal.put(self._of, leader_id, left or None)
                return True
        return False

    def leader_of(self, request: Request, requests: Mapping[int, Request]) -> Request:
        """Return the leader that a request waits for, else the request itself."""
        for leader_id, siblings in self._of.items():
            if request in siblings:
                return requests[leader_id]
        return request

    def num_beside(self, requests: Mapping[int, Request]) -> int:
        """Return how many siblings wait for one of these requests."""
        return sum(len(siblings) for leader_id, siblings in self._of.items() if leader_id in requests)


class RequestQueues:
    """Requests and their moves, each in the journal. Subclasses make the decisions.

    waiting: new requests at the back, preempted ones at the front. running: in the order of admission.
    requests: every kept request by id. finished: ids of finished requests, oldest first.
    external: blocks to load and save, and the requests that wait for a load.
    siblings: requests that wait for another one's tokens.
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
        self._hooks = hooks
        self._journal = journal

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for groups, settings or an external tier that this scheduling does not support."""

    @property
    def is_idle(self) -> bool:
        """True if no request waits, runs or loads."""
        return not self.waiting and not self.running and not self.external.loading

    def add(self, request: Request) -> None:
        """Queue a request at the back."""
        self.accept(request)
        self._journal.record((self._take_out, request))
        self.waiting.add_request(request)

    def _take_out(self, request: Request) -> None:
        """Undo the queueing of a request, which may have failed: a user's queue may have raised."""
        if request in self.waiting:
            self.waiting.remove_request(request)

    def accept(self, request: Request, leader: Request | None = None) -> None:
        """Keep a new request by its id. leader: the request for whose tokens it waits."""
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
                    request.sampling.beams,
                    tuple((image.start, image.length, image.identifier) for image in request.images),
                )
            )

    def _priority_of(self, request: Request) -> int:
        name = f"{type(self.waiting).__name__}.priority"
        return checked_int(name, self.waiting.priority(request), -MAX_PRIORITY, MAX_PRIORITY)

    def forget_finished(self) -> None:
        """Drop the oldest finished requests until config.keep_finished of them are left. Called between steps."""
        keep = self.config.keep_finished
        while keep is not None and len(self.finished) > keep:
            request_id, _ = self.finished.popitem(last=False)
            del self.requests[request_id]
            self.external.failed_requests.discard(request_id)
            if RequestForgotten in self._hooks:
                self._hooks.emit(RequestForgotten(request_id))

    def requeue(self, request: Request) -> None:
        """Queue a formerly admitted request at the front: it came before all that wait."""
        self._queue_first(request)

    def _queue_first(self, request: Request) -> None:
        self._journal.record((self._take_out, request))
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
        """Append the sampled token. It does not count as computed, because a later step writes its KV."""
        self._journal.record((list.pop, request.token_ids))
        request.token_ids.append(token_id)
        if TokenSampled in self._hooks:
            self._hooks.emit(TokenSampled(request.request_id, token_id, request.num_tokens - 1))

    def finish_reason(self, request: Request) -> FinishReason | None:
        """Return "stop" at an end-of-text token, "length" at max_tokens, None to continue. The last token decides."""
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

    def take_blocks(self, victim: Request) -> None:
        """Free a request's blocks and its KV: it recomputes whatever the cache no longer holds."""
        self.manager.free(victim, "preempted")
        self._set(victim, "num_computed_tokens", 0)
        self._set(victim, "drafts", ())
        self._set(victim, "status", RequestStatus.PREEMPTED)
        if RequestPreempted in self._hooks:
            self._hooks.emit(RequestPreempted(victim.request_id))

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request and free its blocks; their cached content can be hit until they are reused."""
        self.manager.free(request, "aborted" if reason == "abort" else "finished")
        self.end(request, reason)

    def end(self, request: Request, reason: FinishReason, *, holds_blocks: bool = False) -> None:
        """Note a request's end. holds_blocks: True if its blocks are freed only later."""
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

    def _end_running(self, request: Request, reason: FinishReason) -> int:
        self._remove_running(request)
        self.finish(request, reason)
        return request.request_id

    def _set(self, owner: object, name: str, value: object) -> None:
        self._journal.record((setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)
