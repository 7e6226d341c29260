"""OpenVINO GenAI pull request 4332: a group of beams is preempted, and one of them holds no blocks.

OpenVINO preempts the beams of a search together, and asserts that each has a block table. The pull request skips those
that have none. labengine preempts beam by beam; here a scheduler preempts them together, and they come back one by one,
so that one of them may hold nothing when the search has to give way again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import StepFailed, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, num_preemptions
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    Scenario,
    moment_of,
    symptom,
    wrong_at,
)

MAIN = "openvino.genai da1db864"
BLOCK_MANAGER = "src/cpp/src/continuous_batching/cache/block_manager.hpp"


class PreemptsTogether(TokenBudgetScheduler):
    """Preempts all beams of a search for one of them."""

    def preempt(self, victim: Request) -> None:
        """Free the blocks of the victim, and of the other beams of its search."""
        for beam in self.beams_of(victim):
            if beam is not victim:
                super().preempt(beam)
        super().preempt(victim)

    def beams_of(self, victim: Request) -> Sequence[Request]:
        """Return the beams of a search that hold blocks."""
        return [beam for beam in self.ends_with(victim) if beam.has_blocks]


class PreemptsEveryBeam(PreemptsTogether):
    """Takes it that every beam of the search holds blocks."""

    def beams_of(self, victim: Request) -> Sequence[Request]:
        """Return all beams of the search."""
        return self.ends_with(victim)


TOGETHER = Parts(name="labengine, beams together", scheduler=PreemptsTogether).overriding(LABENGINE)


class BeamWithoutBlocks(Scenario):
    """A request beside a search of two beams, in a pool of four blocks."""

    columns = (
        Column(parts=Parts(name="labengine, every beam", scheduler=PreemptsEveryBeam).overriding(TOGETHER)),
        Column(parts=TOGETHER),
        Column(parts="labengine"),
    )

    def play(self, lab: Lab) -> None:
        """Take six steps, then fourteen more; an error may end each of these."""
        self.opening(lab)
        for _ in range(14):
            symptom(lab.step)

    def opening(self, lab: Lab) -> None:
        """Add the request and the search, and take the steps up to that in which A needs its third block."""
        lab.add(token_ids=(50, 51, 52), max_tokens=10)
        lab.add(token_ids=range(1, 7), max_tokens=6, beams=2)
        for _ in range(6):
            lab.step()

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take that step, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed steps, preemptions, and requests that ended."""
        return {
            "steps that failed": len(events_of(lab, StepRolledBack)),
            "preemptions": num_preemptions(lab),
            "requests ended": num_finished(lab),
        }

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first step that fails."""
        moment = moment_of(lab, StepFailed)
        return None if moment is None else wrong_at(lab, moment, "B holds no blocks, and is to give them back.")


SCENARIO = BeamWithoutBlocks()
