"""An edition's scheduler without a model: it is given a recorded scheduler's inputs, and its events are collected."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from labengine import events as ev
from labengine.config import EngineConfig, SamplingParams
from labengine.core.async_token_budget import AsyncTokenBudgetScheduler
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys, Request, RequestStatus
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import StepPlan
from labengine.record.files.parsing import INT, TEXT
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.pieces import Piece

Ends = Mapping[int, tuple[int, str]]
"""Per finished request: its tokens at the end, and the reason."""

UNKNOWN_TOKEN = 0
"""Stands for a token that the recorded engine did not sample where the edition asks for one: they differ already."""


class Rerun:
    """One scheduler, and the recording of its events. longest: tokens at which each request ends."""

    def __init__(self, config: EngineConfig, parts: Parts, ends: Ends, longest: int) -> None:
        self.name = parts.name
        self.timeline = Timeline(max_events=1 << 62)
        self._config, self._longest = config, longest
        self._hooks, self._journal = Hooks(), Journal()
        self._hooks.subscribe(self._take)
        self._new: list[ev.Event] = []
        self.scheduler = parts.assemble(config, self._hooks, self._journal)
        end_as_recorded(self.scheduler, ends)
        self._unbooked: deque[StepPlan] = deque()

    @property
    def newest_plan(self) -> StepPlan:
        """The newest planned step that is not booked. Raises IndexError if every step is."""
        return self._unbooked[-1]

    def mark(self, event: ev.Event) -> None:
        """Record an event that no part decides."""
        self.timeline.record(event)

    def add(self, event: ev.RequestAdded, extra_keys: ExtraKeys) -> list[ev.Event]:
        """Queue a recorded request."""
        longest = max(1, min(event.max_tokens, self._longest - len(event.token_ids)))
        sampling = SamplingParams(max_tokens=longest)
        tokens, num_groups = list(event.token_ids), len(self._config.groups)
        request = Request(event.request_id, tokens, sampling, 0, num_groups, extra_keys)
        self.scheduler.add(request)
        return [
            replace(one, max_tokens=event.max_tokens) if type(one) is ev.RequestAdded else one for one in self._done()
        ]

    def schedule(self) -> list[ev.Event]:
        """Plan a step, and take it for computed."""
        plan = self.scheduler.schedule()
        self._unbooked.append(plan)
        if plan.scheduled:
            for part in plan.scheduled:
                for group, runs in enumerate(part.slot_runs):
                    self._hooks.emit(ev.SlotsWritten(part.request_id, group, part.start, runs))
            self._hooks.emit(ev.ForwardRan(len(plan.scheduled), plan.num_tokens))
        return self._done()

    def update(self, sampled: Mapping[int, int]) -> list[ev.Event]:
        """Book the oldest planned step. sampled: the recorded token per request."""
        plan = self._unbooked.popleft() if self._unbooked else StepPlan(())
        if isinstance(self.scheduler, AsyncTokenBudgetScheduler):
            tokens = (sampled.get(part.request_id) for part in plan.sampling)
            self.scheduler.book(plan, [() if token is None else (token,) for token in tokens])
        else:
            plan = replace(plan, scheduled=tuple(part for part in plan.scheduled if self._is_open(part.request_id)))
            self.scheduler.update(plan, [sampled.get(part.request_id, UNKNOWN_TOKEN) for part in plan.sampling])
        return self._done()

    def abort(self, request_id: int) -> list[ev.Event]:
        """End a request, if it has not ended."""
        if self._is_open(request_id):
            self.scheduler.abort(self.scheduler.requests[request_id])
        return self._done()

    def reset(self) -> list[ev.Event]:
        """Forget all cached content, if no request holds a block."""
        self.scheduler.manager.reset_prefix_cache()
        return self._done()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self, event: ev.Event) -> None:
        if type(event) is not ev.SharedPrefixFound:  # no stream of vLLM says it
            self._new.append(event)

    def _done(self) -> list[ev.Event]:
        self._journal.commit()
        found, self._new = self._new, []
        return found

    def _is_open(self, request_id: int) -> bool:
        request = self.scheduler.requests.get(request_id)
        return request is not None and request.status is not RequestStatus.FINISHED


def end_as_recorded(scheduler: Scheduler, ends: Ends) -> None:
    """Have a scheduler stop requests where the recorded engine did: the token ids that stop a request are unknown.

    A length is the scheduler's own decision.
    """
    own_reason: Callable[[Request], Any] = scheduler.finish_reason

    def finish_reason(request: Request) -> Any:
        num_tokens, reason = ends.get(request.request_id, (0, ""))
        if num_tokens == request.num_tokens and reason not in ("length", "abort"):
            return reason
        return own_reason(request)

    vars(scheduler)["finish_reason"] = finish_reason


def ends_of(piece: Piece) -> Ends:
    """Return each finished request's number of tokens and its reason."""
    requests = piece.fold.requests
    finished = (event for event in piece.timeline.events() if isinstance(event, ev.RequestFinished))
    return {one.request_id: (len(requests[one.request_id].token_ids), one.reason) for one in finished}


def salts_of(piece: Piece) -> dict[int, ExtraKeys]:
    """Return the cache salt of each request that has one: a digest of it."""
    salts = (one.values for one in piece.inputs if one.word == "salt")
    return {INT(request_id): (("cache_salt", TEXT(digest)),) for request_id, digest, *_ in salts}
