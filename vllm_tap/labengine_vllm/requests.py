"""Observers of requests: added, admitted, scheduled, preempted and finished, and their tokens."""

from __future__ import annotations

from collections import deque
from typing import Any

from labengine_vllm.calls import is_unread, new_links, salt_of, unusual_features
from labengine_vllm.drafts import DraftObserver
from labengine_vllm.engine import Engine
from labengine_vllm.kinds import (
    FORWARD_RAN,
    PREFIX_HIT,
    REQUEST_ADDED,
    REQUEST_FINISHED,
    REQUEST_PREEMPTED,
    REQUEST_RELEASED,
    REQUEST_SCHEDULED,
    TOKEN_SAMPLED,
    TOKENS_COMPUTED,
)
from labengine_vllm.recorder import Recorder
from labengine_vllm.transfers import TransferObserver
from labengine_vllm.wrapping import Entries, Wrapping

FINISH_REASONS = {"FINISHED_STOPPED": "stop", "FINISHED_LENGTH_CAPPED": "length", "FINISHED_ABORTED": "abort"}
"""A finished request's status in vLLM, and RequestFinished's word for it; others are passed on in lower case."""


ENDED_FROM_OUTSIDE = ("FINISHED_ABORTED", "FINISHED_ERROR", "FINISHED_IGNORED")
"""Statuses of finished requests that did not end because of their tokens."""


class RequestObserver:
    """Observes the requests of one scheduler."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._engine, self._scheduler, self._manager = engine, engine.scheduler, engine.manager
        self._recorder = recorder
        self.transfers = TransferObserver(engine, recorder)
        self._drafts = DraftObserver(engine, recorder)
        self._is_prioritized, self._is_async = engine.is_prioritized, engine.is_async
        self._num_groups = len(engine.groups)
        self._unbooked: deque[str] = deque()
        """Requests of the step being booked whose computed tokens were not reported yet."""

    def enter(self, entries: Entries) -> None:
        """Wrap the method that brings requests."""
        entries.enter(self._scheduler, "add_request", self._before_add, self._after_add)

    def watch(self, wrapping: Wrapping) -> None:
        """Wrap methods of the scheduler and the manager."""
        scheduler = self._scheduler
        self.transfers.watch(wrapping)
        self._drafts.watch(wrapping)
        wrapping.watch(self._manager, "allocate_slots", self._before_allocate, self._after_allocate)
        wrapping.watch(scheduler, "_preempt_request", self._before_preempt, self._after_preempt)
        wrapping.watch(scheduler, "_free_request", self._before_free_request, self._after_free_request)
        wrapping.watch(scheduler, "_free_blocks", self._before_finish, self._after_finish)
        wrapping.watch(scheduler, "_update_request_with_output", self._before_tokens, self._after_tokens)

    # -- added and scheduled -------------------------------------------------------------------------------------------

    def _before_add(self, request: Any) -> bool:
        return request.request_id in self._scheduler.requests

    def _after_add(self, is_known: bool, result: None, request: Any) -> None:
        recorder = self._recorder
        if is_known:
            return recorder.lose("a streaming session continued")
        recorder.close_step()
        number = recorder.id_of(request.request_id)
        priority = request.priority if self._is_prioritized else 0
        tokens = recorder.tokens.of(request)
        recorder.rows.append((REQUEST_ADDED, number, tokens, request.max_tokens, 0, None, priority))
        if self._is_prioritized:
            recorder.note("arrival", number, request.arrival_time)
        if salt := salt_of(request):
            recorder.note("salt", number, salt)
        if is_unread(request):
            recorder.note("unread", number)
        if found := unusual_features(request):
            recorder.note("unusual", f"request {request.request_id} has {', '.join(found)}")

    def _before_allocate(self, request: Any, num_new_tokens: int, *_: Any, **kwargs: Any) -> tuple[bool, int, int]:
        """Return True if the request is admitted now, its computed tokens, and where its rows begin."""
        is_new = request.status.name != "RUNNING" and request.num_computed_tokens == 0
        if is_new and (links := new_links(self._engine, request, self._recorder.asked)):
            self._recorder.note("links", self._recorder.id_of(request.request_id), links)
        return is_new, request.num_computed_tokens, len(self._recorder.rows)

    def _after_allocate(
        self,
        found: tuple[bool, int, int],
        allocated: Any,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        *_: Any,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        **__: Any,
    ) -> None:
        if allocated is None:
            return
        is_new, start, begin = found
        number, rows = self._recorder.id_of(request.request_id), self._recorder.rows
        if is_new:
            start = num_new_computed_tokens
            hit = () if new_computed_blocks is None else new_computed_blocks.blocks
            block_ids = [[block.block_id for block in group] for group in hit] or [[] for _ in range(self._num_groups)]
            is_skipped = not start and is_unread(request)
            rows.insert(begin, (PREFIX_HIT, number, start, block_ids, is_skipped))
            if num_external := num_external_computed_tokens:
                hit_row = self.transfers.report_hit(request, start, num_external, is_loading=delay_cache_blocks)
                rows.insert(begin + 1, hit_row)
                start += num_external
        if num_new_tokens:
            num_drafts = self._drafts.report_scheduled(request, start + num_new_tokens)
            is_prefill = _is_prefill(request, start, num_new_tokens - num_drafts)
            rows.append((REQUEST_SCHEDULED, number, start, num_new_tokens, is_prefill, "running", num_drafts))

    def report_forward(self, output: Any) -> None:
        """Report that a scheduled step goes to the model."""
        if output.num_scheduled_tokens:
            self.transfers.report_loaded(output)
            num_requests, num_tokens = len(output.num_scheduled_tokens), output.total_num_scheduled_tokens
            self._recorder.rows.append((FORWARD_RAN, num_requests, num_tokens))

    # -- booked --------------------------------------------------------------------------------------------------------

    def begin_booking(self, output: Any) -> None:
        """Note the requests of a step whose tokens are about to be booked, in its order."""
        self._unbooked = deque(output.num_scheduled_tokens)
        self._drafts.begin_booking(output)

    def report_computed(self, up_to: str | None = None) -> None:
        """Report the computed tokens of the step's requests up to one of them, by default of all.

        A request that was preempted or aborted meanwhile has none, because its output is stale.
        """
        while self._unbooked:
            name = self._unbooked.popleft()
            request = self._scheduler.requests.get(name)
            if name == up_to and self._drafts.num_scheduled(name):
                return  # only accepted ones count as computed
            if request is not None and _is_current(request):
                self._drafts.report_unjudged(request)
                self._report_computed(request, _num_booked(request))
            if name == up_to:
                return

    def _report_computed(self, request: Any, num_tokens: int) -> None:
        self._recorder.rows.append((TOKENS_COMPUTED, self._recorder.ids[request.request_id], num_tokens))

    def _before_tokens(self, request: Any, new_token_ids: list[int], *_: Any, **__: Any) -> bool:
        """Return True if the tokens are accepted drafts and one after them, not yet counted as computed."""
        self.report_computed(request.request_id)
        self._recorder.sampling = request, request.num_tokens
        is_judged = self._drafts.report_judged(request, len(new_token_ids) - 1)
        if is_judged and self._is_async and _is_current(request):  # the last token's KV may be on its way already
            self._report_computed(request, _num_booked(request))
        return is_judged and not self._is_async

    def _after_tokens(self, is_judged: bool, result: Any, request: Any, *_: Any, **__: Any) -> None:
        report_sampled(self._recorder, request)
        self._recorder.sampling = None
        if is_judged:  # a request that ends keeps no drafts after its last token
            self._report_computed(request, min(_num_booked(request), request.num_tokens - 1))

    # -- preempted and finished ----------------------------------------------------------------------------------------

    def _before_preempt(self, *_: Any, drop_stale_output: bool = False, **__: Any) -> None:
        self._recorder.free_reason = "preempted"
        if drop_stale_output:
            self._recorder.note("unusual", "the cache was reset while requests were running")

    def _after_preempt(self, found: None, result: None, request: Any, *_: Any, **__: Any) -> None:
        self._recorder.free_reason = "finished"
        self._recorder.has_loaded.discard(request.request_id)
        self._recorder.rows.append((REQUEST_PREEMPTED, self._recorder.ids[request.request_id]))

    def _before_free_request(self, request: Any, *_: Any, **__: Any) -> None:
        if request.status.name in ENDED_FROM_OUTSIDE:
            self._recorder.note("abort", self._recorder.id_of(request.request_id))

    def _after_free_request(self, found: None, result: Any, request: Any, *_: Any, **__: Any) -> None:
        name = request.request_id
        if name in self._scheduler.requests:
            self._recorder.holding.add(name)
            self._recorder.rows.append((REQUEST_FINISHED, self._recorder.id_of(name), _end_of(request), True))

    def _before_finish(self, request: Any) -> None:
        self._recorder.free_reason = "aborted" if request.status.name == "FINISHED_ABORTED" else "finished"

    def _after_finish(self, found: None, result: None, request: Any) -> None:
        recorder, name = self._recorder, request.request_id
        recorder.free_reason = "finished"
        number = recorder.ids.pop(name)
        if name in recorder.holding:
            recorder.rows.append((REQUEST_RELEASED, number))
        else:
            recorder.rows.append((REQUEST_FINISHED, number, _end_of(request), False))
        recorder.forget_request(name)


def _end_of(request: Any) -> str:
    """Return the reason of a request's end, in RequestFinished's words."""
    status: str = request.status.name
    return FINISH_REASONS.get(status, status.removeprefix("FINISHED_").lower())


def report_sampled(recorder: Recorder, request: Any) -> None:
    """Report the tokens that a request has received since the update of its output began."""
    if recorder.sampling is None or recorder.sampling[0] is not request:
        return
    number, start = recorder.id_of(request.request_id), recorder.sampling[1]
    for position in range(start, request.num_tokens):
        recorder.rows.append((TOKEN_SAMPLED, number, recorder.tokens.at(request, position), position))
    recorder.sampling = request, request.num_tokens


def _is_current(request: Any) -> bool:
    """Return False if the output is of steps before the request's preemption, so that it only adds tokens."""
    return request.status.name == "RUNNING" and not request.num_stale_output_tokens


def _num_booked(request: Any) -> int:
    """Return the number of a request's tokens computed in steps whose output has come."""
    return max(0, int(request.num_computed_tokens - request.num_in_flight_tokens))


def _is_prefill(request: Any, start: int, num_new_tokens: int) -> bool:
    """Return False for a decode: one token besides guesses, after tokens that are computed or in flight."""
    num_outputs = request.num_output_tokens + request.num_output_placeholders
    return not (num_new_tokens == 1 and num_outputs > 0 and start + 1 >= request.num_tokens)
