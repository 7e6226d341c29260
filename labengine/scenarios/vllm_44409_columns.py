"""What every experiment on vLLM 44409 has in common: four engines, a tier for each, and what to count afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from labengine.config import GroupSpec
from labengine.events import BlocksLoaded, BlockTouched, PrefixHit
from labengine.lab import Lab
from labengine.scenarios.experiment import Column, Experiment
from labengine.scenarios.vllm_44409_overrides import BULK_TOUCH, INTERLEAVED, ClampedStore, UnguardedStore
from labengine.timeline import Fold

FULL, WINDOW = GroupSpec(4), GroupSpec(4, "sliding_window", 16)

COLUMNS = (
    Column("interleaved", INTERLEAVED, "Group by group, hits and then fresh blocks: one block ends up in two groups."),
    Column("two-phase", "vllm", "The hits of all groups first, then fresh blocks for all: nothing is wrong with it."),
    Column("bulk touch", BULK_TOUCH, "33775: touches all hits first, also those that no table will hold: they leak."),
    Column("clamp", INTERLEAVED, "44329: the old order, and a tier that believes less: more to load, and still wrong."),
)


class HybridExperiment(Experiment):
    """Played on the four columns, each with an external tier that does not stop at what it sees."""

    columns: ClassVar[tuple[Column, ...]] = COLUMNS

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab of one column, with its tier."""
        tier = ClampedStore() if column == "clamp" else UnguardedStore()
        return self.column(column).lab(model, {**self.settings_for(model), "external": tier})


def prompt(first: int, num_shared: int, num_tokens: int) -> list[int]:
    """Token ids for the simulated model: two prompts share their first num_shared tokens."""
    return [*range(100, 100 + num_shared), *range(first, first + num_tokens - num_shared)]


def second_entries(lab: Lab) -> Iterator[tuple[int, BlockTouched]]:
    """Yield the number and event of each touch that gave a request a block which another of its groups held already."""
    assert lab.timeline is not None
    fold = Fold()
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        if isinstance(event, BlockTouched):
            tables = fold.requests[event.request_id].block_tables
            if any(event.block_id in table for group, table in enumerate(tables) if group != event.group):
                yield number, event
        fold.apply(event)


def num_doubled(lab: Lab) -> int:
    """Return blocks that have stood in two groups' tables."""
    return len({event.block_id for _, event in second_entries(lab)})


def num_misread(lab: Lab) -> int:
    """Return blocks in which a request found KV that was not its own, group by group."""
    return sum(violation.rule == "read" for violation in lab.violations)


def num_loaded_blocks(lab: Lab, request_id: int) -> int:
    """Return blocks that were filled from the tier for one request."""
    assert lab.timeline is not None
    loads = lab.timeline.of_kind(BlocksLoaded)
    return sum(len(event.transfers) for event in loads if event.request_id == request_id)


def num_hit_tokens(lab: Lab, request_id: int) -> int:
    """Return tokens that a request found in the pool when it was last admitted."""
    assert lab.timeline is not None
    hits = lab.timeline.of_kind(PrefixHit)
    return next(event.num_tokens for event in reversed(hits) if event.request_id == request_id)
