"""Recorded requests on an engine, which arrive in the recorded steps and sample the recorded tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from labengine import events as ev
from labengine.config import ConfigError, EngineConfig, SamplingParams
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys, Request
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import StepPlan
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.isolation.endings import OF_THE_USER, interrupts_named, said_of
from labengine.record.hooks import Hooks
from labengine.record.wording import readable
from labengine.vllm.conformance.edition_run import Ends, end_as_recorded

MAX_TIMES_AS_LONG = 20
"""Steps per recorded step after which parts that do not finish are stopped."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The steps in which requests came and were aborted, and the cache was reset: those of n come before step n.

    tokens: each request's final tokens. ends: where each finished. salts: extra keys of requests. places: of requests
    in the order of arrival, for equal priorities. unread: requests that skip the prefix cache.
    """

    requests: dict[int, ev.RequestAdded]
    arrivals: Mapping[int, Sequence[int]]
    aborts: Mapping[int, Sequence[int]]
    resets: frozenset[int]
    num_steps: int
    tokens: Mapping[int, Sequence[int]]
    ends: Ends
    salts: Mapping[int, ExtraKeys] = field(default_factory=dict)
    places: Mapping[int, int] = field(default_factory=dict)
    unread: frozenset[int] = frozenset()

    @classmethod
    def of(cls, events: Iterable[ev.Event], salts: Mapping[int, ExtraKeys], places: Mapping[int, int]) -> Traffic:
        """Collect the inputs from outside. Requests still running at the recording's end are aborted there."""
        requests, tokens, ends, resets, step = dict[int, ev.RequestAdded](), dict[int, list[int]](), {}, set[int](), 1
        arrivals, aborts = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        is_open, unread = dict[int, None](), set[int]()
        for event in events:
            match event:
                case ev.StepStarted(number):
                    step = number + 1
                case ev.RequestAdded(request_id, token_ids):
                    requests[request_id], tokens[request_id] = event, list(token_ids)
                    arrivals[step].append(request_id)
                    is_open[request_id] = None
                case ev.TokenSampled(request_id, token_id):
                    tokens[request_id].append(token_id)
                case ev.PrefixHit(request_id, is_skipped=True):
                    unread.add(request_id)
                case ev.PrefixCacheReset():
                    resets.add(step)
                case ev.RequestFinished(request_id, reason):
                    del is_open[request_id]
                    ends[request_id] = len(tokens[request_id]), reason
                    if reason == "abort":
                        aborts[step].append(request_id)
        aborts[step] += is_open
        came = requests, arrivals, aborts, frozenset(resets), step
        return cls(*came, tokens, ends, salts, places, frozenset(unread))

    def run(
        self,
        config: EngineConfig,
        parts: Parts,
        longest: int | None = None,
        on_begin: Callable[[int], object] = lambda step: None,
    ) -> list[ev.Event]:
        """Return the events of an engine with these requests. longest: tokens at which each request ends.

        on_begin: called with the number of each step before it. Raises ConfigError if the parts raise or do not finish,
        and for speculative decoding.
        """
        if config.num_drafts:
            raise ConfigError(
                "traffic with speculative decoding cannot be repeated: its guesses came from the recorded worker, "
                "which other parts would query at different points"
            )
        events: list[ev.Event] = []
        hooks = Hooks()
        hooks.subscribe(events.append)
        engine = Engine(config, SimulatedRunner(self._token), parts, hooks)
        end_as_recorded(engine.scheduler, self.ends)
        if engine.scheduler.plans_ahead:
            book_late(engine.scheduler)
        last, step = max((*self.arrivals, *self.aborts)), 1
        while step <= last or not engine.scheduler.is_idle:
            on_begin(step)
            self._come(engine, step, longest)
            _step(engine, parts)
            step += 1
            if step > MAX_TIMES_AS_LONG * (self.num_steps + 100):
                raise ConfigError(
                    f"{parts.name} does not finish the traffic: after {step:,} steps requests are still waiting"
                )
        return events

    def _come(self, engine: Engine, step: int, longest: int | None) -> None:
        """Give an engine the inputs before a step."""
        if step in self.resets:
            engine.reset_prefix_cache()  # refused, as in vLLM, while a request holds blocks
        for request_id in self.arrivals.get(step, ()):
            added, num_groups = self.requests[request_id], len(engine.config.groups)
            room = added.max_tokens if longest is None else longest - len(added.token_ids)
            longest_answer, is_unread = max(1, min(added.max_tokens, room)), request_id in self.unread
            sampling = SamplingParams(max_tokens=longest_answer, skip_reading_prefix_cache=is_unread)
            salt = self.salts.get(request_id, ())
            request = Request(request_id, list(added.token_ids), sampling, 0, num_groups, salt, added.priority)
            request.arrival = self.places.get(request_id, request_id)
            engine.queue(request)
        for request_id in self.aborts.get(step, ()):
            engine.abort(request_id)

    def _token(self, request_id: int, position: int) -> int:
        """Return the recorded token; any token after the last one, where the recorded engine ended the request."""
        tokens = self.tokens[request_id]
        return tokens[position] if position < len(tokens) else 0


def book_late(scheduler: Scheduler) -> None:
    """Have a scheduler's update book the previous step, as vLLM does with two steps in flight."""
    unbooked: list[tuple[StepPlan, list[tuple[int]]]] = []

    def update(plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        before = unbooked.pop() if unbooked else None
        if plan.scheduled:
            unbooked.append((plan, [(token_id,) for token_id in sampled]))
        return scheduler.book(*before) if before else ()

    vars(scheduler)["update"] = update


def _step(engine: Engine, parts: Parts) -> None:
    try:
        with interrupts_named():
            engine.step()
    except OF_THE_USER:
        raise
    except BaseException as error:
        what = readable(said_of(error), 300)
        raise ConfigError(f"{parts.name} raises in step {engine.step_number + 1} of the traffic: {what}") from error
