"""vllm-ascend issue 16662: the end of an aborted request's load is filtered out, and its blocks are never freed.

Since 0.16.0 vLLM keeps the blocks of a request aborted during its load until the connector reports the transfer (pull
request 32255). vllm-ascend's AscendStoreConnector reports only transfers of requests on a list, and the end of a
request removes it from that list. So the report that the scheduler waits for never arrives.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.lab import Lab
from labengine.scenarios.aborted_loads import FreesAfterLoadScheduler
from labengine.scenarios.scenario import (
    Column,
    Scenario,
)
from labengine.scenarios.tiers import LandsAnyway, late_host

NUM_ABORTS = 4


class CompletionFiltered(Scenario):
    """Four requests are aborted during their loads; a fifth needs blocks."""

    columns = (
        Column("vllm", FreesAfterLoadScheduler, tier=lambda: late_host(2)),
        Column("vllm", FreesAfterLoadScheduler, tier=lambda: LandsAnyway(HostStore(), 2)),
        Column("labengine", tier=lambda: late_host(2)),
    )

    def play(self, lab: Lab) -> None:
        """Start four loads, abort their requests, and add a request that needs blocks."""
        for first in range(100, 100 * (NUM_ABORTS + 1), 100):
            lab.fill_external(token_ids=range(first, first + 9))
            lab.add(token_ids=range(first, first + 9), max_tokens=2)
        lab.step()
        for request_id in range(NUM_ABORTS):
            lab.abort(request_id)
        lab.add(token_ids=range(9), max_tokens=8)
        lab.step(6)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count aborted requests that have ended, the blocks they hold, and the last request's tokens."""
        snapshot = lab.snapshot()
        aborted = [snapshot.requests[request_id] for request_id in range(NUM_ABORTS)]
        return {
            "requests aborted": NUM_ABORTS,
            "of them ended": sum(request.status == "finished" for request in aborted),
            "blocks that they hold": sum(len(table) for request in aborted for table in request.block_tables),
            "tokens of the request behind": len(snapshot.requests[NUM_ABORTS].token_ids) - 9,
        }
