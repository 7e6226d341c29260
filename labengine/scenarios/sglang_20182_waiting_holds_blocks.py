"""SGLang pull request 20182: a waiting request holds memory, and its abort frees nothing.

For models with a recurrent state, the prefix match allocated a slot for a request's state before the request was
admitted. An abort by a timeout or by the queue limit only took it out of the queue, because requests that had not run
were assumed to hold nothing. By the report the slot leaked, and the idle check ended the scheduler. Here a waiting
request's memory is the blocks loaded from the external tier.
"""

from __future__ import annotations

from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, Scenario
from labengine.scenarios.tiers import late_host


class FreesOnlyWhatRan(TokenBudgetScheduler):
    """Assumes that a waiting request holds nothing."""

    def abort(self, request: Request) -> None:
        """End a request; a waiting one is dropped together with its block tables."""
        if request in self.waiting:
            self._set(request, "block_tables", [[] for _ in request.block_tables])
        super().abort(request)


class WaitingHoldsBlocks(Scenario):
    """B's KV is loaded, but B cannot run yet, and is aborted."""

    columns = (Column("labengine", FreesOnlyWhatRan, tier=late_host), Column("labengine", tier=late_host))

    def play(self, lab: Lab) -> None:
        """Run A, which grows into the last block; abort B after its load; run A to its end."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(101, 109), max_tokens=4)
        lab.add(token_ids=prompt, max_tokens=2)
        lab.step(2)
        lab.abort(1)
        lab.step(3)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count used blocks, and those among them that are in a table."""
        snapshot = lab.snapshot()
        tables = [table for request in snapshot.requests.values() for table in request.block_tables]
        return {"used blocks": snapshot.num_used_blocks, "in a request's table": len(set().union(*tables))}
