"""vLLM pull request 43569: a block is registered when it is scheduled, and its request is preempted before it runs.

The block goes back to the free queue with a hash, and nothing was written to it. The next look-up hits it. Of the ways
that the pull request names to get there, preemption by priority is played: not an abort, and not a failed load.
"""

from __future__ import annotations

from labengine.core.editions import VllmPriorityQueue, edition
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.vllm_scheduler import VllmScheduler
from labengine.events import BlockCached, BlockEvicted, PrefixHit, RequestPreempted, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests, num_preemptions
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


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

    id = "vllm-43569"
    title = "A preempted request leaves hashes of blocks that were never computed"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="43569",
        title="[Core][Bugfix] Roll back eager prefix-cache registration on uncommitted free",
        state="open",
        as_of="2026-09-11",
        seen_in="main of 2026-05-25 by the report; the same code in 0.32.0",
        needs=(
            "prefix caching",
            "a request that loses its blocks after they are scheduled and before they are computed: preemption with "
            "--scheduling-policy priority, a failed load, or an abort",
        ),
    )
    claim = (
        "Blocks are registered before the worker writes them. If their request is preempted or aborted before that, "
        "the hashes survive, and a later request hits memory that was never written."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "For preemption by priority: 0.32.0 takes the victim out of the step and frees its blocks with their "
            "hashes. Its own scheduler, given these requests, admits A again with 24 tokens, of which it had planned "
            "no step to compute the last four; no worker was run. For an abort it is not shown here: that needs an "
            "abort between scheduling and computing, which another pull request reports for Mamba groups."
        ),
        passages=(
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/kv_cache_manager.py",
                line=616,
                text="self.coordinator.cache_blocks(request, num_tokens_to_cache)",
                says="Blocks are registered when they are allocated, up to the tokens of this step.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=814,
                text="if preempted_req in scheduled_running_reqs:",
                says="With priorities the victim may be a request that this step has scheduled.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=1589,
                text="self._free_request_blocks(request)",
                says="Its blocks are freed, and no hash is taken back.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 56525",
                says=(
                    "Aborted prefills left hashes of Mamba states that no step had written, with asynchronous "
                    "scheduling; the pull request was open on 2026-09-11."
                ),
            ),
        ),
    )
    kind = "hit in flight"
    breaks = "A look-up finds a block whose KV no step has written, and the request goes on from there."
    wrong_figure = "requests that misread"
    seen_by = ("named", "read")
    question = "A's second chunk is scheduled, A is preempted in the same step, and comes back: what does it find?"
    columns = (EAGER, LATE, ROLLED_BACK, FIRST_COME)
    settings = settings(
        num_blocks=9, block_size=4, policy="priority", max_num_batched_tokens=12, long_prefill_token_threshold=8
    )
    roles = ("the bug: registered when scheduled", "labengine's way: registered after compute")
    guide = (
        GuideStop(
            "A step has computed twelve tokens of A's long prompt. Then comes B, which is more urgent; nobody is "
            "preempted to admit it.",
            StepEnded,
        ),
        GuideStop(
            "The third step schedules A's tokens 20 to 27. Left, their two blocks are registered at once.",
            BlockCached,
            lambda event: event.request_id == 0 and event.index == 5,
        ),
        GuideStop(
            "Then B needs a block, none is free, and A is the least urgent: it is preempted in the middle of the step. "
            "Left, its blocks keep their hashes, also those that were to be computed now.",
            RequestPreempted,
        ),
        GuideStop("B takes one of A's blocks; the other one stays in the free queue.", BlockEvicted),
        GuideStop(
            "B has ended, and A comes back. Right, it finds the twenty tokens that were computed. Left, 24: four of "
            "them are in a block that no step has written.",
            PrefixHit,
            lambda event: event.request_id == 0,
        ),
        GuideStop("Left, A has gone on from a block of unknown content.", StepEnded),
    )
    sentences = sentences(guide)

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

    def answer(self, table: Table) -> str:
        """State what each way of registering leaves behind."""
        found = "tokens that A finds when it comes back"
        eager, late, rolled, first_come = (table[column.name] for column in self.columns)
        return (
            f"When it comes back A finds {eager[found]} tokens, of which 20 were computed; {late[found]} where hashes "
            f"are registered after compute, and {rolled[found]} with the pull request. First come, first served, "
            f"{first_come['requests that misread']} requests misread: the youngest request is preempted, and a step "
            f"reaches it last."
        )


SCENARIO = UncommittedHash()
