"""Traffic on an edition's exact scheduler, read as it is needed, in simulated time."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from labengine.config import ConfigError
from labengine.core.request import Request
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.live_look_ups import Memory, content_of
from labengine.prefix_doctor.play.replica import Replica
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.hooks import Hooks
from labengine.system.garbage_collection import garbage_collection_paused

OnJudged = Callable[[int, Prompt, LookUp], object]
"""Called with a prompt's number, the prompt, and the look-up of its request."""


@dataclass(frozen=True)
class Played:
    """A run of traffic. has_forgotten: it was too long to remember all prefixes. is_partial: an interrupt ended it."""

    figures: Figures
    num_refused: int = 0
    why_refused: str = ""
    """The reason for the first refused prompt."""
    has_forgotten: bool = False
    num_named: int = 0
    """Replicas that the prompts name."""
    is_partial: bool = False


def play(
    traffic: Traffic,
    setting: Setting,
    on_look_up: OnJudged | None = None,
    *,
    hooks: Hooks | None = None,
    keeps_partial: bool = False,
) -> Played:
    """Run traffic, and return its figures.

    A prompt without an arrival comes as soon as there is room, which for a queue in order of arrival equals having all
    of them at the beginning. on_look_up: called at each admission. hooks: their listeners receive all events of the
    first replica. keeps_partial: an interrupt ends the run and the figures so far are returned.
    Raises ConfigError if the edition does not finish the traffic.
    """
    run = _Run(setting, on_look_up, hooks)
    try:
        with garbage_collection_paused():  # it takes a third of the time, and a run makes no cycles
            for number, prompt in enumerate(traffic):
                run.add(number, prompt)
            run.drain()
    except KeyboardInterrupt:
        if not keeps_partial:
            raise
        return run.played(is_partial=True)
    return run.played()


class _Run:
    def __init__(self, setting: Setting, on_look_up: OnJudged | None, hooks: Hooks | None) -> None:
        self._setting, self._on_look_up = setting, on_look_up
        self._memory = None if on_look_up is None else Memory()
        self._replicas = [
            Replica(setting, self._memory, self._judged, hooks if hooks is not None and not number else Hooks())
            for number in range(setting.num_replicas)
        ]
        self._open: dict[int, Prompt] = {}
        self._homes: dict[str, Replica] = {}
        self._num_prompts = self._num_refused = self._num_named = 0
        self._why_refused = ""
        self._begun: float | None = None

    def add(self, number: int, prompt: Prompt) -> None:
        """Advance to a prompt's arrival, and queue it."""
        self._num_prompts += 1
        self._num_named = max(self._num_named, 0 if prompt.replica is None else prompt.replica + 1)
        if prompt.arrival is not None:
            self._begun = prompt.arrival if self._begun is None else self._begun
            for replica in self._replicas:
                replica.advance(prompt.arrival)
        try:
            request = self._replicas[0].request_of(number, prompt)
        except ConfigError as error:
            self._num_refused += 1
            self._why_refused = self._why_refused or f"prompt {number:,}: {error}"
            return
        replica = self._replica_for(number, prompt, request)
        while prompt.arrival is None and replica.num_waiting > self._setting.config.max_num_seqs:
            replica.step()
            if self._setting.routing == "prefix":
                for other in self._replicas:
                    other.advance(replica.now)
        replica.queue(request, prompt)

    def drain(self) -> None:
        """Take steps until nothing waits or runs."""
        for replica in self._replicas:
            replica.drain()

    def played(self, is_partial: bool = False) -> Played:
        """Add up the replicas."""
        has_forgotten = self._memory is not None and self._memory.seen.has_forgotten
        return Played(self._figures(), self._num_refused, self._why_refused, has_forgotten, self._num_named, is_partial)

    # -- routing -------------------------------------------------------------------------------------------------------

    def _replica_for(self, number: int, prompt: Prompt, request: Request) -> Replica:
        replicas = self._replicas
        if len(replicas) == 1:
            return replicas[0]
        match self._setting.routing:
            case "recorded" if prompt.replica is not None:
                return replicas[prompt.replica % len(replicas)]
            case "sticky" if prompt.session or prompt.tenant:
                return self._homes.setdefault(
                    prompt.session or prompt.tenant, replicas[len(self._homes) % len(replicas)]
                )
            case "prefix":
                return max(replicas, key=lambda replica: (_num_cached(replica, request), -len(replica.requests)))
            case _:
                return replicas[number % len(replicas)]

    # -- results -------------------------------------------------------------------------------------------------------

    def _judged(self, look_up: LookUp) -> None:
        assert self._on_look_up is not None and self._memory is not None
        for replica in self._replicas:
            if (running := replica.requests.get(look_up.request_id)) is not None:
                self._on_look_up(look_up.request_id, running.prompt, look_up)
                prompt = running.prompt
                self._memory.tokens.add(look_up.request_id, content_of(prompt.token_ids, prompt.images))

    def _figures(self) -> Figures:
        replicas, has_clock = self._replicas, self._setting.clock is not None
        first = array("d", sorted(time for replica in replicas for time in replica.first_tokens))
        waits = array("d", sorted(time for replica in replicas for time in replica.waits))
        total = max(replica.now for replica in replicas) - (self._begun or 0.0)
        return Figures(
            num_prompts=self._num_prompts - self._num_refused,
            num_tokens=sum(replica.num_tokens for replica in replicas),
            num_hit=sum(replica.num_hit for replica in replicas),
            num_computed=sum(replica.num_computed for replica in replicas),
            num_steps=sum(replica.num_steps for replica in replicas),
            num_preemptions=sum(replica.num_preemptions for replica in replicas),
            num_evicted_blocks=sum(replica.num_evicted for replica in replicas),
            peak_blocks=max(replica.peak_blocks for replica in replicas),
            seconds=total if has_clock else None,
            ttft_p50=_quantile(first, 0.5) if has_clock else None,
            ttft_p95=_quantile(first, 0.95) if has_clock else None,
            wait_p50=_quantile(waits, 0.5) if has_clock else None,
            wait_p95=_quantile(waits, 0.95) if has_clock else None,
        )


def _num_cached(replica: Replica, request: Request) -> int:
    """Return how many of a request's tokens a replica caches. The request's hash chain is the same on all of them."""
    return replica.engine.scheduler.manager.find_prefix(request).num_tokens


def _quantile(values: array[float], share: float) -> float | None:
    return values[min(len(values) - 1, int(share * len(values)))] if values else None
