"""sglang-jax pull request 994 (982 ported again): a finished request's last decode slot is freed by two paths.

The prefix cache freed a request's slots up to an inferred length, and the output processor freed the slot of the step
in flight. The thread says that one slot was in both; this scenario plays that. The fix is a single release, which knows
the committed length and the slots allocated beyond it.
"""

from __future__ import annotations

from labengine.core.request import FinishReason, Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockFreed, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, num_misread_blocks, step_at_most
from labengine.scenarios.scenario import Column, Experiment, Scenario


class TwoReleasePaths(TokenBudgetScheduler):
    """Frees the last decode's block separately, before the usual release."""

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Free the last block of each table, then the whole tables."""
        for group in self.manager.groups:
            if table := request.block_tables[group.index]:
                group.release(request, table[-1:], [len(table) - 1], "finished")
        super().finish(request, reason)


class UnsharedBlocks(Experiment):
    """A request that shares no block."""

    columns = (Column("labengine", TwoReleasePaths), Column("labengine"))
    figures = {
        "steps that failed": lambda lab: len(events_of(lab, StepRolledBack)),
        "finished requests": lambda lab: 0 if lab.crash else num_finished(lab),
    }

    def play(self, lab: Lab) -> None:
        """Run one request; a failed step ends the play."""
        lab.add(token_ids=range(1, 7), max_tokens=2)
        step_at_most(lab, 4)


class TwoPaths(Scenario):
    """A and B have equal prompts and share their blocks; B ends, and its last block is freed twice."""

    columns = UnsharedBlocks.columns
    experiments = {"alone": UnsharedBlocks()}

    def play(self, lab: Lab) -> None:
        """Run A and B for a step, in which B ends; then add C, which needs four blocks, and take a step."""
        for max_tokens in (6, 1):
            lab.add(token_ids=range(1, 9), max_tokens=max_tokens)
        lab.step()
        lab.add(token_ids=range(101, 114), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the references that B dropped, and misread blocks."""
        dropped = [event for event in events_of(lab, BlockFreed) if event.request_id == 1]
        return {
            "references that B had": 2,
            "references that B dropped": sum(event.reason == "finished" for event in dropped),
            "blocks misread": num_misread_blocks(lab),
        }
