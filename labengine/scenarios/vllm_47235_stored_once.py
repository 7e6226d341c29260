"""vLLM pull request 47235, and its counterpart 47234: blocks that the tier evicts are not stored again.

vLLM's SimpleCPUOffloadConnector, in eager mode, stores a request's blocks as they are filled, and a cursor marks the
progress. If the tier evicts one of them while the request continues, the cursor has already passed it. A chain without
its head cannot be hit, so the blocks stored after it are useless. 47235 looks again in a step after an eviction. 47234
changes nothing: it argues that only speed is lost, and that looking at all blocks in every step would cost time.
labengine also stores a block only once.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.events import BlocksSaved, ExternalHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import (
    Column,
    Scenario,
)


class LooksAgain(TokenBudgetScheduler):
    """Stores also a running request's blocks that the tier has evicted meanwhile.

    It looks in every step, which 47234 argues against; 47235 looks after an eviction. Here both store the same blocks.
    """

    def choose_saves(self, batch: Sequence[ScheduledRequest]) -> tuple[BlockTransfer, ...]:
        """Return earlier blocks that the tier lacks, then the blocks that this step fills."""
        saves, connector = super().choose_saves(batch), self.external.connector
        if connector is None:
            return saves
        earlier = [
            transfer
            for part in batch
            for group in self.manager.groups
            for transfer in self.manager.transfers(
                self.requests[part.request_id], group, 0, part.start // group.block_size
            )
        ]
        missing = (transfer for transfer in earlier if not connector.has(*transfer.key))
        return tuple({transfer.key: transfer for transfer in (*missing, *saves)}.values())


def four_blocks() -> HostStore:
    """Return a host tier with room for four blocks."""
    return HostStore(max_blocks=4)


class StoredOnce(Scenario):
    """The tier evicts the first blocks of conversation A for B's; then the pool forgets, and A's next turn arrives."""

    columns = (Column("vllm", tier=four_blocks), Column("vllm", LooksAgain, tier=four_blocks))
    figures = {
        "copies of A's blocks": lambda lab: sum(
            len(e.transfers) for e in events_of(lab, BlocksSaved) if e.request_id == 0
        ),
        "tokens found in the tier": lambda lab: sum(event.num_tokens for event in events_of(lab, ExternalHit)),
    }

    def play(self, lab: Lab) -> None:
        """Run A with B in between; clear the pool's cache; run A's next turn."""
        first = lab.add(token_ids=range(1, 10), max_tokens=5)
        lab.step()
        lab.add(token_ids=range(101, 118), max_tokens=1)
        lab.step(4)
        lab.reset_prefix_cache()
        lab.add(token_ids=[*lab.snapshot().requests[first].token_ids, 7], max_tokens=1)
        lab.step()
