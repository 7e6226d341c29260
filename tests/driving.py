"""Drive an engine through a workload one operation at a time, so that a test can look, or disturb, in between."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from labengine.check.invariants import check_invariants
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.engine.engine import Engine
from labengine.engine.simulated import NextToken, SimulatedRunner, default_next_token
from labengine.events import Event
from labengine.hooks import Hooks
from labengine.snapshot import Snapshot
from paged_memory import PagedMemoryRunner
from workloads import Workload

ALL_EDITIONS = ("nano-vllm", "nano-vllm+243", "labengine")


class Drive:
    """An engine on a memory that checks every read, and a clock that lets the workload's requests arrive."""

    def __init__(self, workload: Workload, edition: str | Parts, hooks: Hooks | None = None) -> None:
        self.workload = workload
        self.runner = PagedMemoryRunner(workload.next_token, workload.block_size)
        config = EngineConfig(
            num_blocks=workload.num_blocks,
            groups=(GroupSpec(workload.block_size),),
            max_num_seqs=workload.max_num_seqs,
            max_num_batched_tokens=workload.max_num_batched_tokens,
        )
        parts = edition if isinstance(edition, Parts) else edition_named(edition)
        self.engine = Engine(config, self.runner, parts, Hooks(strict=True) if hooks is None else hooks)
        self.runner.requests = self.engine.requests
        self._arrivals = sorted(workload.requests, key=lambda arrival: arrival.step)
        self._clock = 0

    @property
    def is_done(self) -> bool:
        """Everybody arrived and ended."""
        return not self._arrivals and self.engine.scheduler.is_idle

    def arrive(self) -> Iterator[int]:
        """Add the requests that are due, one at a time."""
        while self._arrivals and self._arrivals[0].step <= self._clock:
            wanted = self._arrivals.pop(0)
            yield self.engine.add(wanted.prompt, SamplingParams(max_tokens=wanted.max_tokens))
        self._clock += 1

    def run(self) -> Engine:
        """To the end, undisturbed."""
        while not self.is_done:
            for _ in self.arrive():
                pass
            self.engine.step()
        return self.engine

    def operations(self, rng: Random) -> Iterator[str]:
        """To the end, stopping after every add, phase, step, abort and abandoned step."""
        while not self.is_done:
            for _ in self.arrive():
                yield "add"
            if rng.random() < 0.1 and self.engine.requests:
                self.engine.abort(rng.choice(list(self.engine.requests)))
                yield "abort"
            if rng.random() < 0.15:
                yield from self._abandoned_step(rng.randint(1, 3))
            yield from self.engine.phases()

    def _abandoned_step(self, num_phases: int) -> Iterator[str]:
        phases = self.engine.phases()
        for phase, _ in zip(phases, range(num_phases), strict=False):
            yield phase
        phases.close()  # type: ignore[attr-defined]
        yield "rollback"


def small_engine(
    num_blocks: int = 8,
    block_size: int = 4,
    edition: str | Parts = "labengine",
    *,
    max_num_seqs: int = 16,
    budget: int = 1000,
    eos: frozenset[int] = frozenset(),
    next_token: NextToken = default_next_token,
    hooks: Hooks | None = None,
) -> Engine:
    """An engine on the simulated model, with the defaults that a unit test wants."""
    config = EngineConfig(num_blocks, (GroupSpec(block_size),), max_num_seqs, budget, eos_token_ids=eos)
    parts = edition if isinstance(edition, Parts) else edition_named(edition)
    return Engine(config, SimulatedRunner(next_token), parts, Hooks(strict=True) if hooks is None else hooks)


def tables(engine: Engine) -> dict[int, tuple[int, ...]]:
    """Block tables of the requests that hold blocks."""
    requests = engine.snapshot().requests
    return {request_id: r.block_tables[0] for request_id, r in requests.items() if r.block_tables[0]}


def recorded(hooks: Hooks) -> list[Event]:
    """All events that the hooks deliver from now on."""
    events: list[Event] = []
    hooks.subscribe(events.append)
    return events


def tokens_of(snapshot: Snapshot) -> dict[int, tuple[int, ...]]:
    """What each request holds."""
    return {request_id: request.token_ids for request_id, request in snapshot.requests.items()}


def difference(one: Snapshot, other: Snapshot) -> str | None:
    """The first thing that differs, in a line; None for equal snapshots. (pytest's own diff of two takes minutes.)"""
    if one == other:
        return None
    pairs = _flat(one.to_dict()), _flat(other.to_dict())
    paths = [path for path in {**pairs[0], **pairs[1]} if pairs[0].get(path) != pairs[1].get(path)]
    return "; ".join(f"{path}: {pairs[0].get(path)} / {pairs[1].get(path)}" for path in paths[:4]) or "hashes differ"


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {p: v for key, inner in value.items() for p, v in _flat(inner, f"{path}.{key}").items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {p: v for i, inner in enumerate(value) for p, v in _flat(inner, f"{path}[{i}]").items()}
    return {path: value}


def assert_sound(snapshot: Snapshot) -> None:
    """The rules that hold between steps, and those of the queue and of the requests' own numbers."""
    assert check_invariants(snapshot) == []
    assert sorted(snapshot.free_queue) == [block.block_id for block in snapshot.blocks if block.ref_count == 0]
    for request in snapshot.requests.values():
        if request.status in ("finished", "preempted"):
            assert request.num_computed_tokens == 0
            assert not any(request.block_tables)
        for table, group in zip(request.block_tables, snapshot.groups, strict=True):
            assert len(table) * group.block_size >= request.num_computed_tokens
