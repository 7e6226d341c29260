"""The judge of one engine: checks each step's changes in the core itself, and each step's reads with the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from labengine import events as ev
from labengine.check.first_event import BrokenState, Suspicion, WrongRead, WrongWrite
from labengine.check.invariants import judge_blocks, judge_keys, judge_requests
from labengine.check.oracle import Oracle
from labengine.check.plan_rules import judge_plan
from labengine.check.slot_memory import PrefixIdentities, SavedBlocks
from labengine.check.state import LiveState
from labengine.core.journal import Journal
from labengine.core.merge_policy import LateMerge
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import StepPlan
from labengine.record.snapshot import Snapshot
from labengine.record.violation import Violation


class WatchedEngine(Protocol):
    """The parts of an engine that are judged."""

    report: Any
    """StepReport of the newest step; its `violations` are filled in here. Any: a class of the engine's package."""
    failure: BaseException | None
    """The exception that a part raised in the newest step."""

    @property
    def journal(self) -> Journal: ...
    def snapshot(self) -> Snapshot: ...
    @property
    def requests(self) -> Mapping[int, Request]: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def parts(self) -> Parts: ...


class Judge:
    """Judges the blocks and requests that events have named, whenever every rule must hold.

    saved: identities of the external tier's content, which outlives the engine.
    """

    def __init__(self, engine: WatchedEngine, saved: SavedBlocks) -> None:
        self.merges = issubclass(engine.parts.merge_policy, LateMerge)
        self.requests = engine.requests
        self._manager = engine.scheduler.manager
        self._state = LiveState(self._manager, self.requests)
        self._blocks: set[int] = set()
        self._changed_requests: set[int] = set()
        self._replaced: set[int] = set()
        """Beams whose tokens the step has replaced."""
        self._is_torn = False
        identities = PrefixIdentities(self.requests)
        self.oracle = Oracle(self._state.groups, self._state.null_block, identities, saved)

    # -- what to judge -------------------------------------------------------------------------------------------------

    def note_block(self, event: ev.BlockAllocated | ev.BlockTouched | ev.BlockCached | ev.BlockFreed) -> None:
        """Note the block and the request that an event names."""
        self._blocks.add(event.block_id)
        self._changed_requests.add(event.request_id)

    def note_replaced(self, event: ev.EntryReplaced) -> None:
        """Note both blocks of a merge or a copy, and its request."""
        self._blocks.update((event.block_id, event.into_block_id))
        self._changed_requests.add(event.request_id)

    def note_eviction(self, event: ev.BlockEvicted) -> None:
        """Note a block that has lost its hashes."""
        self._blocks.add(event.block_id)

    def note_contradicted(self, violations: Iterable[Violation]) -> None:
        """Note the blocks and requests of contradictions: the core may have changed them without an event."""
        for violation in violations:
            self._blocks.update(violation.block_ids)
            self._changed_requests.update(i for i in violation.request_ids if i in self.requests)

    def note_beam(self, event: ev.BeamReplaced) -> None:
        """Note a request whose tokens were replaced; a rollback restores the former ones."""
        self._replaced.add(event.request_id)
        self.oracle.release(event.request_id)

    def note_release(self, event: ev.RequestFinished | ev.RequestPreempted) -> None:
        """Note a request that has given back its blocks."""
        self._changed_requests.add(event.request_id)
        self.oracle.release(event.request_id)

    def note_forgotten(self, event: ev.RequestForgotten) -> None:
        """Note a finished request that is no longer kept, with the blocks of its last tables."""
        self._changed_requests.discard(event.request_id)
        self._blocks |= self._state.forget(event.request_id)

    def note_rollback(self, event: ev.StepRolledBack) -> None:
        """Have everything judged again: a rollback does not report single table entries."""
        self._is_torn = True
        for request_id in self._replaced:
            self.oracle.release(request_id)

    # -- judging -------------------------------------------------------------------------------------------------------

    def judge_schedule(self, plan: StepPlan) -> list[Suspicion]:
        """Judge the changes of the schedule, before the forward pass."""
        self._replaced.clear()
        self.oracle.before_forward(plan)
        return self.judge_changes(part.request_id for part in plan.scheduled)

    def judge_writes(self, plan: StepPlan) -> list[Suspicion]:
        """Judge the slots that the forward pass will write; after `judge_schedule`."""
        first = next((part.request_id for part in plan.scheduled if part.request_id in self.requests), None)
        early = first is not None and self._registers_early(first)
        return [WrongWrite(violation) for violation in judge_plan(self._state, plan, registers_early=early)]

    def judge_reads(self, plan: StepPlan) -> list[Suspicion]:
        """Judge the reads of a forward pass that has run, except those of requests that a faulty part has dropped."""
        if any(part.request_id not in self.requests for part in plan.scheduled):
            kept = (part for part in plan.scheduled if part.request_id in self.requests)
            plan = replace(plan, scheduled=tuple(kept))
        return [WrongRead(misread) for misread in self.oracle.after_forward(plan)]

    def judge_changes(self, likely: Iterable[int] = ()) -> list[Suspicion]:
        """Judge the invariants of everything noted since the last call.

        likely: requests whose tables may have changed without an event. The rule `said` judges requests that a faulty
        part has never kept, or has dropped.
        """
        self._mend()
        self._is_torn = True
        named = {*self._changed_requests, *likely} & self.requests.keys()
        requests, blocks = self._state.follow_tables(named)
        requests |= self._changed_requests & named
        blocks |= self._blocks
        found: list[Violation] = []
        if blocks or requests:
            keys = self._state.note_keys(blocks)
            found += judge_blocks(self._state, sorted(blocks), merges=self.merges)
            found += judge_keys(self._state, sorted(keys))
            found += judge_requests(self._state, sorted(requests))
        self._blocks, self._changed_requests = set(), set()
        self._is_torn = False
        return [BrokenState(violation) for violation in found]

    def _mend(self) -> None:
        """Rebuild the indices after an interrupt or a rollback, and judge everything again."""
        if self._is_torn:
            self._state = LiveState(self._manager, self.requests)
            self._blocks.update(range(len(self._manager.pool.blocks)))
            self._changed_requests.update(i for i, request in self.requests.items() if request.has_blocks)
            self._is_torn = False

    def _registers_early(self, request_id: int) -> bool:
        return self._manager.num_registrable_tokens(self.requests[request_id], 1, "allocated") > 0
