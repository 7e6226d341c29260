"""vLLM issue 39702, fixed by pull request 42289: the tier's hit is evicted between the look-up and its use.

SimpleCPUOffloadConnector counted the tokens that the CPU holds, and pinned nothing. Once blocks were allocated for them
it looked up again, and an assertion on the count ended the server. The issue has the eviction happen inside one pass of
the scheduler. Here, in a workload of our own, the gap is as long as the request waits for blocks, and the tier refuses
the load in place of the assertion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished
from labengine.scenarios.scenario import (
    Column,
    Scenario,
    Table,
    symptom,
)


class TrustsTheFirstAnswer(TokenBudgetScheduler):
    """Keeps the tier's first answer about a request until there are blocks for it."""

    def match_external(self, request: Request, hit: Hit) -> int:
        """Return the tokens behind the local hit that the tier held when a look-up first found some."""
        ends: dict[int, int] = vars(self).setdefault("ends", {})
        if found := super().match_external(request, hit):
            ends.setdefault(request.request_id, hit.num_tokens + found)
        return max(0, ends.get(request.request_id, 0) - hit.num_tokens)


def two_blocks() -> HostStore:
    """Return a host tier with room for two blocks."""
    return HostStore(max_blocks=2)


class UnpinnedHit(Scenario):
    """B is looked up while A fills the pool; A's blocks are saved, and the tier has room for two."""

    columns = (
        Column(
            parts=Parts(name="vllm, trusts the first answer", scheduler=TrustsTheFirstAnswer).overriding(VLLM),
            tier=two_blocks,
        ),
        Column(parts="vllm", tier=two_blocks),
    )

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B; an error may end each of B's steps."""
        self.opening(lab)
        for _ in range(3):
            symptom(lab.step)

    def opening(self, lab: Lab) -> None:
        """Run A to its end, with B behind it."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(101, 110), max_tokens=3)
        lab.add(token_ids=prompt, max_tokens=2)
        for _ in range(3):
            lab.step()

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take B's first step, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed attempts and finished requests."""
        return {
            "attempts that failed": len(events_of(lab, StepRolledBack)),
            "requests finished": num_finished(lab),
        }

    def error(self) -> str:
        """Return the error of B's first step."""
        with self.lab(self.columns[0].name) as lab:
            self.opening(lab)
            return symptom(lab.step)

    def answer(self, table: Table) -> str:
        """State what the engine says, and that a second try does not help."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"Three steps make {wrong['attempts that failed']} attempts, and all fail ({self.error()}). Beginning a "
            f"step anew after a failed load cannot help while the number stays: {wrong['requests finished']} of 2 "
            f"requests finish, and {right['requests finished']} if the tier is asked when its answer is used. (vLLM's "
            f"fix keeps the first answer true: it pins the blocks.)"
        )


SCENARIO = UnpinnedHit()
