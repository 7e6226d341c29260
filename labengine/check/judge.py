"""The judge of one engine: what a step has changed is judged in the core itself, and what it reads by the oracle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from labengine import events as ev
from labengine.check.first_event import BrokenState, Suspicion, WrongRead, WrongWrite
from labengine.check.identity import PrefixIdentities
from labengine.check.invariants import judge_blocks, judge_keys, judge_requests
from labengine.check.live import LiveState
from labengine.check.oracle import Oracle
from labengine.check.plan_rules import judge_plan
from labengine.check.slot_memory import SavedBlocks
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.prefix_cache import LateMerge
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import StepPlan
from labengine.snapshot import Snapshot


class WatchedEngine(Protocol):
    """What there is to judge."""

    report: Any
    """Of the newest step: a StepReport of the engine, whose `violations` are filled in here."""

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
    """Told which blocks and requests an event names, it looks at those, at the moments when all must be well.

    saved: what went to the external tier, which outlives the engine.
    """

    def __init__(self, engine: WatchedEngine, saved: SavedBlocks) -> None:
        self.merges = issubclass(engine.parts.merge_policy, LateMerge)
        self.requests = engine.requests
        self._manager = engine.scheduler.manager
        self._state = LiveState(self._manager, self.requests)
        self._blocks: set[int] = set()
        self._changed_requests: set[int] = set()
        self._is_torn = False
        identities = PrefixIdentities(self.requests)
        self.oracle = Oracle(self._state.groups, self._state.null_block, identities, saved)

    # -- where to look -------------------------------------------------------------------------------------------------

    def note_block(self, event: ev.BlockAllocated | ev.BlockTouched | ev.BlockCached | ev.BlockFreed) -> None:
        """An event has named a block and a request."""
        self._blocks.add(event.block_id)
        self._changed_requests.add(event.request_id)

    def note_merge(self, event: ev.BlockMerged) -> None:
        """A table entry leads to another block."""
        self._blocks.update((event.block_id, event.into_block_id))
        self._changed_requests.add(event.request_id)

    def note_eviction(self, event: ev.BlockEvicted) -> None:
        """A block is known by no hash any more."""
        self._blocks.add(event.block_id)

    def note_release(self, event: ev.RequestFinished | ev.RequestPreempted) -> None:
        """A request gave its blocks back."""
        self._changed_requests.add(event.request_id)
        self.oracle.release(event.request_id)

    def note_forgotten(self, event: ev.RequestForgotten) -> None:
        """A finished request is not kept any more: what its tables were is settled now."""
        self._changed_requests.discard(event.request_id)
        self._blocks |= self._state.forget(event.request_id)

    def note_load(self, event: ev.BlocksLoaded) -> None:
        """Blocks hold what the external tier had."""
        self.oracle.loaded(event.request_id, event.transfers)

    def note_save(self, event: ev.BlocksSaved) -> None:
        """The external tier has what blocks hold."""
        self.oracle.saved(event.transfers)

    def note_rollback(self, event: ev.StepRolledBack) -> None:
        """The core went back without telling entry by entry: look at everything anew."""
        self._is_torn = True

    # -- judging -------------------------------------------------------------------------------------------------------

    def judge_schedule(self, plan: StepPlan) -> list[Suspicion]:
        """Before the forward pass: what scheduling has changed."""
        self.oracle.before_forward(plan)
        return self.judge_changes(part.request_id for part in plan.scheduled)

    def judge_writes(self, plan: StepPlan) -> list[Suspicion]:
        """Where the forward pass will write; after `judge_schedule`."""
        early = bool(plan.scheduled) and self._registers_early(plan.scheduled[0].request_id)
        return [WrongWrite(violation) for violation in judge_plan(self._state, plan, registers_early=early)]

    def judge_reads(self, plan: StepPlan) -> list[Suspicion]:
        """After the forward pass: what it has read."""
        return [WrongRead(misread) for misread in self.oracle.after_forward(plan)]

    def judge_changes(self, likely: Iterable[int] = ()) -> list[Suspicion]:
        """The invariants of everything that was named since the last time.

        likely: requests whose tables may have changed without a word.
        """
        self._mend()
        self._is_torn = True
        requests, blocks = self._state.follow_tables({*self._changed_requests, *likely})
        requests |= self._changed_requests
        blocks |= self._blocks
        keys = self._state.note_keys(blocks)
        found = [
            *judge_blocks(self._state, sorted(blocks), merges=self.merges),
            *judge_keys(self._state, sorted(keys)),
            *judge_requests(self._state, sorted(requests)),
        ]
        self._blocks, self._changed_requests = set(), set()
        self._is_torn = False
        return [BrokenState(violation) for violation in found]

    def _mend(self) -> None:
        """After an interrupt or a rollback nothing is taken for seen."""
        if self._is_torn:
            self._state = LiveState(self._manager, self.requests)
            self._blocks.update(range(len(self._manager.pool.blocks)))
            self._changed_requests.update(i for i, request in self.requests.items() if request.has_blocks)
            self._is_torn = False

    def _registers_early(self, request_id: int) -> bool:
        return self._manager.num_registrable_tokens(self.requests[request_id], 1, "allocated") > 0
