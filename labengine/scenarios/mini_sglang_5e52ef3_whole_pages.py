"""mini-sglang commit 5e52ef3: prompts are counted in tokens, and take whole pages.

No thread reports this: it was found by running random requests on mini-sglang's own scheduler.
"""

from __future__ import annotations

from labengine.core.mini_sglang.scheduler import WorstCaseScheduler
from labengine.core.request import Request
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, step_at_most, try_step
from labengine.scenarios.scenario import Column, Scenario


class ReservesWholeBlocks(WorstCaseScheduler):
    """Reserves the rest of each request's last block too."""

    def num_to_come(self, request: Request) -> int:
        """Return how many slots a request may still need behind its known tokens, up to the end of its last block."""
        longest = request.num_prompt_tokens + request.sampling.max_tokens
        return super().num_to_come(request) + -longest % self.block_size


class WholePages(Scenario):
    """Three prompts that each need two blocks, in a pool of three: one alone, and then two at once."""

    columns = (Column("mini-sglang"), Column("mini-sglang", ReservesWholeBlocks))
    figures = {
        "steps ended by an error": lambda lab: len(events_of(lab, StepRolledBack)),
        "requests finished": num_finished,
    }
    follow_ups = (try_step, try_step)

    def play(self, lab: Lab) -> None:
        """Run A, then B and C for two steps; an error ends the run."""
        self.opening(lab)
        step_at_most(lab, 2)

    def opening(self, lab: Lab) -> None:
        """Run A, and add B and C: five tokens each."""
        lab.generate([range(1, 6)], max_tokens=1)
        for first in (11, 21):
            lab.add(token_ids=range(first, first + 5), max_tokens=1)
