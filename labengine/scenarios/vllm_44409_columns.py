"""Common parts of the experiments on vLLM 44409: the changed decisions, four engines with tiers, and the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from labengine.core.connector import BlockTransfer, LocalHit
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlockTouched
from labengine.lab import Lab
from labengine.record.fold import Fold
from labengine.scenarios.counts import events_of, numbered_events
from labengine.scenarios.experiment import Column, Experiment


class InterleavedKVCacheManager(VllmKVCacheManager):
    """vLLM 0.23's order: each group takes its hits and its fresh blocks before the next group."""

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Add hits and fresh blocks group by group.

        An earlier group may take a later group's hits as its fresh blocks.
        """
        num_computed = hit.num_tokens + num_external
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            group.add_hit(request, block_ids, num_computed)
            if num_external:
                group.add_external(request, num_computed)


class BulkTouchKVCacheManager(VllmKVCacheManager):
    """Pull request 33775, as 44409 describes it (33775's own code was not read): touch all hits of all groups in bulk.

    As before, the tables then begin with the hits inside the window.
    """

    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Touch also the hits that the window skips: they are in no table, so they are never freed."""
        num_computed = hit.num_tokens + num_external
        for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
            num_skipped = group.num_skipped_tokens(num_computed) // group.block_size
            self.pool.touch([block_id for block_id in block_ids[:num_skipped] if block_id != self.pool.null_block])
        super().allocate_computed(request, hit, num_external)


class UnguardedStore(HostStore):
    """A tier that fills any block without a check, so errors stay silent."""

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """Return the loads without checking any block."""
        return transfers


class ClampedStore(HostStore):
    """Pull request 44329, by its description: trust fewer local hits instead of failing issue 43884's assert.

    From the first hit block in any group that lost its content, nothing counts as local, and everything is loaded: the
    group with the shortest hit decides for all. The groups here have blocks of equal size.
    """

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """Return more loads without changing the block tables, so two groups' content is loaded into one block."""
        first_lost = min((hit.transfer.index for hit in hits if not hit.is_intact), default=None)
        if first_lost is None:
            return transfers
        again = [hit.transfer for hit in hits if hit.transfer.index >= first_lost]
        return sorted([*again, *transfers], key=lambda transfer: (transfer.group, transfer.index))


COLUMNS = (
    Column(
        "vllm",
        InterleavedKVCacheManager,
        name="interleaved",
        says="Group by group, hits and then fresh blocks, as in vLLM 0.23: one block ends up in two groups.",
    ),
    Column(
        "vllm",
        name="two-phase",
        says="44409, as in vLLM since 0.24.0: the hits of all groups first, then fresh blocks for all.",
    ),
    Column(
        "vllm",
        BulkTouchKVCacheManager,
        name="bulk touch",
        says="33775, as 44409 describes it: touches all hits first, even those that no table will hold. They leak.",
    ),
    Column(
        "vllm",
        InterleavedKVCacheManager,
        name="clamp",
        says="44329, by its description: the old order, and a tier that trusts less. More to load, and still wrong.",
    ),
)


class HybridExperiment(Experiment):
    """Played on the four columns, each with an external tier that does not refuse wrong blocks."""

    columns: ClassVar[tuple[Column, ...]] = COLUMNS

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab of one column, with its tier."""
        tier = ClampedStore() if column == "clamp" else UnguardedStore()
        return self.column(column).lab(model, {**self.settings_for(model), "external": tier})


def prompt(first: int, num_shared: int, num_tokens: int) -> list[int]:
    """Return token ids for the simulated model; two such prompts share their first num_shared tokens."""
    return [*range(100, 100 + num_shared), *range(first, first + num_tokens - num_shared)]


def second_entries(lab: Lab) -> Iterator[tuple[int, BlockTouched]]:
    """Yield the number and event of each touch that gave a request a block already held by another of its groups."""
    fold = Fold()
    for number, event in numbered_events(lab):
        if isinstance(event, BlockTouched):
            tables = fold.requests[event.request_id].block_tables
            if any(event.block_id in table for group, table in enumerate(tables) if group != event.group):
                yield number, event
        fold.apply(event)


def num_doubled(lab: Lab) -> int:
    """Return the number of blocks that were in two groups' tables at once."""
    return len({event.block_id for _, event in second_entries(lab)})


def num_loaded_blocks(lab: Lab, request_id: int) -> int:
    """Return the number of blocks loaded from the tier for one request."""
    loads = events_of(lab, BlocksLoaded)
    return sum(len(event.transfers) for event in loads if event.request_id == request_id)
