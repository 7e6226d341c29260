"""vLLM pull request 57104: loads fill the pool, and each of them needs one block more to begin.

A request gets blocks for what the tier loads. The lookahead slots of a drafter (MTP) are asked for when the load has
landed. Two loads can take all blocks: then neither request can begin, neither gives anything back, and each step finds
the same. vLLM 0.30.0 admits a load only if its whole prompt fits beside what the loads before it still need (44560):
it counted everything but the lookahead. labengine has no lookahead, so here the block of the prompt's last token stands
for it, and the broken column leaves it out of the count. vLLM 0.30.0 would not deadlock on these prompts.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import ExternalHit
from labengine.lab import Lab
from labengine.scenarios.counts import num_finished, num_idle_steps, num_preemptions
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    Scenario,
    Table,
    moment_of,
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

    columns = (
        Column(parts=KEEPS, tier=late_host),
        Column(parts="vllm", tier=late_host),
    )
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


class LoadsFillThePool(Scenario):
    """The sizes of the pull request's example: A needs 4 blocks and one, B 3 and one, and the pool has 7."""

    columns = (
        Column(parts=BROKEN, tier=late_host),
        Column(parts=KEEPS, tier=late_host),
        Column(parts=TAKES_BACK, tier=late_host),
    )
    num_steps = 20
    experiments: Mapping[str, Experiment] = {"counted, not reserved": CountedNotReserved()}

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
