"""vLLM pull request 57104: loads fill the pool, and each of them needs one block more to begin.

A request gets blocks for what the tier loads. The lookahead slots of a drafter (MTP) are asked for when the load has
landed. Two loads can take all blocks: then neither request can begin, neither gives anything back, and each step finds
the same. vLLM 0.30.0 admits a load only if its whole prompt fits beside what the loads before it still need (44560):
it counted everything but the lookahead. labengine has no lookahead, so here the block of the prompt's last token stands
for it, and the broken column leaves it out of the count. vLLM 0.30.0 would not deadlock on these prompts.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlocksLoaded, ExternalHit, RequestScheduled, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_finished, num_idle_steps, num_preemptions
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)
from labengine.scenarios.tiers import late_host


class KeepsLandedLoads(TokenBudgetScheduler):
    """A request whose load has landed keeps its blocks while it waits, as in vLLM.

    labengine's scheduler, edition vllm included, takes them back when nothing else can move.
    """

    def _take_back_last(self, preempted: list[int]) -> bool:
        return False


class CountsLoadsAlone(VllmKVCacheManager):
    """Admission before the pull request, with the block behind the load for the lookahead. (44560 is left out.)"""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Return True when the blocks to be loaded fit; the block for the tokens behind them is not counted."""
        if not num_external:
            return super().can_admit(request, hit, num_external, num_spare)
        num_computed = hit.num_tokens + num_external
        needed = sum(
            group.num_blocks_to_admit(ids, num_computed, -(-num_computed // group.block_size))
            for group, ids in zip(self.groups, hit.block_ids, strict=True)
        )
        return needed + num_spare <= self.pool.num_free


KEEPS = Parts(name="vllm, keeps landed loads", scheduler=KeepsLandedLoads).overriding(VLLM)
BROKEN = Parts(name="vllm, counts loads alone", kv_cache_manager=CountsLoadsAlone).overriding(KEEPS)
TAKES_BACK = Parts(name="vllm, counts loads alone, takes back", kv_cache_manager=CountsLoadsAlone).overriding(VLLM)


class CountedNotReserved(Experiment):
    """A was counted with 3 blocks, and holds 1; B takes 2 of the blocks that A was counted with."""

    question = "What was counted for A is not reserved: B loads, and both land"
    columns = (
        Column(
            "one more counted",
            KEEPS,
            "Keeps landed loads, as vLLM, and reserves nothing, as vLLM before 0.23.0 (44560).",
            tier=late_host,
        ),
        Column(
            "vllm edition",
            "vllm",
            "labengine's way, in edition vllm too: takes a landed load back when nothing can move.",
            tier=late_host,
        ),
    )
    settings = settings(num_blocks=5, block_size=4)
    num_steps = 20

    def play(self, lab: Lab) -> None:
        """Run A, of whose prompt the tier has one block, and B, of which it has two; both need three."""
        for prompt, num_stored in ((range(1, 10), 5), (range(101, 110), 9)):
            lab.fill_external(token_ids=prompt[:num_stored])
            lab.add(token_ids=prompt, max_tokens=1)
        for _ in range(self.num_steps):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count finished requests and steps without progress."""
        return {"requests finished": num_finished(lab), "steps without progress": num_idle_steps(lab)}

    def answer(self, table: Table) -> str:
        """State that counting alone is not enough."""
        counted, taken = table["one more counted"], table["vllm edition"]
        return (
            "Counting alone is not enough: what was counted is not reserved (vLLM reserves it since 44560, 0.23.0), "
            f"and a request behind takes it. With landed loads kept, {counted['requests finished']} of 2 requests "
            f"finish; taken back, {taken['requests finished']} do."
        )


class LoadsFillThePool(Scenario):
    """The sizes of the pull request's example: A needs 4 blocks and one, B 3 and one, and the pool has 7."""

    id = "vllm-57104"
    title = "Loads fill the pool, and no request can begin"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="57104",
        title="[BugFix][KV Connector] Fix Deadlock with KVConnector + MTP under KV Pressure",
        state="merged",
        as_of="2026-09-16",
        seen_in="code of 0.30.0; a production deployment of GLM 5.2, version not named",
        mended_in="0.31.0 (57104)",
        needs=(
            "speculative decoding with lookahead slots, such as MTP",
            "a KV connector that loads while the request waits",
            "a pool that the loads fill to the last block",
        ),
    )
    claim = (
        "Under KV pressure asynchronous loads can take every block. Each loaded request needs one lookahead block "
        "more, which is allocated only after the load: the scheduler deadlocks."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.30.0 the scheduler takes the lookahead out of the count while a load begins, and asks for it when "
            "the load has landed; 0.31.0 keeps the slots of a speculative step free before it begins another load."
        ),
        passages=(
            CodePassage(
                version="vllm 0.30.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=1157,
                text="reserved_blocks = self._inflight_prefill_reserved_blocks()",
                says="A load leaves free what the loads before it need for their prompts, and nothing for lookahead.",
            ),
            CodePassage(
                version="vllm 0.30.0",
                file="vllm/v1/core/kv_cache_manager.py",
                line=508,
                text="if full_sequence_must_fit:",
                says="The whole prompt has to fit already: the block that stands for the lookahead here was counted.",
            ),
            CodePassage(
                version="vllm 0.31.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=1203,
                text="+ self._spec_decode_step_blocks()",
                says="The blocks of a speculative step are kept free as well.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 57104",
                says="Its example: loads of 4 and of 3 blocks, one more each for MTP, and a pool of 7.",
            ),
        ),
    )
    kind = "deadlock"
    breaks = "Requests are admitted for their loads alone, and wait for each other's blocks afterwards."
    why_unseen = (
        "Both requests wait with blocks that are theirs: every state is valid, and only the steps that schedule "
        "nothing show it."
    )
    question = "A loads 4 blocks of 7 and B 3; each needs one more (its last token's, for a lookahead): 20 steps"
    roles = ("the bug: loads alone are counted", "the fix: the block behind is counted")
    columns = (
        Column(
            "loads counted",
            BROKEN,
            "Admits a load if its own blocks are free: the block behind stands for the lookahead that 0.30.0 forgot.",
            tier=late_host,
        ),
        Column(
            "one more counted",
            KEEPS,
            "Admits a load if the block behind it fits as well, as 57104 counts the lookahead.",
            tier=late_host,
        ),
        Column(
            "taken back",
            TAKES_BACK,
            "labengine's way: loads alone are counted; when nothing can move, the last one gives its blocks back.",
            tier=late_host,
        ),
    )
    settings = settings(num_blocks=8, block_size=4)
    num_steps = 20
    experiments: Mapping[str, Experiment] = {"counted, not reserved": CountedNotReserved()}
    guide = (
        GuideStop(
            "The tier has 16 tokens of A's 17. Its load takes 4 blocks of 7.",
            ExternalHit,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "B has 12 tokens of 13 in the tier. Left, its load takes the last 3 blocks. Right, B would need 4 in all, "
            "and waits.",
            StepEnded,
        ),
        GuideStop("A's load has landed. It needs a block for its last token.", BlocksLoaded),
        GuideStop(
            "Right, A runs. Left, no block is free: both requests have what they loaded, and wait for one block more.",
            RequestScheduled,
        ),
        GuideStop("Left, this step has scheduled nothing, and no later one will.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Add both requests, and take num_steps steps."""
        self._take(lab, self.num_steps)

    def opening(self, lab: Lab) -> None:
        """Play as many steps as every column takes."""
        self._take(lab, 3)

    def _take(self, lab: Lab, num_steps: int) -> None:
        for prompt in (range(1, 18), range(101, 114)):
            lab.fill_external(token_ids=prompt)
            lab.add(token_ids=prompt, max_tokens=2)
        for _ in range(num_steps):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count finished requests, steps without progress, and loads that were given up."""
        return {
            "requests finished": num_finished(lab),
            "steps without progress": num_idle_steps(lab),
            "loads given up": num_preemptions(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if the requests wait for ever."""
        return measured["requests finished"] < 2 and measured["steps without progress"] > 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the admission of the second load, if nothing moves after it."""
        moment = moment_of(lab, ExternalHit, lambda event: event.request_id == 1)
        if moment is None or num_finished(lab):
            return None
        return wrong_at(lab, moment, "B is admitted for its load, and takes the block that A will need to begin.")

    def answer(self, table: Table) -> str:
        """State that either of two rules is enough."""
        wrong, counted, taken = (table[column.name] for column in self.columns)
        return (
            f"{wrong['steps without progress']} of {self.num_steps} steps compute nothing, and "
            f"{wrong['requests finished']} of 2 requests finish. With the block behind counted "
            f"{counted['requests finished']} do, one after the other. Taking a landed load back is enough too "
            f"({taken['requests finished']} finish), and costs {taken['loads given up']} load that has to be repeated: "
            "labengine does both."
        )


SCENARIO = LoadsFillThePool()
