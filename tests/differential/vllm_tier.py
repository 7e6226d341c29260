"""Workloads with an external tier on edition vllm: rows as differential.vllm_upstream_scheduler gives them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from differential.departures import refuse_departures
from differential.vllm_comparison import Row, labels_of, note_decision, row_of
from labengine.config import EngineConfig, SamplingParams
from labengine.core.connector import BlockTransfer, Connector, KVAccess
from labengine.core.editions import VLLM
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.engine.workload import group_specs
from labengine.record.hooks import Hooks
from vllm_scheduler_workloads import next_token


class SpecifiedTier(Connector):
    """Holds what a workload says; see differential.vllm_upstream_tier.UpstreamTier."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        self.loads_are_async = spec["delay"] > 0
        self._delay, self._tokens, self.again = spec["delay"], spec["tokens"], dict(spec["again"])
        self._under_way: dict[int, int] = {}

    def has(self, group: int, block_hash: bytes) -> bool:
        return True  # what is there is said by tokens; nothing is to be saved

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        return max(0, self._tokens.get(str(request.request_id), 0) - num_computed_tokens)

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        if self.loads_are_async:
            self._under_way.update({transfer.request_id: self._delay for transfer in loads})
        else:
            self._settle({transfer.request_id for transfer in loads})

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        self._under_way = {request_id: steps - 1 for request_id, steps in self._under_way.items()}
        arrived = {request_id for request_id, steps in self._under_way.items() if not steps}
        for request_id in arrived:
            del self._under_way[request_id]
        self._settle(arrived)
        return arrived, set()

    def cancel(self, request_id: int) -> None:
        super().cancel(request_id)
        self._under_way.pop(request_id, None)

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        return ()

    def forget(self, transfers: Sequence[BlockTransfer]) -> None: ...

    def describe(self) -> str:
        return "what the workload says"


class AsksAgain(TokenBudgetScheduler):
    """Skips a request for which the tier answers "ask again", as vLLM's scan does."""

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        tier, name = self.external.connector, str(request.request_id)
        assert isinstance(tier, SpecifiedTier)
        if request.has_blocks or not tier.again.get(name, 0):
            return False
        tier.again[name] -= 1
        return True


EDITION = Parts(name="vllm that asks again", scheduler=AsksAgain).overriding(VLLM)


def rows_with_tier(workload: Row, edition: Parts = EDITION) -> list[Row]:
    """What the scheduler holds after each step, until all requests have finished or `max_steps` are taken.

    Raises ValueError for a workload on which the edition departs from vLLM.
    """
    refuse_departures(workload)
    decisions: list[Row] = []
    hooks = Hooks(strict=True)
    hooks.subscribe(lambda event: note_decision(event, decisions))
    config = EngineConfig(
        workload["num_blocks"],
        group_specs(workload),
        workload["max_num_seqs"],
        workload["max_num_batched_tokens"],
        hash_block_size=workload["hash_block_size"],
    )
    engine = Engine(config, SimulatedRunner(next_token(workload)), edition, hooks, SpecifiedTier(workload["tier"]))
    arrivals = deque(enumerate(workload["requests"]))
    snapshots = []
    clock = 0
    while (arrivals or not engine.scheduler.is_idle) and len(snapshots) < workload["max_steps"]:
        if engine.scheduler.is_idle:
            clock = max(clock, arrivals[0][1]["step"])
        while arrivals and arrivals[0][1]["step"] <= clock:
            wanted = arrivals.popleft()[1]
            engine.add(wanted["prompt"], SamplingParams(max_tokens=wanted["max_tokens"], ignore_eos=True))
        engine.step()
        snapshots.append(replace(engine.snapshot(), step=clock))
        clock += 1
    labels = labels_of(workload, snapshots[-1].requests)
    rows = [row_of(snapshot, decided, labels) for snapshot, decided in zip(snapshots, decisions, strict=True)]
    return list(map(_in_terms_of_vllm, rows))


def _in_terms_of_vllm(row: Row) -> Row:
    """Without the computed tokens of a request that waits: vLLM notes a landed load when its scan reaches it."""
    waiting = {name: [*state[:2], 0, state[3]] for name, state in row["requests"].items() if state[0] == "waiting"}
    return row | {"requests": row["requests"] | waiting}


def _prompts(*prompts: range) -> list[Row]:
    return [{"step": n // 2, "prompt": list(prompt), "max_tokens": 2 - n // 2} for n, prompt in enumerate(prompts)]


LOAD_BEHIND_A_SKIPPED_REQUEST: Row = {
    "num_blocks": 28,
    "block_size": 4,
    "hash_block_size": 4,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 2048,
    "groups": [{"kind": "full", "block_size": 4}],
    "streams": 1000,
    "alphabet": 50021,
    "requests": _prompts(range(1000, 1040), range(2000, 2102), range(3000, 3003)),
    "tier": {"delay": 1, "tokens": {"1": 100}, "again": {"0": 1}},
    "max_steps": 30,
}
"""The workload of scenario vllm-57841."""

TWO_EQUAL_LOADS: Row = LOAD_BEHIND_A_SKIPPED_REQUEST | {
    "requests": [
        {"step": 0, "prompt": [*range(50, 58), 1], "max_tokens": 2},
        {"step": 0, "prompt": [*range(50, 58), 2], "max_tokens": 2},
        {"step": 3, "prompt": [*range(50, 58), 3], "max_tokens": 2},
    ],
    "tier": {"delay": 1, "tokens": {"0": 8, "1": 8}, "again": {}},
}
"""Two loads of the same content that land together: a third request hits the blocks of the first."""


def _late(prompts: Sequence[Sequence[int]], tokens: Sequence[int], **settings: int) -> Row:
    """Return a workload of requests that come together, and whose loads land in the next step."""
    requests = [{"step": 0, "prompt": [*prompt], "max_tokens": 2} for prompt in prompts]
    tier = {"delay": 1, "tokens": {str(n): count for n, count in enumerate(tokens)}, "again": {}}
    return TWO_EQUAL_LOADS | {"requests": requests, "tier": tier} | settings


DEPARTING: tuple[Row, ...] = (
    _late([range(100, 109), range(200, 209)], [4, 8], num_blocks=5),
    _late([[*range(50, 62), 1], [*range(50, 62), 2]], [4, 8]),
    _late([range(100, 109), range(200, 209)], [8, 8], max_num_seqs=1),
    _late([range(100, 112), range(200, 212)], [8, 8], max_num_seqs=4, max_num_batched_tokens=4),
    _late([range(100, 108)], [8]),
)
"""Workloads on which edition vllm departs from vLLM 0.32: loads that contend (the first), that land where the scan has
not been or that bring what another request fills (three), and one of a complete prompt."""


def tier_workloads() -> Iterator[Row]:
    """Yield those made by hand, then random ones, every other one with late loads."""
    yield LOAD_BEHIND_A_SKIPPED_REQUEST
    yield TWO_EQUAL_LOADS
    for seed in count():
        yield tier_workload(seed, is_late=bool(seed % 2))


def tier_workload(seed: int, *, is_late: bool) -> Row:
    """A workload with a tier that holds the beginnings of some prompts.

    Where loads are late, no two prompts are alike, and everything fits, so that no departure shows (departures.py).
    vLLM takes landed loads up one by one, and registers a request's fresh blocks before the next load: with equal
    blocks the order in the map differs. Under pressure it begins fewer loads (44560), and labengine takes loaded blocks
    back instead.
    """
    rng = Random(f"tier {seed}")
    size = rng.choice((2, 4))
    stem = [rng.randrange(50) for _ in range(6 * size)]
    requests: list[Row] = []
    for _ in range(rng.randint(3, 7)):
        stem = [rng.randrange(50_000) for _ in stem] if is_late else stem
        prompt = stem[: rng.randint(0, len(stem))] + [rng.randrange(50) for _ in range(rng.randint(1, 4 * size))]
        step = len(requests) * rng.choice((0, 0, 1))
        requests.append({"step": step, "prompt": prompt, "max_tokens": rng.randint(1, 9)})
    requests.sort(key=lambda request: request["step"])
    held = {str(n): (len(r["prompt"]) - 1) // size * size for n, r in enumerate(requests) if rng.random() < 0.6}
    largest = max(-(-(len(r["prompt"]) + r["max_tokens"]) // size) for r in requests)
    everything = sum(-(-(len(r["prompt"]) + r["max_tokens"]) // size) for r in requests)
    return {
        "num_blocks": 1 + (everything if is_late else largest + rng.choice((0, 2, 6))),
        "block_size": size,
        "hash_block_size": size,
        "max_num_seqs": 8 if is_late else rng.choice((2, 4, 8)),
        "max_num_batched_tokens": 1000 if is_late else rng.choice((8, 16, 64)),
        "groups": [{"kind": "full", "block_size": size}],
        "streams": 1000,
        "alphabet": 50021,
        "requests": requests,
        "tier": {
            "delay": rng.randint(1, 3) if is_late else 0,
            "tokens": {n: rng.choice((tokens, tokens // 2 // size * size)) for n, tokens in held.items()},
            "again": {n: rng.randint(1, 3) for n in held if rng.random() < 0.4},
        },
        "max_steps": 300,
    }
