"""The rules on what events claim: whose blocks a hit takes, what a key stands for, and what the external tier has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from labengine import events as ev
from labengine.check.blame import Blamed, Suspects, override_words
from labengine.check.invariants import judge_cover
from labengine.check.named import Names
from labengine.check.oracle import Oracle
from labengine.check.registered import REGISTERING, Omissions
from labengine.check.registrations import Registrations
from labengine.check.scope import Scope
from labengine.check.stream import Stream
from labengine.check.tier import TierContent, store_overrides
from labengine.core.merge_policy import LateMergeComparingPrefixes
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.seams import deciding_methods, override_of
from labengine.core.step_plan import StepPlan
from labengine.record.snapshot import GroupState
from labengine.record.violation import Violation

Noted = (
    ev.StepStarted
    | ev.StepEnded
    | ev.BlockCached
    | ev.BlockAllocated
    | ev.BlockEvicted
    | ev.BlockFreed
    | ev.HashesMoved
    | ev.RequestForked
    | ev.PrefixCacheReset
    | ev.PrefixHit
    | ev.ExternalHit
    | ev.BlocksLoaded
    | ev.RequestReceived
    | ev.BlocksSaved
    | ev.TierChanged
    | ev.StepRolledBack
)
"""The kinds of events that claim something."""


_OF_TIER = (deciding_methods("ExternalHit"), deciding_methods("BlocksLoaded"))
"""Methods that decide what the tier has, and what it has delivered."""

RESETTING = ("KVCacheManager.reset_prefix_cache", "BlockPool.evict_cached", "BlockPool.evict")
"""Methods that a reset of the cache calls."""

MAX_NAMED = 8
"""Most blocks that a message names."""


class Claims:
    """Notes the claims of one engine's events and judges them: hits at once, names when a step ends.

    tier: the content of the external tier, which outlives the engine.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        requests: Mapping[int, Request],
        suspects: Suspects,
        oracle: Oracle,
        tier: TierContent,
    ) -> None:
        parts = suspects.parts
        self._requests = requests
        self._groups = scheduler.manager.groups
        self._specs = tuple(GroupState(g.spec.kind, g.spec.block_size, g.spec.window) for g in self._groups)
        self._null_block = scheduler.manager.pool.null_block
        self._suspects = suspects
        self._registrations = Registrations()
        sizes = tuple(group.block_size for group in self._groups)
        self._scope = Scope(self._registrations, parts.hash_chain, sizes)
        trusts_hashes = not issubclass(parts.merge_policy, LateMergeComparingPrefixes)
        self._names = Names(oracle, scheduler.manager.pool.blocks, self._registrations, trusts_hashes=trusts_hashes)
        self.misnamed = self._names.misnamed
        self._omissions = Omissions(scheduler, requests, oracle)
        self._connector = scheduler.external.connector
        self._tier = tier
        self._num_local = 0
        """Tokens of the newest prefix hit: an external hit follows it."""
        self._is_in_step = False
        """False while another lab hands a request over: that lab fills what the hit lacks."""
        self._step: int | None = None
        """The step that a rollback undoes. An interrupt may roll back the next one before its StepStarted."""
        tier.begin(self._connector)

    def note(self, event: Noted, number: int) -> list[Blamed]:
        """Note an event with its number in the recording; return a hit's violations.

        The stream reports events of unknown requests.
        """
        request_id = getattr(event, "request_id", None)
        if request_id is not None and request_id not in self._requests:
            return []
        match event:
            case ev.BlockCached():
                request = self._requests[event.request_id]
                extra_keys, claim = self._scope.keys_of(request.extra_keys), self._names.claim_of(event, number)
                self._registrations.add(event, extra_keys, claim, number, request.images)
            case ev.BlockAllocated():
                self._registrations.give_away(event.block_id, number)
                self._omissions.note_allocated(event.block_id)
            case ev.BlockEvicted():
                self._registrations.evict(event.block_id)
                self._omissions.note_evicted(event)
            case ev.BlockFreed():
                if (omitted := self._omissions.judge(event, self._requests[event.request_id])) is not None:
                    return [Blamed(self._with_method(omitted, REGISTERING), number)]
            case ev.RequestForked():
                self._omissions.note_shared(event)
            case ev.HashesMoved():
                self._registrations.move(event.block_id, event.into_block_id)
            case ev.PrefixCacheReset():
                self._names.contents.reset()
                return [Blamed(violation, number) for violation in self._judge_reset()]
            case ev.PrefixHit():
                self._num_local = event.num_tokens
                self._omissions.note_shared(event)
                uncovered = judge_cover(event, self._specs, self._null_block) if self._is_in_step else None
                found = uncovered or self._scope.judge(event, self._requests[event.request_id])
                return [*self._blamed(found, event, number)]
            case ev.ExternalHit():
                return [*self._blamed(self._judge_external(event), event, number)]
            case ev.BlocksLoaded() | ev.RequestReceived():
                self._names.note_written(block_id for _, _, block_id, _ in event.transfers)
            case ev.BlocksSaved():
                self._tier.note_saved(event)
            case ev.TierChanged():
                self._tier.note_changed(event)
            case ev.StepEnded():
                self._is_in_step = False
            case ev.StepStarted():
                self._is_in_step, self._step = True, event.step
                self._registrations.open_step()
                self._omissions.open_step()
            case ev.StepRolledBack():
                if event.step == self._step:
                    self._take_back()
                self._is_in_step, self._step = False, None
        return []

    def note_plan(self, plan: StepPlan) -> list[Blamed]:
        """Note the blocks that a step is about to write, and whether it saves."""
        written = [run[0] for part in plan.scheduled for runs in part.slot_runs for run in runs]
        self._names.note_written(written)
        self._omissions.note_written(written)
        self._tier.note_plan(bool(plan.saves))
        return []

    def note_overwritten(self, block_id: int) -> list[Blamed]:
        """Note a block that a load is about to overwrite, whether or not a request waits for it."""
        self._names.note_written((block_id,))
        self._omissions.note_written((block_id,))
        return []

    def judge_names(self, stream: Stream) -> list[Blamed]:
        """Judge the names of the blocks that the step has changed. stream: its events, applied."""
        broken = self._names.judge(stream)
        return [Blamed(self._with_method(one.violation, one.methods), one.number) for one in broken]

    def _judge_reset(self) -> Iterator[Violation]:
        """Yield the violation of a reset that leaves blocks to hit, for example with the KV of older weights."""
        if not (kept := self._registrations.block_ids()):
            return
        names = ", ".join(map(str, kept[:MAX_NAMED])) + (" and others" if len(kept) > MAX_NAMED else "")
        what = f"block {names} is" if len(kept) == 1 else f"blocks {names} are"
        text = f"the prefix cache was reset, but {what} still known by a key"
        yield self._with_method(Violation("said", text, (), kept), RESETTING)

    def _judge_external(self, event: ev.ExternalHit) -> Violation | None:
        if self._connector is None:
            return None
        return self._tier.judge(event, self._num_local, self._requests[event.request_id], self._groups, self._connector)

    def _blamed(self, violation: Violation | None, event: ev.Event, number: int) -> Iterator[Blamed]:
        if violation is not None:
            yield Blamed(self._with_method(violation, deciding_methods(event)), number)

    def _with_method(self, violation: Violation, methods: Sequence[str]) -> Violation:
        """Add the override that may have decided it: of a part, else of the tier."""
        words = ""
        if self._connector is not None and methods in _OF_TIER and override_of(self._suspects.parts, methods) is None:
            words = store_overrides(self._connector)
        return replace(violation, message=violation.message + (words or override_words(methods, self._suspects)))

    def _take_back(self) -> None:
        self._registrations.take_back()
        self._omissions.take_back()
        self._names.take_back()
        self._tier.take_back()
