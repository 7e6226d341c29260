"""OpenVINO GenAI pull request 4332: a group of beams is preempted, and one of them holds no blocks.

OpenVINO preempts the beams of a search together, and asserts that each has a block table. The pull request skips those
without one. labengine preempts beam by beam. Here a scheduler preempts them together, and they come back one by one, so
that one of them may hold nothing when the search is preempted again.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, num_preemptions, try_step
from labengine.scenarios.scenario import (
    Column,
    Scenario,
)


class PreemptsTogether(TokenBudgetScheduler):
    """Preempts all beams of a search along with one of them."""

    def preempt(self, victim: Request) -> None:
        """Free the blocks of the victim and of the other beams in its search."""
        for beam in self.beams_of(victim):
            if beam is not victim:
                super().preempt(beam)
        super().preempt(victim)

    def beams_of(self, victim: Request) -> Sequence[Request]:
        """Return the beams of a search that hold blocks."""
        return [beam for beam in self.ends_with(victim) if beam.has_blocks]


class PreemptsEveryBeam(PreemptsTogether):
    """Assumes that every beam of the search holds blocks."""

    def beams_of(self, victim: Request) -> Sequence[Request]:
        """Return all beams of the search."""
        return self.ends_with(victim)


class BeamWithoutBlocks(Scenario):
    """A request beside a search of two beams, in a pool of four blocks."""

    columns = (Column("labengine", PreemptsEveryBeam), Column("labengine", PreemptsTogether), Column("labengine"))
    follow_ups = (try_step,)
    figures = {
        "steps that failed": lambda lab: len(events_of(lab, StepRolledBack)),
        "preemptions": num_preemptions,
        "requests ended": num_finished,
    }

    def play(self, lab: Lab) -> None:
        """Take six steps, then fourteen more, each of which may end in an error."""
        self.opening(lab)
        for _ in range(14):
            try_step(lab)

    def opening(self, lab: Lab) -> None:
        """Add the request and the search, and take steps up to the one in which A needs its third block."""
        lab.add(token_ids=(50, 51, 52), max_tokens=10)
        lab.add(token_ids=range(1, 7), max_tokens=6, beams=2)
        lab.step(6)
