"""An edition's scheduler without a model, which gets a recorded scheduler's inputs and collects its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from labengine import events as ev
from labengine.config import EngineConfig, SamplingParams
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys, Request, RequestStatus
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.record.files.parsing import INT
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.conformance.settings import CannotJudgeError
from labengine.vllm.stream.late_start import OpenRequest
from labengine.vllm.stream.pieces import Piece
from labengine.vllm.stream.written import says_states

Ends = Mapping[int, tuple[int, str]]
"""Per finished request: its final number of tokens, and the reason."""

UNSAID = (ev.SharedPrefixFound,)
"""Events of an edition that no stream of vLLM contains."""

UNSAID_IF_ASYNC = (*UNSAID, ev.TokensDrafted)
"""The same for an asynchronous scheduler, whose drafts are placeholders."""

UNKNOWN_TOKEN = 0
"""Stands for a token that the edition asks for but the recorded engine did not sample: the two already differ."""


class Rerun:
    """One scheduler, and the recording of its events. longest: tokens at which each request ends."""

    def __init__(self, config: EngineConfig, parts: Parts, ends: Ends, longest: int) -> None:
        self.name = parts.name
        self.timeline = Timeline(max_events=1 << 62)
        self._config, self._longest = config, longest
        self._hooks, self._journal = Hooks(), Journal()
        self._hooks.subscribe(self._take)
        self._unsaid = UNSAID_IF_ASYNC if parts.scheduler.plans_ahead else UNSAID
        self._accepted = deque[int]()
        self._new: list[ev.Event] = []
        self._copied: dict[tuple[int, int], ev.StateCopied] = {}
        """Per request and group: the copy of its state in the current step, which a recording tells only then."""
        self.scheduler = parts.assemble(config, self._hooks, self._journal)
        end_as_recorded(self.scheduler, ends)
        drafts = vars(self.scheduler.drafts)
        drafts["num_accepted"] = lambda drafts, sampled: self._accepted.popleft()  # the worker's decision
        self._unbooked: deque[StepPlan] = deque()

    @property
    def newest_plan(self) -> StepPlan:
        """The newest planned step that is not booked. Raises IndexError without any."""
        return self._unbooked[-1]

    def mark(self, event: ev.Event) -> None:
        """Record an event that is not decided by a part."""
        self.timeline.record(event)

    def request(self, event: ev.RequestAdded, extra_keys: ExtraKeys, arrival: int, *, is_unread: bool) -> Request:
        """Return a recorded request, to be added.

        arrival: its place among requests of equal priority. is_unread: it skips the cache.
        """
        longest = max(1, min(event.max_tokens, self._longest - len(event.token_ids)))
        sampling = SamplingParams(max_tokens=longest, skip_reading_prefix_cache=is_unread)
        tokens, num_groups = list(event.token_ids), len(self._config.groups)
        request = Request(event.request_id, tokens, sampling, 0, num_groups, extra_keys, event.priority)
        request.arrival = arrival
        return request

    def add(self, request: Request, max_tokens: int) -> list[ev.Event]:
        """Queue a request. max_tokens: the client's limit, without the engine's."""
        self.scheduler.add(request)
        return [replace(one, max_tokens=max_tokens) if type(one) is ev.RequestAdded else one for one in self._done()]

    def schedule(self) -> list[ev.Event]:
        """Plan a step, and count it as computed."""
        self._copied.clear()
        plan = self.scheduler.schedule()
        self._unbooked.append(plan)
        if plan.scheduled:
            for part in plan.scheduled:
                self._new += self._written(part)
            self._new.append(ev.ForwardRan(len(plan.scheduled), plan.num_tokens))
        return self._done()

    def begin_earlier(self, scheduled: Iterable[tuple[int, int]]) -> None:
        """Let the next booking be of a step scheduled before the recording began. scheduled: (request, tokens) each."""
        is_open = ((self.scheduler.requests[i], number) for i, number in scheduled if self._is_open(i))
        self._unbooked.appendleft(StepPlan(tuple(map(self._part_of_earlier, is_open))))

    def update(self, sampled: Mapping[int, Sequence[int]], accepted: Mapping[int, int]) -> list[ev.Event]:
        """Book the oldest planned step. sampled: per request its recorded tokens; accepted: its accepted drafts.

        Raises CannotJudgeError if drafts were computed but no token came.
        """
        plan = self._unbooked.popleft() if self._unbooked else StepPlan(())
        if self.scheduler.plans_ahead:
            self.scheduler.book(plan, [_output(part, sampled, accepted) for part in plan.sampling])
        else:
            plan = replace(plan, scheduled=tuple(part for part in plan.scheduled if self._is_open(part.request_id)))
            judged = [part.request_id for part in plan.sampling if part.num_drafts]
            if any(request_id not in accepted for request_id in judged):
                raise CannotJudgeError("an output is missing the drafts that its step computed")
            self._accepted = deque(accepted[request_id] for request_id in judged)
            self.scheduler.update(plan, [token for part in plan.sampling for token in _rows(part, sampled)])
        return self._done()

    def draft(self, guessed: Iterable[tuple[int, Sequence[int]]]) -> list[ev.Event]:
        """Offer guesses to requests. guessed: (request, tokens) each; a request that does not decode takes none."""
        for request_id, tokens in guessed:
            if self._is_open(request_id):
                request = self.scheduler.requests[request_id]
                self.scheduler.drafts.keep(request, tuple(tokens[: max(0, self.scheduler.drafts.num_wanted(request))]))
        return self._done()

    def abort(self, request_id: int) -> list[ev.Event]:
        """End a request that has not ended yet."""
        if self._is_open(request_id):
            self.scheduler.abort(self.scheduler.requests[request_id])
        return self._done()

    def reset(self) -> list[ev.Event]:
        """Forget all cached content, if no request holds a block."""
        self.scheduler.manager.reset_prefix_cache()
        return self._done()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take(self, event: ev.Event) -> None:
        if type(event) is ev.StateCopied:
            self._copied[event.request_id, event.group] = event
        elif type(event) not in self._unsaid:
            self._new.append(event)

    def _part_of_earlier(self, scheduled: tuple[Request, int]) -> ScheduledRequest:
        """Return a step's share of a request, as needed to book it. Asynchronously it gets the tokens that come."""
        request, num_tokens = scheduled
        start = request.num_computed_tokens
        samples = self.scheduler.plans_ahead or start + num_tokens >= request.num_tokens
        tokens = (UNKNOWN_TOKEN,) * num_tokens
        return ScheduledRequest(request.request_id, tokens, start, (), (), False, samples, request.sampling, 0)

    def _written(self, part: ScheduledRequest) -> Iterator[ev.Event]:
        """Yield the writes of a request's share of a step, with a state's copy before it moves to another block.

        For states, only the writes that a recording can contain.
        """
        for number, (group, runs) in enumerate(zip(self._config.groups, part.slot_runs, strict=True)):
            if group.kind != "state":
                yield ev.SlotsWritten(part.request_id, number, part.start, runs)
                continue
            if not says_states(part.block_tables[number], part.end, group.block_size):
                continue
            if (copied := self._copied.get((part.request_id, number))) is not None:
                yield copied
            start = part.start
            for end, (block_id, _, _) in zip(part.state_ends(number), runs, strict=True):
                yield ev.StateAdvanced(part.request_id, number, block_id, start, end)
                start = end

    def _done(self) -> list[ev.Event]:
        self._journal.commit()
        found, self._new = self._new, []
        return found

    def _is_open(self, request_id: int) -> bool:
        request = self.scheduler.requests.get(request_id)
        return request is not None and request.status is not RequestStatus.FINISHED


def _output(part: ScheduledRequest, sampled: Mapping[int, Sequence[int]], accepted: Mapping[int, int]) -> list[int]:
    """Return a request's accepted drafts and the token after them; any tokens after its end."""
    known = [*sampled.get(part.request_id, ())]
    num_tokens = 1 + accepted[part.request_id] if part.num_drafts and part.request_id in accepted else len(known)
    return known + [UNKNOWN_TOKEN] * (num_tokens - len(known))


def _rows(part: ScheduledRequest, sampled: Mapping[int, Sequence[int]]) -> list[int]:
    """Return one token for each row of a request's share of a step: any tokens after the recorded ones."""
    known = [*sampled.get(part.request_id, ())][: 1 + part.num_drafts]
    return known + [UNKNOWN_TOKEN] * (1 + part.num_drafts - len(known))


def end_as_recorded(scheduler: Scheduler, ends: Ends) -> None:
    """Have a scheduler stop requests where the recorded engine did, because their stop token ids are unknown.

    The scheduler itself decides an end by length.
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
    """Return a digest of the cache salt of each request that has one."""
    salts = {number: one.salt for number, one in _open_requests(piece) if one.salt} | piece.salts
    return {number: (("cache_salt", digest),) for number, digest in salts.items()}


def unread_of(piece: Piece) -> set[int]:
    """Return the requests that must not read the prefix cache, such as those with prompt_logprobs."""
    unread = {number for number, one in _open_requests(piece) if one.is_unread}
    return unread | {INT(number) for number, *_ in _values_of(piece, "unread")}


def arrivals_of(piece: Piece) -> dict[int, int]:
    """Return the place of each request among all arrivals; equal for simultaneous ones."""
    times = {number: one.arrival for number, one in _open_requests(piece)}
    times |= {INT(number): at for number, at, *_ in _values_of(piece, "arrival")}
    places = {at: place for place, at in enumerate(sorted({*times.values()}))}
    return {request_id: places[at] for request_id, at in times.items()}


def _open_requests(piece: Piece) -> Iterable[tuple[int, OpenRequest]]:
    return piece.start.requests.items() if piece.start is not None else ()


def _values_of(piece: Piece, word: str) -> Iterator[tuple[Any, ...]]:
    return (one.values for one in piece.inputs if one.word == word)


def order_by_names(scheduler: Scheduler, names: Mapping[int, str]) -> None:
    """Have requests of equal priority and arrival wait in the order of their names in vLLM, as vLLM compares them."""
    vars(scheduler.waiting)["order"] = lambda request: (
        request.priority,
        request.arrival,
        names.get(request.request_id, ""),
    )
