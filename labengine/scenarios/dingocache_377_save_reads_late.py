"""DingoCache pull request 377: a preempted request's block is given away before its save has read it.

The connector copied blocks in a separate thread, some time after the forward pass that filled them. At a normal end
the blocks were kept until then. At a preemption they were not, in steps without a load: the block went to another
request, the next forward pass wrote to it, and the copy kept those bytes under the first request's key. Here, requests
that end stand for the preempted one, because labengine's stores are not asked at an end.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer, KVAccess
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.scenario import (
    Column,
    Scenario,
)


class SavesWithTheNext(HostStore):
    """Accepts saves now, and copies them along with the next ones."""

    accepted: Sequence[BlockTransfer] = ()

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Copy the blocks accepted earlier, and accept these, whose content is read at the next call."""
        due, self.accepted = self.accepted, tuple(saves)
        super().save_kv(due, kv)
        return tuple(saves)


class SaveReadsLate(Scenario):
    """A ends, B computes in A's blocks, and then C has A's prompt: three requests, one after the other."""

    columns = (Column("vllm", tier=SavesWithTheNext), Column("vllm", tier=HostStore))
    figures = {
        "blocks said to be saved": lambda lab: sum(len(event.transfers) for event in events_of(lab, BlocksSaved)),
        "blocks loaded": lambda lab: sum(len(event.transfers) for event in events_of(lab, BlocksLoaded)),
        "blocks misread": num_misread_blocks,
    }

    def play(self, lab: Lab) -> None:
        """Run A, B and C, one step each."""
        for first in (1, 101, 1):
            lab.add(token_ids=range(first, first + 9), max_tokens=1)
            lab.step()
