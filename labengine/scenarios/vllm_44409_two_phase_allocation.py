"""vLLM pull request 44409: two groups, one pool, and a block given out twice.

Each KV-cache group has its own block table, and all take their blocks from one pool. A cache hit is only a list of ids
until it is touched: the blocks are still in the free queue. If a request is admitted group by group, the first group's
fresh blocks, which the external tier will fill, can be the second group's hits. This was so in vLLM 0.23; pull request
33775 had addressed it before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed
from labengine.lab import Lab
from labengine.scenarios.scenario import FirstWrong, Scenario, symptom, wrong_at
from labengine.scenarios.two_phase_experiments import (
    Conversations,
    Preempted,
    PreemptedThreeGroups,
    PrefixInTwoPlaces,
    ThreeGroups,
)
from labengine.scenarios.verdict import Table
from labengine.scenarios.vllm_44409_columns import second_entries


class TwoPhaseAllocation(PrefixInTwoPlaces, Scenario):
    """The order before the fix, the fixed order, and two other pull requests for the same crash."""

    experiments = {
        "three groups": ThreeGroups(),
        "preempted": Preempted(),
        "preempted, three groups": PreemptedThreeGroups(),
        "conversations": Conversations(),
    }

    def opening(self, lab: Lab) -> None:
        """Prepare pool and tier, and run the long prompt."""
        self.play_long(lab)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that run a longer prompt with the same beginning."""
        return (lambda lab: lab.add(token_ids=self.prompts(lab)[1], max_tokens=1), Lab.step)

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the touch that put a block into a second table.

        The eviction before it took no block from a request.
        """
        for moment, event in second_entries(lab):
            return wrong_at(
                lab,
                moment,
                f"Group {event.group} touches block {event.block_id} as its hit, but another group of the same request "
                f"has just taken it: one block in two tables, ref {event.ref_count}.",
            )
        return None

    def symptom(self, *, is_late: bool = False) -> str:
        """Return the error of a tier that checks the hits, in the old order: issue 43884's assert.

        is_late: the tier delivers a step later, as vLLM's does.
        """
        tier = Delayed(HostStore()) if is_late else HostStore()
        with self.columns[0].lab("simulated", {**self.settings, "external": tier}) as lab:
            return symptom(lambda: self.play(lab))

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"error": self.symptom()}

    def _texts(self, column: str, model: str) -> tuple[str, ...]:
        """Return only the long prompt's text: the other texts have one word each."""
        with self.played(column, model) as lab:
            *_, long, _ = sorted(lab.snapshot().requests)
            return (lab.output(long).text,)
