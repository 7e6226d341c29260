"""vLLM pull request 47728: the window's blocks are freed while the step that reads them is in flight.

vLLM counts a step's tokens as computed when the step is scheduled. Up to 0.25.1, with asynchronous scheduling or
pipeline parallelism, blocks that left the window were freed by that count, although the step was only launched and
still reads them. A connector that consumes KV then gets them as the destination of a load, on another stream. The fix
frees by the tokens whose step has been processed. By the same count too much is freed when drafts are rejected: then a
request reads null entries of its own table. That is not played here. Here the step itself is planned, the blocks are
freed, the load lands, and the step runs: one step of a synchronous scheduler stands for two in flight.
"""

from __future__ import annotations

from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockFreed
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.scenario import Column, Scenario


class FreesByScheduledTokens(TokenBudgetScheduler):
    """Counts tokens as computed once they are scheduled."""

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Plan the tokens, then free the blocks the window skips after them, though this step still reads these."""
        planned = super().plan(request, num_tokens, status)
        for group in self.manager.groups:
            group.drop_skipped(request, planned.end)
        return planned


NUM_STEPS = 4
"""A's steps before B is added: the prompt's step, and decodes up to position 6."""


class WindowInFlight(Scenario):
    """A decodes with a window of 5. In the step that reads position 3 for the last time, B's KV is loaded."""

    columns = (Column("vllm", FreesByScheduledTokens), Column("vllm"))

    def play(self, lab: Lab) -> None:
        """Put B's KV into the tier, run A up to position 6, add B, and take the step that computes position 7."""
        prompt = range(101, 106)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(1, 5), max_tokens=8)
        lab.step(NUM_STEPS)
        lab.add(token_ids=prompt, max_tokens=4)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the misread blocks, and the blocks freed by A's window."""
        freed = [event for event in events_of(lab, BlockFreed) if event.reason == "window"]
        return {"blocks misread": num_misread_blocks(lab), "blocks freed by the window": len(freed)}
