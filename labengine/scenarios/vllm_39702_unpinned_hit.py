"""vLLM issue 39702, fixed by pull request 42289: the tier's hit is evicted between the look-up and its use.

SimpleCPUOffloadConnector counted the tokens that the CPU holds, but pinned nothing. Once blocks were allocated for
them, it looked up again, and an assertion on the count ended the server. In the issue, the eviction happens inside one
pass of the scheduler. Here, in our own workload, the gap lasts as long as the request waits for blocks, and the
assertion is replaced by the tier, which refuses the load.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, try_step
from labengine.scenarios.scenario import (
    Column,
    Scenario,
    Table,
)


class TrustsTheFirstAnswer(TokenBudgetScheduler):
    """Keeps the tier's first answer about a request until there are blocks for it."""

    def match_external(self, request: Request, hit: Hit) -> int:
        """Return the tokens after the local hit that the tier held when a look-up first found some."""
        ends: dict[int, int] = vars(self).setdefault("ends", {})
        if found := super().match_external(request, hit):
            ends.setdefault(request.request_id, hit.num_tokens + found)
        return max(0, ends.get(request.request_id, 0) - hit.num_tokens)


def two_blocks() -> HostStore:
    """Return a host tier with room for two blocks."""
    return HostStore(max_blocks=2)


class UnpinnedHit(Scenario):
    """B is looked up while A fills the pool; A's blocks are saved to a tier with room for two."""

    columns = (Column("vllm", TrustsTheFirstAnswer, tier=two_blocks), Column("vllm", tier=two_blocks))
    follow_ups = (try_step,)
    figures = {
        "attempts that failed": lambda lab: len(events_of(lab, StepRolledBack)),
        "requests finished": num_finished,
    }

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B, whose steps may each end in an error."""
        self.opening(lab)
        for _ in range(3):
            try_step(lab)

    def opening(self, lab: Lab) -> None:
        """Run A to its end, with B behind it."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(101, 110), max_tokens=3)
        lab.add(token_ids=prompt, max_tokens=2)
        lab.step(3)

    def error(self) -> str:
        """Return the error of B's first step."""
        with self.lab(self.columns[0].name) as lab:
            self.opening(lab)
            return try_step(lab)

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"error": self.error()}
