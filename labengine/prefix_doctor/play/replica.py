"""One engine of a run, in simulated time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labengine.config import ConfigError, SamplingParams
from labengine.core.block import Block
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions
from labengine.engine.simulated import SimulatedRunner, default_next_token
from labengine.events import Event, EvictReason, PrefixHit
from labengine.prefix_doctor.play.clock import attended_pairs
from labengine.prefix_doctor.play.live_look_ups import LiveLookUps, Memory, OnLookUp
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt
from labengine.record.hooks import Hooks
from labengine.vllm.conformance.traffic import book_late

MAX_EMPTY = 8
"""Steps in a row that may compute nothing: with two steps in flight, some only book the one before."""


@dataclass(slots=True, eq=False)
class Running:
    """A request on its way, and the times at which it came, was admitted and got its first token."""

    request: Request
    prompt: Prompt
    arrival: float
    admitted: float | None = None
    first_token: float | None = None


class Replica:
    """An engine whose steps take as long as the clock says.

    judged: called with each look-up, with its cause for each missed token; None for a run that only counts.
    """

    def __init__(self, setting: Setting, memory: Memory | None, judged: OnLookUp | None, hooks: Hooks) -> None:
        self.now = 0.0
        self.requests: dict[int, Running] = {}
        self.num_tokens = self.num_hit = self.num_computed = self.num_steps = 0
        self.num_preemptions = self.num_evicted = self.peak_blocks = self._num_empty = 0
        self.first_tokens, self.waits = array("d"), array("d")
        """Seconds from arrival to the first token, and to admission, of each request."""
        self._clock, self._plan = setting.clock, StepPlan(())
        self.engine = Engine(
            replace(setting.config, keep_finished=0), _Runner(self._token, self._note), setting.parts, hooks
        )
        hooks.subscribe(self._admitted, PrefixHit)
        if self.engine.scheduler.plans_ahead:
            book_late(self.engine.scheduler)
        self._look_ups = None
        if memory is not None and judged is not None:
            self._look_ups = LiveLookUps(self.engine, memory, judged)
        self._follow_evictions()

    # -- requests ------------------------------------------------------------------------------------------------------

    def request_of(self, number: int, prompt: Prompt) -> Request:
        """Return a request for a prompt. Raises ConfigError if it can never run."""
        sampling = SamplingParams(
            max_tokens=max(1, prompt.num_answer), ignore_eos=True, skip_reading_prefix_cache=prompt.skips_cache
        )
        options = RequestOptions(sampling, prompt.extra_keys, prompt.priority, prompt.images)
        request = self.engine.maker.request(number, list(prompt.token_ids), options)
        if prompt.block_hashes:
            request.block_hashes, prompt.block_hashes = prompt.block_hashes, []
            request.links = [*zip(*[iter(request.token_ids)] * self.engine.config.hash_block_size, strict=False)]
        return request

    def queue(self, request: Request, prompt: Prompt) -> None:
        """Queue a request at its arrival; without one, now."""
        self.engine.queue(request)
        arrival = self.now if prompt.arrival is None else prompt.arrival
        self.requests[request.request_id] = Running(request, prompt, arrival)

    @property
    def num_waiting(self) -> int:
        """Number of requests that were never admitted or wait again."""
        return len(self.engine.scheduler.waiting)

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, until: float) -> None:
        """Take steps until this time; a step that begins before it ends after it. An idle engine waits."""
        while self.now < until and not self.engine.scheduler.is_idle:
            self.step()
        if self.engine.scheduler.is_idle:
            self.now = max(self.now, until)

    def drain(self) -> None:
        """Take steps until nothing waits or runs."""
        while not self.engine.scheduler.is_idle:
            self.step()

    def step(self) -> None:
        """Take one step."""
        report = self.engine.step()
        self._num_empty = 0 if report else self._num_empty + 1
        if self._num_empty > MAX_EMPTY:
            names = ", ".join(str(number) for number in list(self.requests)[:3])
            raise ConfigError(f"{self.engine.parts.name} schedules nothing, though requests wait: {names}")
        self.now += self._duration()
        self.num_steps += 1
        self.num_computed += self._plan.num_tokens
        self.num_preemptions += len(report.preempted)
        self.peak_blocks = max(self.peak_blocks, report.peak_used_blocks)
        for number in report.sampled:
            running = self.requests[number]
            if running.first_token is None:
                running.first_token = self.now
                self.first_tokens.append(self.now - running.arrival)
        for number in report.preempted:
            self._leave(self.requests[number].request, False)
        for number in report.finished:
            self._leave(self.requests.pop(number).request, True)

    def _duration(self) -> float:
        if self._clock is None:
            return 1.0
        attended = read = 0
        for part in self._plan.scheduled:
            attended += attended_pairs(part.start, part.num_tokens)
            read += part.end
        return self._clock.duration(self._plan.num_tokens, attended, read)

    # -- what the engine tells -----------------------------------------------------------------------------------------

    def _admitted(self, event: Event) -> None:
        assert isinstance(event, PrefixHit)
        running = self.requests[event.request_id]
        if running.admitted is None:
            running.admitted = self.now
            self.waits.append(self.now - running.arrival)
            self.num_hit += event.num_tokens
            self.num_tokens += running.request.num_tokens

    def _follow_evictions(self) -> None:
        pool, look_ups = self.engine.scheduler.manager.pool, self._look_ups
        forget = pool.forget

        def followed(blocks: Sequence[Block], reason: EvictReason) -> None:
            self.num_evicted += len(blocks) * (reason == "reused")
            if look_ups is not None:
                look_ups.lose(blocks, reason)
            forget(blocks, reason)

        vars(pool)["forget"] = followed

    def _note(self, plan: StepPlan) -> None:
        self._plan = plan

    def _leave(self, request: Request, is_finished: bool) -> None:
        if self._look_ups is not None:
            self._look_ups.leave(request, is_finished)

    def _token(self, number: int, position: int) -> int:
        """Return the known token of an answer, and made-up ones behind it."""
        running = self.requests[number]
        index = position - len(running.prompt.token_ids)
        answer = running.prompt.answer
        return answer[index] if index < len(answer) else default_next_token(number, position)


class _Runner(SimulatedRunner):
    """Computes nothing, and tells each step's plan."""

    def __init__(self, next_token: Callable[[int, int], int], note: Callable[[StepPlan], None]) -> None:
        super().__init__(next_token)
        self._note = note

    def forward(self, plan: StepPlan) -> None:
        """Tell the plan."""
        self._note(plan)
