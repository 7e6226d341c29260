"""SGLang pull request 6690: is a request's own cached prefix counted as memory that can be freed for it?"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.sglang.full_attention import SglangGroup
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, step_at_most, try_step
from labengine.scenarios.scenario import Column, Scenario


class CountsItsOwnHit(SglangGroup):
    """Counts a prompt's cached prefix among the blocks that can be evicted for the prompt."""

    def num_newly_locked(self, hit: Sequence[int]) -> int:
        """Return 0: the hit costs nothing."""
        return 0


class UnlockedHit(Scenario):
    """A leaves a prefix, R runs, and B, which begins with A's prefix, needs one block more than is free."""

    columns = (Column("sglang", CountsItsOwnHit), Column("sglang"))
    figures = {
        "steps ended by an error": lambda lab: len(events_of(lab, StepRolledBack)),
        "requests finished": num_finished,
    }
    follow_ups = (try_step, try_step, try_step)
    follow_up_question = "Is B admitted while R runs?"

    def play(self, lab: Lab) -> None:
        """Run A, R's prompt, and three more steps with B; an error ends the run."""
        self.opening(lab)
        step_at_most(lab, 3)

    def opening(self, lab: Lab) -> None:
        """Run A to its end, then R's prompt, and add B."""
        lab.generate([range(1, 17)], max_tokens=1)
        lab.add(token_ids=range(21, 30), max_tokens=3)
        lab.step()
        lab.add(token_ids=[*range(1, 17), *range(51, 56)], max_tokens=1)
