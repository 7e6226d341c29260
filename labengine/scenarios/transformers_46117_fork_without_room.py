"""transformers pull request 46117: a fork takes its blocks child by child, and fails when they run out.

Continuous batching of transformers makes a fork's copy of a partly filled block at once, for one child after the other.
Where no block is left the call returns None, and its caller raises: what the children before have taken stays taken.
Here the copy at once is played in an engine whose steps are all or nothing: the step fails, now and at every attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine.core.editions import LABENGINE
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished
from labengine.scenarios.scenario import Column, Scenario, symptom


class CopiesAtTheFork(KVCacheManager):
    """A fork has its own copy of a partly filled block from the beginning."""

    def fork(self, request: Request, parent: Request) -> None:
        """Share the full blocks, and copy the last one at once if it is filled in part, whether a block is free or
        not.
        """
        super().fork(request, parent)
        for group in self.groups:
            if request.num_computed_tokens % group.block_size:
                self.copy(group, request, request.num_computed_tokens // group.block_size)


class ForkWithoutRoom(Scenario):
    """Three answers to a prompt of six tokens, in blocks of four; one block is free when they fork."""

    columns = (
        Column(
            parts=Parts(name="labengine, copies at the fork", kv_cache_manager=CopiesAtTheFork).overriding(LABENGINE)
        ),
        Column(parts="labengine"),
    )

    def play(self, lab: Lab) -> None:
        """Take the first step, then twelve more; an error may end each of these."""
        self.opening(lab)
        for _ in range(12):
            symptom(lab.step)

    def opening(self, lab: Lab) -> None:
        """Ask for three answers to one prompt, and compute its first block."""
        lab.add(token_ids=range(1, 7), n=3, max_tokens=3)
        lab.step()

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take the step in which the forks begin, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed steps and finished requests."""
        return {"steps that failed": len(events_of(lab, StepRolledBack)), "answers": num_finished(lab)}


SCENARIO = ForkWithoutRoom()
