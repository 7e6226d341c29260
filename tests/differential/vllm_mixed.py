"""Workloads with all that may be mixed, on editions vllm and vllm-async: rows as vllm_upstream_mixed gives them."""

from __future__ import annotations

from collections import deque
from typing import Any

from differential.chance_drafts import ChanceDrafts, judged
from differential.departures import refuse_departures
from differential.vllm_comparison import Row, label, labels_of
from differential.vllm_tier import SpecifiedTier
from labengine.config import EngineConfig, SamplingParams
from labengine.core.editions import VLLM, VLLM_ASYNC
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.core.state import take_snapshot
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.async_scheduler import AsyncTokenBudgetScheduler
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.engine.simulated import SimulatedRunner
from labengine.engine.workload import eagle_groups, group_specs
from labengine.events import Event, PrefixHit, RequestFinished, RequestPreempted, RequestScheduled
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from vllm_scheduler_workloads import next_token

MAX_STEPS = 2_000

SETTINGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "hash_block_size",
    "watermark",
    "long_prefill_token_threshold",
    "retention_interval",
    "max_model_len",
)


def rows_of_mixed(workload: Row, parts: Parts | None = None) -> list[Row]:
    """Return what the edition holds after each step, or after each plan and each booking.

    parts: in place of the edition's. Raises ValueError for a workload on which the edition departs from vLLM.
    """
    refuse_departures(workload)
    run = (AsyncRun if workload.get("async") else SyncRun)(workload, parts)
    clock, arrivals = 0, deque(sorted((one["step"], number) for number, one in enumerate(workload["requests"])))
    while arrivals or run.has_work:
        if not run.has_work:
            clock = max(clock, arrivals[0][0])
        while arrivals and arrivals[0][0] <= clock:
            run.add(arrivals.popleft()[1])
        run.abort(clock)
        run.step(clock)
        clock += 1
        if len(run.rows) > MAX_STEPS:
            raise RuntimeError(f"labengine does not get on at step {clock}")
    labels = labels_of(workload, run.snapshot().requests)
    return [row | {"cached": {label(key, labels): ids for key, ids in row["cached"].items()}} for row in run.rows]


def config_of(workload: Row) -> EngineConfig:
    """Return the engine's configuration."""
    drafts = workload.get("speculation", {})
    return EngineConfig(
        workload["num_blocks"],
        group_specs(workload),
        eagle_groups=eagle_groups(workload),
        num_drafts=drafts.get("num_drafts", 0),
        drafter=drafts.get("drafter", "lookup"),
        **{name: workload[name] for name in SETTINGS if workload.get(name) is not None},
    )


def parts_of(workload: Row, edition: Parts) -> Parts:
    """Return the edition with the policy's waiting queue."""
    if workload.get("policy") != "priority":
        return edition
    return Parts(waiting_queue=VllmPriorityQueue).overriding(edition)


class MixedRun:
    """One workload under way; a subclass takes its steps."""

    scheduler: TokenBudgetScheduler

    def __init__(self, workload: Row) -> None:
        self.rows: list[Row] = []
        self.hooks = Hooks(strict=True)
        self.hooks.subscribe(self._note)
        self.workload = workload
        self.drafts = ChanceDrafts(**workload["speculation"]) if "speculation" in workload else None
        self.token_at = next_token(workload)
        self._hits: list[list[int]] = []

    @property
    def has_work(self) -> bool:
        """True while a request is open or a step is not booked."""
        raise NotImplementedError

    def add(self, number: int) -> None:
        """Queue a request of the workload."""
        raise NotImplementedError

    def step(self, clock: int) -> None:
        """Take a step, or plan one, or book one; add its rows."""
        raise NotImplementedError

    def abort(self, clock: int, moment: str = "step") -> None:
        """End the requests whose time has come."""
        for at, number, *when in self.workload.get("aborts", ()):
            if at == clock and (when or ["step"]) == [moment] and self._is_open(number):
                self.end(number)

    def end(self, number: int) -> None:
        """Abort an open request."""
        raise NotImplementedError

    def sampling(self, number: int) -> SamplingParams:
        """Return how a request samples."""
        wanted = self.workload["requests"][number]
        skips = wanted.get("skip_reading_prefix_cache", False)
        return SamplingParams(wanted["max_tokens"], ignore_eos=True, skip_reading_prefix_cache=skips)

    def snapshot(self) -> Snapshot:
        """Return what the core holds."""
        return take_snapshot(0, self.scheduler.requests, self.scheduler.manager)

    def begin_row(self, clock: int) -> None:
        """Add a row, into which the events that follow are written."""
        self._hits = []
        self.rows.append({"clock": clock, "scheduled": [], "preempted": [], "hits": [], "finished": []})

    def end_row(self) -> None:
        """Complete the newest row with the state; only hits of requests that are scheduled count."""
        row, held = self.rows[-1], self.snapshot()
        ids = [one[0] for one in row["scheduled"]]
        row["hits"] = [hit for hit in self._hits if hit[0] in ids]
        row |= {
            "requests": {str(i): self._request_row(request) for i, request in self.scheduler.requests.items()},
            "running": [request.request_id for request in self.scheduler.running],
            "waiting": [request.request_id for request in self.scheduler.waiting],
            "ref_counts": [block.ref_count for block in held.blocks],
            "free_queue": list(held.free_queue),
            "cached": {key: list(ids) for key, ids in held.prefix_map.items()},
        }

    def ahead_of(self, request: Request) -> list[int]:
        """Return [tokens in flight, placeholders, stale tokens]."""
        return [0, 0, 0]

    def _request_row(self, request: Request) -> list[Any]:
        is_waiting = request.status is RequestStatus.WAITING
        computed = 0 if is_waiting else request.next_position
        tables = [list(table) for table in request.block_tables]
        state = [request.status.value, request.num_tokens, computed, tables, list(request.drafts)]
        return [*state, self.ahead_of(request)]

    def _is_open(self, number: int) -> bool:
        request = self.scheduler.requests.get(number)
        return request is not None and request.status is not RequestStatus.FINISHED

    def _note(self, event: Event) -> None:
        match event:
            case RequestScheduled():
                self.rows[-1]["scheduled"].append([event.request_id, event.num_tokens, event.num_drafts])
            case RequestPreempted():
                row = self.rows[-1]
                row["preempted"].append(event.request_id)
                row["scheduled"] = [one for one in row["scheduled"] if one[0] != event.request_id]
            case PrefixHit():
                self._hits.append([event.request_id, event.num_tokens])
            case RequestFinished() if event.reason != "abort":
                self.rows[-1]["finished"].append(event.request_id)


class SyncRun(MixedRun):
    """Edition vllm in an engine with the simulated model."""

    def __init__(self, workload: Row, parts: Parts | None) -> None:
        super().__init__(workload)
        tier = SpecifiedTier(workload["tier"]) if workload.get("tier") else None
        parts, runner = parts or parts_of(workload, VLLM), SimulatedRunner(self.token_at)
        self.engine = Engine(config_of(workload), runner, parts, self.hooks, tier, proposer=self.drafts)
        assert isinstance(self.engine.scheduler, TokenBudgetScheduler)
        self.scheduler = self.engine.scheduler

    @property
    def has_work(self) -> bool:
        """True while a request is open."""
        return not self.scheduler.is_idle

    def add(self, number: int) -> None:
        """Queue a request, or a further answer to the prompt of its leader."""
        wanted = self.workload["requests"][number]
        sampling = self.sampling(number)
        options = RequestOptions(sampling, salted((), wanted.get("salt")), wanted.get("priority", 0))
        request = self.engine.maker.request(number, list(wanted["prompt"]), options)
        request.arrival = wanted.get("arrival", number)
        self.engine.queue(request, leader_id=wanted.get("leader"))

    def step(self, clock: int) -> None:
        """Take a step."""
        self.begin_row(clock)
        self.engine.step()
        self.end_row()

    def end(self, number: int) -> None:
        """Abort an open request."""
        self.engine.abort(number)


class AsyncRun(MixedRun):
    """Edition vllm-async, without an engine: as EngineCore does, with one step in flight while the next is planned."""

    scheduler: AsyncTokenBudgetScheduler

    def __init__(self, workload: Row, parts: Parts | None) -> None:
        super().__init__(workload)
        self.journal = Journal()
        scheduler = (parts or parts_of(workload, VLLM_ASYNC)).assemble(config_of(workload), self.hooks, self.journal)
        assert isinstance(scheduler, AsyncTokenBudgetScheduler)
        self.scheduler = scheduler
        self._in_flight: deque[tuple[StepPlan, set[int]]] = deque()
        self._has_ended = False
        """True if a request has ended since the newest plan: vLLM plans another one to tell its worker."""

    @property
    def has_work(self) -> bool:
        """True while a request is open or a step is not booked."""
        return bool(self.scheduler.running or self.scheduler.waiting or self._in_flight)

    def add(self, number: int) -> None:
        """Queue a request, or a further answer to the prompt of its leader."""
        wanted = self.workload["requests"][number]
        keys = (("cache_salt", wanted["salt"]),) if wanted.get("salt") else ()
        sampling, num_groups = self.sampling(number), len(self.workload["groups"])
        request = Request(number, list(wanted["prompt"]), sampling, 0, num_groups, keys, wanted.get("priority", 0))
        request.arrival = wanted.get("arrival", number)
        if "leader" in wanted:
            self.scheduler.join(request, self.scheduler.requests[wanted["leader"]])
        else:
            self.scheduler.add(request)

    def step(self, clock: int) -> None:
        """Plan while there is room for a step in flight, else book the oldest."""
        if self.scheduler.running or self.scheduler.waiting or self._has_ended:
            self._has_ended = False
            self.begin_row(clock)
            before = {request.request_id for request in self.scheduler.running}
            plan = self.scheduler.schedule()
            self.end_row()
            self._in_flight.append((plan, {part.request_id for part in plan.scheduled} - before))
            if len(self._in_flight) < 2 and plan.scheduled:
                return
        self.abort(clock, "update")
        if self._in_flight:
            plan, admitted = self._in_flight.popleft()
            self.begin_row(clock)
            self.scheduler.book(plan, [self._outputs(part, part.request_id in admitted) for part in plan.sampling])
            self._has_ended |= bool(self.rows[-1]["finished"])
            self.journal.commit()
            self.end_row()

    def end(self, number: int) -> None:
        """Abort an open request."""
        self.scheduler.abort(self.scheduler.requests[number])
        self._has_ended = True

    def ahead_of(self, request: Request) -> list[int]:
        """Return [tokens in flight, placeholders, stale tokens]."""
        return list(self.scheduler.ahead_of(request))

    def _outputs(self, part: ScheduledRequest, is_admitted: bool) -> list[int]:
        """Return the tokens that the model gives: those of accepted drafts, and one behind them."""
        text = self.scheduler.requests[part.request_id].token_ids
        guesses: tuple[int, ...] = ()
        if self.drafts is not None and not is_admitted:  # the worker fills in its own; none for one that is admitted
            guesses = self.drafts.propose(text, self.drafts.num_drafts)[: part.num_drafts]
        return judged(guesses, lambda position: self.token_at(part.request_id, position), len(text))
