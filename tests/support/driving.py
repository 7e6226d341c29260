"""Drive an engine through a workload one operation at a time, so that a test can look, or disturb, in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from labengine.check.invariants import check_invariants
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.collaborator import Absent
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.editions import edition as edition_named
from labengine.core.mini_sglang.scheduler import WorstCaseScheduler
from labengine.core.parts import Parts
from labengine.core.proposer import Proposer
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.engine.simulated import NextToken, SimulatedRunner, default_next_token
from labengine.events import Event, StepRolledBack, StepStarted
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from paged_memory import PagedMemoryRunner
from workloads import Workload

_BY_OWN_TOKENS = (
    "a stale map entry leads to a block of equal own tokens after any prefix (StaleMapPool, OwnTokensGroup)"
)
_UNMAPPED = "a late merge frees the copy and leaves the table as it was (UnmappedMergeGroup, mini-sglang PR 142)"
EDITION_FAULTS: dict[str, dict[str, str]] = {
    "nano-vllm-2025-07": {
        "read": _BY_OWN_TOKENS,
        "scope": _BY_OWN_TOKENS,
        "named": "such a hit is registered under the hash of the request that hits it",
        "one_entry": "such hits may name one block twice in a table",
        "progress": "a hit may cover the whole prompt, and nothing is left to compute (nano-vLLM issue 114)",
    },
    "mini-sglang": {
        "ref_count": _UNMAPPED,
        "held": _UNMAPPED,
        "one_entry": _UNMAPPED,
        "read": _UNMAPPED,
        "write": _UNMAPPED,
        "granted": "prompts are counted in tokens and taken in whole blocks (WorstCaseScheduler.fits)",
    },
}
"""Rules that an edition breaks because it equals an engine that did, and why. All others keep every rule."""

UNSOUND_EDITIONS = tuple(EDITION_FAULTS)

ALL_EDITIONS = tuple(name for name in EDITIONS if name not in UNSOUND_EDITIONS)
"""The sound ones."""

PACKING_EDITIONS = tuple(name for name in ALL_EDITIONS if not issubclass(EDITIONS[name].scheduler, SglangScheduler))
"""Those in which one request may fill the pool, and an abort ends a request at once."""

TOKEN_BUDGET_EDITIONS = ("labengine", "vllm")
"""Those with hybrid groups and an external tier, too."""

TREE_EDITIONS = tuple(name for name, parts in EDITIONS.items() if parts.prefix_tree is not Absent)
"""Those that keep their prefixes in a tree; it holds a reference to each cached block, which is never free."""


def has_budget(edition: str | Parts) -> bool:
    """True if one budget of tokens serves prompts and decodes in the same step."""
    return issubclass(as_parts(edition).scheduler, TokenBudgetScheduler)


MAX_STEPS = 3000
"""No workload here takes half as many."""


def as_parts(edition: str | Parts) -> Parts:
    """An edition by its name, or the parts themselves."""
    return edition if isinstance(edition, Parts) else edition_named(edition)


def num_null_blocks(parts: Parts) -> int:
    """Blocks of the pool that are set aside."""
    return int(parts.block_pool.null_block >= 0)


def num_last_slots(parts: Parts) -> int:
    """Slots for the last sampled token: 1 where an edition reserves one, although its KV is never written."""
    return int(issubclass(parts.scheduler, WorstCaseScheduler))


def num_reserved_blocks(parts: Parts) -> int:
    """Blocks of at least a token that an edition keeps free beside a request."""
    return 3 if issubclass(parts.scheduler, SglangScheduler) else num_last_slots(parts)


class Drive:
    """An engine on a memory that checks every read, and a clock that lets the workload's requests arrive."""

    def __init__(
        self,
        workload: Workload,
        edition: str | Parts,
        hooks: Hooks | None = None,
        connector: Connector | None = None,
        *,
        checks_reads: bool = True,
        engine_class: type[Engine] = Engine,
        keep_finished: int | None = None,
    ) -> None:
        parts = as_parts(edition)
        num_more = num_null_blocks(parts) + num_reserved_blocks(parts)
        config = replace(workload.config(num_more), keep_finished=keep_finished)
        self.workload, self.connector = workload, connector
        self.runner = PagedMemoryRunner(workload.next_token, config.groups, checks=checks_reads)
        self.engine = engine_class(
            config, self.runner, parts, Hooks(strict=True) if hooks is None else hooks, connector
        )
        self.runner.attach(self.engine)
        self._arrivals = sorted(workload.requests, key=lambda arrival: arrival.step)
        self._clock = 0

    @property
    def is_done(self) -> bool:
        """Everybody arrived and ended."""
        return not self._arrivals and self.engine.scheduler.is_idle

    def arrive(self) -> Iterator[int]:
        """Add the requests that are due, one at a time; a step follows. A run that does not end is a deadlock."""
        assert self._clock < MAX_STEPS, f"it does not end; waiting, running, loading: {queues(self.engine)}"
        while self._arrivals and self._arrivals[0].step <= self._clock:
            wanted = self._arrivals.pop(0)
            leader = None
            for _ in range(wanted.n or 1):
                beams = wanted.n or 1 if wanted.is_search else 1
                sampling = SamplingParams(max_tokens=wanted.max_tokens, beams=beams)
                added = self.engine.add(wanted.prompt, RequestOptions(sampling, salted((), wanted.salt)), leader)
                leader = added if leader is None else leader
                yield added
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
            if rng.random() < 0.05:
                self.engine.reset_prefix_cache()
                yield "reset"
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
    groups: tuple[GroupSpec, ...] = (),
    connector: Connector | None = None,
    proposer: Proposer | None = None,
    **settings: Any,
) -> Engine:
    """An engine on the simulated model, with the defaults that a unit test wants; num_blocks as in Workload."""
    parts = as_parts(edition)
    config = EngineConfig(
        num_blocks + num_null_blocks(parts),
        groups or (GroupSpec(block_size),),
        max_num_seqs,
        budget,
        eos_token_ids=eos,
        num_drafts=0 if proposer is None else proposer.num_drafts,
        **settings,
    )
    hooks = Hooks(strict=True) if hooks is None else hooks
    return Engine(config, SimulatedRunner(next_token), parts, hooks, connector, proposer=proposer)


def queues(engine: Engine) -> tuple[list[int], list[int], list[int]]:
    """Ids of waiting, running and loading requests, in order, which a snapshot lacks."""
    scheduler = engine.scheduler
    waiting, running, loading = scheduler.waiting, scheduler.running, scheduler.external.loading
    return [r.request_id for r in waiting], [r.request_id for r in running], [r.request_id for r in loading]


def tables(engine: Engine) -> dict[int, tuple[int, ...]]:
    """Block tables of the requests that hold blocks."""
    requests = engine.snapshot().requests
    return {request_id: r.block_tables[0] for request_id, r in requests.items() if r.block_tables[0]}


def recorded(hooks: Hooks) -> list[Event]:
    """All events that the hooks deliver from now on."""
    events: list[Event] = []
    hooks.subscribe(events.append)
    return events


class LiveFold:
    """A fold that follows its hooks, as a view does: it goes back to the step's start when the step rolls back."""

    def __init__(self, hooks: Hooks) -> None:
        self.state = Fold()
        self._at_step_start = Fold()
        self._step_started = -1
        """An interrupt may strike before the event that says that a step begins."""
        hooks.subscribe(self.hear)

    def hear(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self._at_step_start, self._step_started = self.state.copy(), event.step
        if isinstance(event, StepRolledBack) and event.step == self._step_started:
            self.state = self._at_step_start
        self.state.apply(event)


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


def assert_sound(snapshot: Snapshot, edition: str | None = None) -> None:
    """The rules that hold between steps, and those of the queue and of the requests' own numbers.

    The default edition promises more (no live duplicates), an unsound one less (EDITION_FAULTS).
    """
    found, faults = check_invariants(snapshot, merges=edition == "labengine"), EDITION_FAULTS.get(edition or "", {})
    wrong = [str(violation) for violation in found if violation.rule not in faults]
    assert not wrong, "; ".join(wrong)
    free = [b.block_id for b in snapshot.blocks if b.ref_count == 0 and b.block_id != snapshot.null_block]
    assert sorted(snapshot.free_queue) == free
    for request in snapshot.requests.values():
        if request.status in ("finished", "preempted"):
            assert request.num_computed_tokens == 0
            assert not any(request.block_tables)
        for table, group in zip(request.block_tables, snapshot.groups, strict=True):
            assert len(table) * group.block_size >= request.num_computed_tokens
            assert group.kind != "full" or snapshot.null_block not in table, "full attention drops no block"


def assert_drained(engine: Engine) -> None:
    """No request waits, runs or loads, every block is free, and no free one was written to."""
    assert not getattr(engine.runner, "strays", [])
    assert queues(engine) == ([], [], [])
    snapshot = engine.snapshot()
    assert_sound(snapshot, engine.parts.name)
    assert len(snapshot.free_queue) + num_null_blocks(engine.parts) == len(snapshot.blocks) - len(snapshot.pins)
    assert engine.num_used_blocks == snapshot.num_used_blocks == 0
