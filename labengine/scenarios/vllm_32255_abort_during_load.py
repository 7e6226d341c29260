"""vLLM pull request 32255: a request is aborted during its load, and the transfer lands in another request's blocks.

A request whose KV comes from a remote engine waits with its blocks. If it was aborted, vLLM before 0.16.0 freed them at
once, while the transfer continued. The transfer lands in blocks that another request may hold by then. The fix keeps
the blocks until the transfer is reported. labengine's edition vllm frees them at once and makes the tier stop the
transfer.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.lab import Lab
from labengine.scenarios.aborted_loads import FreesAfterLoadScheduler
from labengine.scenarios.counts import num_finished, num_misread_blocks
from labengine.scenarios.scenario import Column, Scenario
from labengine.scenarios.tiers import LandsAnyway, late_host


class AbortDuringLoad(Scenario):
    """A and B load; A is aborted, and C gets A's blocks before A's transfer lands."""

    columns = (
        Column("vllm", tier=lambda: LandsAnyway(HostStore(), 2)),
        Column("vllm", tier=lambda: late_host(2)),
        Column("vllm", FreesAfterLoadScheduler, tier=lambda: LandsAnyway(HostStore(), 2)),
    )
    figures = {
        "blocks misread": num_misread_blocks,
        "requests finished": num_finished,
    }

    def play(self, lab: Lab) -> None:
        """Start both loads, abort A, and add C, which computes a step before they land."""
        prompts = range(1, 10), range(101, 110)
        for prompt in prompts:
            lab.fill_external(token_ids=prompt)
            lab.add(token_ids=prompt, max_tokens=2)
        lab.step()
        lab.abort(0)
        lab.add(token_ids=range(201, 214), max_tokens=4)
        lab.step(4)
