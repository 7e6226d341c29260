"""vLLM pull request 43569: a block is registered when it is scheduled, and its request is preempted before it runs.

The block returns to the free queue with a hash, although nothing was written to it. The next look-up hits it. Of the
causes named in the pull request, this scenario plays preemption by priority, but neither an abort nor a failed load.
"""

from __future__ import annotations

from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.core.vllm.scheduler import VllmScheduler
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.events import PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests, num_preemptions
from labengine.scenarios.scenario import Column, Scenario


class RollsBack(VllmScheduler):
    """The pull request's fix: the hashes of uncomputed blocks are taken back with the blocks."""

    def take_blocks(self, victim: Request) -> None:
        """Forget the content of blocks after the computed tokens, then free all blocks."""
        for group, table in zip(self.manager.groups, victim.block_tables, strict=True):
            uncomputed = table[victim.num_computed_tokens // group.block_size :]
            self.manager.pool.evict_cached(uncomputed, "distrusted")
        super().take_blocks(victim)


class AllEquallyUrgent(VllmPriorityQueue):
    """Ignores priorities: requests stay in order of arrival."""

    def priority(self, request: Request) -> int:
        """Return 0."""
        return 0


class UncommittedHash(Scenario):
    """A, a long prompt that is not urgent, is computed in chunks; B, a short urgent prompt, needs its blocks."""

    columns = (
        Column("vllm"),
        Column("vllm", KVCacheManager),
        Column("vllm", RollsBack),
        Column("vllm", AllEquallyUrgent),
    )

    def play(self, lab: Lab) -> None:
        """Run A (29 tokens, priority 5) and, a step later, B (4 tokens, one block and then another; priority 0)."""
        lab.add(token_ids=range(100, 129), max_tokens=1, priority=5)
        lab.step()
        lab.add(token_ids=range(200, 204), max_tokens=3, priority=0)
        lab.step(4)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count preemptions, the tokens that A finds when it is admitted again, and misreads."""
        hits = [event.num_tokens for event in events_of(lab, PrefixHit) if event.request_id == 0]
        return {
            "preemptions": num_preemptions(lab),
            "tokens that A finds when it comes back": hits[-1] if len(hits) > 1 else 0,
            "requests that misread": num_misread_requests(lab),
        }
