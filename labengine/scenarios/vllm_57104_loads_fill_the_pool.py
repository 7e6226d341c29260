"""vLLM pull request 57104: loads fill the pool, and each needs one more block to begin.

A request gets blocks for the tokens that the tier loads. A drafter's lookahead slots (MTP) are requested only when the
load has landed. Two loads can take all blocks: then neither request can begin, neither gives anything back, and every
step finds the same state. vLLM 0.30.0 admits a load only if its whole prompt fits beside the remaining needs of earlier
loads (44560), but it counted everything except the lookahead. labengine has no lookahead, so here the block of the
prompt's last token stands for it, and the broken column leaves that block out of the count. vLLM 0.30.0 would not
deadlock on these prompts.
"""

from __future__ import annotations

from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.lab import Lab
from labengine.scenarios.counts import num_finished, num_idle_steps, num_preemptions
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
)
from labengine.scenarios.tiers import late_host


class KeepsLandedLoads(TokenBudgetScheduler):
    """A request whose load has landed keeps its blocks while it waits, as in vLLM.

    labengine's scheduler, including edition vllm's, takes them back when nothing else can move.
    """

    def _take_back_last(self, preempted: list[int]) -> bool:
        return False


class CountsLoadsAlone(VllmKVCacheManager):
    """Admission before the pull request, with the block after the load for the lookahead. 44560 is left out."""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Return True if the blocks to load fit; the block for the tokens after them is not counted."""
        if not num_external:
            return super().can_admit(request, hit, num_external, num_spare)
        num_computed = hit.num_tokens + num_external
        needed = sum(
            group.num_blocks_to_admit(ids, num_computed, -(-num_computed // group.block_size))
            for group, ids in zip(self.groups, hit.block_ids, strict=True)
        )
        return needed + num_spare <= self.pool.num_free


class CountedNotReserved(Experiment):
    """A was counted with 3 blocks and holds 1; B takes 2 of those counted for A."""

    columns = (Column("vllm", KeepsLandedLoads, tier=late_host), Column("vllm", tier=late_host))
    num_steps = 20
    figures = {
        "requests finished": num_finished,
        "steps without progress": num_idle_steps,
    }

    def play(self, lab: Lab) -> None:
        """Run A, with one block of its prompt in the tier, and B, with two; both need three."""
        for prompt, num_stored in ((range(1, 10), 5), (range(101, 110), 9)):
            lab.fill_external(token_ids=prompt[:num_stored])
            lab.add(token_ids=prompt, max_tokens=1)
        for _ in range(self.num_steps):
            lab.step()


class LoadsFillThePool(Scenario):
    """The sizes of the pull request's example: A needs 4 blocks and one more, B 3 and one more; the pool has 7."""

    columns = (
        Column("vllm", Parts(scheduler=KeepsLandedLoads, kv_cache_manager=CountsLoadsAlone), tier=late_host),
        Column("vllm", KeepsLandedLoads, tier=late_host),
        Column("vllm", CountsLoadsAlone, tier=late_host),
    )
    num_steps = 20
    experiments = {"counted, not reserved": CountedNotReserved()}
    figures = {
        "requests finished": num_finished,
        "steps without progress": num_idle_steps,
        "loads given up": num_preemptions,
    }

    def play(self, lab: Lab) -> None:
        """Add both requests, and take num_steps steps."""
        self._take(lab, self.num_steps)

    def opening(self, lab: Lab) -> None:
        """Play the steps that all columns take."""
        self._take(lab, 3)

    def _take(self, lab: Lab, num_steps: int) -> None:
        for prompt in (range(1, 18), range(101, 114)):
            lab.fill_external(token_ids=prompt)
            lab.add(token_ids=prompt, max_tokens=2)
        for _ in range(num_steps):
            lab.step()
