"""Blocks to move between the pool and the external tier, and the requests that wait for a load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from labengine.core.block import Key
from labengine.core.connector import BlockTransfer, Connector
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.part_methods import class_name, definers
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest


class ExternalLoads:
    """The scheduler's side of the connector. Without a connector nothing matches and nothing moves.

    loading: waiting requests that hold blocks, each with its number of tokens with KV after the load.
    arrived: finished loads by request id, True on success. The engine fills it between steps.
    """

    def __init__(self, connector: Connector | None, manager: KVCacheManager, alignment: int, journal: Journal) -> None:
        self.connector = connector
        self.loading: dict[Request, int] = {}
        self.arrived: dict[int, bool] = {}
        self.loads: list[BlockTransfer] = []
        self.failed_keys: set[Key] = set()
        """Keys that could not be loaded in this step. The step then starts over without them."""
        self.failed_requests: set[int] = set()
        """Ids of requests whose late load failed: they recompute and do not ask the tier again."""
        self._manager = manager
        self._alignment = alignment
        self._journal = journal

    @property
    def is_async(self) -> bool:
        """True if a load may take longer than the step in which it starts."""
        return self.connector is not None and self.connector.loads_are_async

    @property
    def last_failure(self) -> str:
        """The connector's newest failure, as a readable line."""
        failures = self.connector.failures if self.connector is not None else []
        return failures[-1] if failures else "the external tier gave no reason"

    def match(self, request: Request, hit: Hit) -> int:
        """Return how many tokens after a local hit the tier can supply; 0 if the look-up fails or is not wanted."""
        if self.connector is None or request.sampling.skip_reading_prefix_cache:
            return 0
        if request.request_id in self.failed_requests or self._needs_failed_key(request):
            return 0
        groups = self._manager.groups
        try:
            return self.connector.get_num_new_matched_tokens(request, hit.num_tokens, groups, self._alignment)
        except Exception as error:
            self.connector.note(f"request {request.request_id}: the look-up failed: {type(error).__name__}: {error}")
            return 0

    def _needs_failed_key(self, request: Request) -> bool:
        """Return True if blocks of the request could not be loaded in this very step: it has to recompute."""
        return bool(self.failed_keys) and any(
            (group.index, block_hash) in self.failed_keys
            for group in self._manager.groups
            for block_hash in group.tier_hashes(request, 0, request.num_tokens // group.block_size)
        )

    def load(self, request: Request, num_local: int, num_computed: int) -> None:
        """Load the request's fresh blocks for tokens [num_local, num_computed) in this step."""
        assert self.connector is not None
        transfers = self._manager.external_blocks(request, num_local, num_computed)
        hits = self._manager.local_hits(request, num_local)
        self._journal.record((self.connector.cancel, request.request_id))
        self._journal.record((self.loads.clear,))
        loads = self.connector.update_state_after_alloc(request, transfers, hits)
        self.loads.extend(self._bounded(request, loads))

    def _bounded(self, request: Request, loads: Iterable[BlockTransfer]) -> list[BlockTransfer]:
        """Return a tier's loads: at most one per table entry, hits included. Raises ValueError for more."""
        num_entries = sum(map(len, request.block_tables))
        taken = [*islice(loads, num_entries + 1)]
        if len(taken) > num_entries:
            method = (
                f"{class_name(definers(type(self.connector), 'update_state_after_alloc')[0])}.update_state_after_alloc"
            )
            raise ValueError(
                f"{method} must return at most one load per table entry (here {num_entries}); it returned more"
            )
        return taken

    def wait_for(self, request: Request, num_computed: int) -> None:
        """Let the request wait until its load is over."""
        self._journal.record((self.loading.pop, request))
        self.loading[request] = num_computed

    def take_loads(self) -> tuple[BlockTransfer, ...]:
        """Return and clear the loads of this step."""
        loads, self.loads = tuple(self.loads), []
        return loads

    def take_arrived(self) -> list[tuple[Request, int, bool]]:
        """Return (request, tokens with KV, True on success) for every finished load, in order of waiting."""
        if not self.arrived:
            return []
        ended = [
            (request, n, self.arrived[i])
            for request, n in self.loading.items()
            if (i := request.request_id) in self.arrived
        ]
        self._journal.record((self._put_back, dict(self.loading), dict(self.arrived)))
        for request, _, _ in ended:
            del self.loading[request]
        self.arrived.clear()
        return ended

    def saves(self, batch: Sequence[ScheduledRequest], requests: dict[int, Request]) -> tuple[BlockTransfer, ...]:
        """Return the blocks that this batch fills and that the tier does not hold yet."""
        connector = self.connector
        if connector is None:
            return ()
        # A block filled by drafts is saved one step later, if they are accepted and the tier still lacks it.
        filled = (
            transfer
            for part in batch
            for transfer in self._filled(
                requests[part.request_id], max(0, part.start - self._manager.max_accepted), part.num_known
            )
        )
        by_key = {(transfer.group, transfer.block_hash): transfer for transfer in filled}
        return tuple(transfer for key, transfer in by_key.items() if not self._has(connector, key))

    def _has(self, connector: Connector, key: Key) -> bool:
        """Return whether the tier holds the content. False if the look-up fails: `save_kv` never raises."""
        try:
            return connector.has(*key)
        except Exception as error:
            connector.note(f"the look-up failed: {type(error).__name__}: {error}")
            return False

    def blocks_of(self, request: Request, num_computed: int) -> list[BlockTransfer]:
        """Return the blocks that a waiting request's load has filled."""
        return self._manager.external_blocks(request, request.num_computed_tokens, num_computed)

    def drop(self, request: Request) -> None:
        """Remove a waiting request whose blocks are about to be freed. `cancel` ends the load itself."""
        self._journal.record((self._put_back, dict(self.loading), dict(self.arrived)))
        self._journal.record((setattr, request, "is_loading", request.is_loading))
        del self.loading[request]
        self.arrived.pop(request.request_id, None)
        request.is_loading = False

    def cancel(self, request: Request) -> None:
        """End the load, if any, of a request that no longer waits: it must not write to the request's blocks."""
        if self.connector is not None:
            self.connector.cancel(request.request_id)

    def give_up(self, request: Request) -> None:
        """Stop a request's waiting within a step. If the step is rolled back, its load counts as failed."""
        assert self.connector is not None
        self._journal.record((self._has_failed, request, self.loading.pop(request)))
        self.connector.cancel(request.request_id)

    def _has_failed(self, request: Request, num_computed: int) -> None:
        self.loading[request] = num_computed
        self.arrived[request.request_id] = False
        self.cancel(request)  # once more: the step may have failed before the first call, or in it

    def _filled(self, request: Request, start: int, end: int) -> list[BlockTransfer]:
        self._manager.extend_hashes(request, end)
        return [
            transfer
            for group in self._manager.groups
            for transfer in self._manager.transfers(request, group, start // group.block_size, end // group.block_size)
        ]

    def _put_back(self, loading: dict[Request, int], arrived: dict[int, bool]) -> None:
        self.loading.clear()
        self.loading.update(loading)
        self.arrived.update(arrived)
