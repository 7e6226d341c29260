"""Transfers of blocks between the pool and the external tier: before and after the forward pass, and between steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from operator import attrgetter

from labengine.core.block import Key
from labengine.core.connector import BlockTransfer, Connector, KVAccess, LoadError
from labengine.core.external_loads import ExternalLoads
from labengine.core.step_plan import StepPlan
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.runner import Runner
from labengine.events import BlocksLoaded, BlocksSaved, LoadFailed, TierChanged
from labengine.record.hooks import Hooks


class Transfers:
    """The engine's side of the connector; without a connector nothing moves."""

    _PATIENCE_S = 0.05
    """Seconds that a step waits for a late load if there is nothing else to do."""

    def __init__(self, connector: Connector | None, external: ExternalLoads, runner: Runner, hooks: Hooks) -> None:
        self._connector = connector
        self._external = external
        self._runner = runner
        self._hooks = hooks
        self.num_saved = 0
        """Number of blocks from this engine, or from `take_in`, that the tier has kept."""

    def take_in(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> int:
        """Have the tier keep blocks computed by another engine; return the number of new ones."""
        assert self._connector is not None
        kept = self._connector.save_kv(saves, kv)
        self.num_saved += len(kept)
        self._emit_changes(tuple(transfer.key for transfer in kept))
        return len(kept)

    def collect(self, *, is_idle: bool) -> None:
        """Collect finished asynchronous loads for the next step; wait a little if there is nothing else to do."""
        self._external.failed_keys.clear()
        connector, external = self._connector, self._external
        if connector is None or not external.loading:
            return
        if is_idle and not external.arrived:
            connector.wait(self._PATIENCE_S)
        with interrupts_deferred():
            done, failed = connector.get_finished(self._runner)
            loading = (request.request_id for request in external.loading)  # others have nothing to wait for
            external.arrived.update({i: i in done for i in loading if i in done or i in failed})
        self._emit_changes()

    def load(self, plan: StepPlan) -> None:
        """Load the plan's blocks, or start loading them. Raises LoadError for any error of the tier."""
        if self._connector is None or not plan.loads:
            return
        try:
            self._connector.start_load_kv(plan.loads, self._runner)
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(plan.loads, f"{type(error).__name__}: {error}") from error
        if not self._connector.loads_are_async:
            self._emit(BlocksLoaded, plan.loads)
        self._emit_changes()

    def save(self, plan: StepPlan) -> None:
        """Copy the blocks that the forward pass filled."""
        if self._connector is not None and plan.saves:
            saved = tuple(islice(self._connector.save_kv(plan.saves, self._runner), len(plan.saves)))
            self.num_saved += len(saved)
            self._emit_changes()
            self._emit(BlocksSaved, saved)

    def forget(self, error: LoadError) -> None:
        """Schedule this step without these blocks. Raises the error again if they have failed before."""
        keys = {transfer.key for transfer in error.failed}
        if self._connector is None or keys <= self._external.failed_keys:
            raise error
        self._external.failed_keys |= keys
        self._connector.note(str(error))
        try:
            self._connector.forget(error.failed)
        except Exception as failure:
            self._connector.note(f"the tier could not forget blocks that failed to load: {failure!r}")
        if LoadFailed in self._hooks:
            for request_id in dict.fromkeys(transfer.request_id for transfer in error.failed):
                self._hooks.emit(LoadFailed(request_id, str(error)))
        self._emit_changes()

    def stop(self) -> None:
        """Cancel asynchronous loads before the engine is closed."""
        if self._connector is not None:
            for request in self._external.loading:
                self._connector.cancel(request.request_id)

    def _emit_changes(self, added: tuple[Key, ...] = ()) -> None:
        """Emit events for blocks that the tier has dropped or pinned, and for new ones."""
        assert self._connector is not None
        dropped, pinned = self._connector.take_changes()
        if TierChanged in self._hooks and (added or dropped or pinned):
            self._hooks.emit(TierChanged(added, dropped, pinned))

    def _emit(self, kind: type[BlocksLoaded | BlocksSaved], transfers: Sequence[BlockTransfer]) -> None:
        if kind in self._hooks:
            for request_id, group in groupby(transfers, key=attrgetter("request_id")):
                self._hooks.emit(kind(request_id, tuple(transfer.ids for transfer in group)))
