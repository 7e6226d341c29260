"""vLLM pull request 43569: a block is registered when it is scheduled, and its request is preempted before it runs.

The block goes back to the free queue with a hash, and nothing was written to it. The next look-up hits it. Of the ways
that the pull request names to get there, preemption by priority is played: not an abort, and not a failed load.
"""

from __future__ import annotations

from labengine.core.editions import edition
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.vllm.scheduler import VllmScheduler
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.events import PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests, num_preemptions
from labengine.scenarios.scenario import Column, Scenario


class RollsBack(VllmScheduler):
    """What the pull request is for: hashes of blocks that no step has computed are taken back with the blocks."""

    def take_blocks(self, victim: Request) -> None:
        """Forget the content of blocks behind the computed tokens; then free all blocks."""
        for group, table in zip(self.manager.groups, victim.block_tables, strict=True):
            uncomputed = table[victim.num_computed_tokens // group.block_size :]
            self.manager.pool.evict_cached(uncomputed, "distrusted")
        super().take_blocks(victim)


class AllEquallyUrgent(VllmPriorityQueue):
    """Takes no notice of priorities: the order is that of arrival."""

    def priority(self, request: Request) -> int:
        """Return 0."""
        return 0


BY_PRIORITY = edition("vllm", "priority")
EAGER = Column(
    "vllm, priority",
    "vllm",
    "Registers blocks when they are scheduled; a victim's hashes stay, also of blocks never computed: as vLLM 0.32.",
)
LATE = Column(
    "after compute",
    Parts(name="vllm, priority, after compute", kv_cache_manager=KVCacheManager).overriding(BY_PRIORITY),
    "labengine's way: registers blocks after compute, so that a victim of the same step has no hash for them yet.",
)
ROLLED_BACK = Column(
    "PR 43569",
    Parts(name="vllm, priority + PR 43569", scheduler=RollsBack).overriding(BY_PRIORITY),
    "Registers early, and forgets what was not computed when a victim's blocks are freed.",
)
FIRST_COME = Column(
    "first come, first served",
    Parts(name="vllm, all equally urgent", waiting_queue=AllEquallyUrgent).overriding(BY_PRIORITY),
    "The victim is the youngest request, which the step has not reached.",
)


class UncommittedHash(Scenario):
    """A, a long prompt that is not urgent, is computed in chunks; B, a short one that is urgent, needs its blocks."""

    columns = (EAGER, LATE, ROLLED_BACK, FIRST_COME)

    def play(self, lab: Lab) -> None:
        """Run A (29 tokens, priority 5) and, a step later, B (4 tokens, one block and then another; priority 0)."""
        lab.add(token_ids=range(100, 129), max_tokens=1, priority=5)
        lab.step()
        lab.add(token_ids=range(200, 204), max_tokens=3, priority=0)
        for _ in range(4):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count preemptions, the tokens that A finds when it is admitted again, and misreads."""
        hits = [event.num_tokens for event in events_of(lab, PrefixHit) if event.request_id == 0]
        return {
            "preemptions": num_preemptions(lab),
            "tokens that A finds when it comes back": hits[-1] if len(hits) > 1 else 0,
            "requests that misread": num_misread_requests(lab),
        }


SCENARIO = UncommittedHash()
