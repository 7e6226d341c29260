"""bytedance-iaas/sglang pull request 508: a match that ends inside a node locks the whole node."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.kv_cache_manager import Moment
from labengine.core.parts import Parts
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.radix.node import Node
from labengine.core.request import Request
from labengine.events import TokenSampled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import Column, Scenario


class InsertsAtTheEnd(RadixKVCacheManager):
    """Inserts a request once it has ended, as the Rust scheduler does; in both columns."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return 0 before the end."""
        return num_tokens if moment == "finished" else 0


class LocksWholeNodes(RadixGroup):
    """Does not split the node inside which a match ends."""

    def node_of_hit(self, request: Request, hit: Sequence[int]) -> Node:
        """Return the node with the hit's last block, even if the node goes on behind it."""
        return self.tree.node_of[hit[-1]]


class WholeNodes(Scenario):
    """B reads two of the three blocks that A has left, and C needs the third one."""

    columns = (
        Column("labengine-radix", Parts(InsertsAtTheEnd, full_attention_group=LocksWholeNodes)),
        Column("labengine-radix", InsertsAtTheEnd),
    )
    figures = {
        "blocks locked": lambda lab: sum(len(node.block_ids) for node in lab.snapshot().tree if node.num_locks),
        "tokens generated for C": lambda lab: sum(event.request_id == 2 for event in events_of(lab, TokenSampled)),
    }

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B's prompt; add C, and take a step."""
        lab.generate([range(1, 13)], max_tokens=1)
        lab.add(token_ids=[*range(1, 9), 51], max_tokens=4)
        lab.step()
        lab.add(token_ids=range(101, 111), max_tokens=1)
        lab.step()
