"""mini-sglang pull request 111: a request is aborted while its last step is in flight, and is freed twice.

An overlapped scheduler launches the next batch before it processes the last batch's output. An abort in between freed
the request's pages at once. Then the output was processed, the request was found to have ended, and the same pages were
freed again. This takes a stop token: a request that ends by its length is safe, because no abort finds it any more. The
fix leaves the request to the step in flight. Here blocks have reference counts, unlike mini-sglang's pages: the second
free drops another request's reference.
"""

from __future__ import annotations

from labengine.core.request import Request
from labengine.events import BlockFreed
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks, step_at_most
from labengine.scenarios.one_step_ahead import OneStepAheadScheduler
from labengine.scenarios.scenario import Column, Scenario


class FreesOnAbort(OneStepAheadScheduler):
    """Frees an aborted request's blocks at once, and leaves the request to the step in flight."""

    def abort(self, request: Request) -> None:
        """Free all blocks of a running request; its end is noticed with its step's output."""
        if request not in self.running:
            return super().abort(request)
        for group in self.manager.groups:
            table = request.block_tables[group.index]
            group.release(request, table, range(len(table)), "aborted")
        return None


class DefersAborts(OneStepAheadScheduler):
    """Leaves a request that has finished by itself to the processing of its output."""

    def abort(self, request: Request) -> None:
        """End a request, unless it already has its last token: then the step in flight ends it."""
        if request not in self.running or not self.has_ended(request):
            super().abort(request)


class AbortedAndFinished(Scenario):
    """A and B have equal prompts and share their blocks; B is aborted while its last step is in flight."""

    columns = (Column("labengine", FreesOnAbort), Column("labengine", DefersAborts), Column("labengine"))

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, which gives B its last token; abort B; add C, and take two steps."""
        for max_tokens in (6, 1):
            lab.add(token_ids=range(1, 9), max_tokens=max_tokens)
        lab.step()
        lab.abort(1)
        lab.add(token_ids=range(101, 114), max_tokens=2)
        step_at_most(lab, 2)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the references that B dropped at its end, and misread blocks."""
        dropped = [event for event in events_of(lab, BlockFreed) if event.request_id == 1]
        return {
            "references dropped by the abort": sum(event.reason == "aborted" for event in dropped),
            "references dropped by the end": sum(event.reason == "finished" for event in dropped),
            "blocks misread": num_misread_blocks(lab),
        }
