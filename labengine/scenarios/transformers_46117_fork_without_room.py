"""transformers pull request 46117: a fork takes its blocks child by child, and fails when they run out.

Continuous batching in transformers immediately copies a partly filled block for each child of a fork, one after the
other. If no block is left, the call returns None and its caller raises: the blocks of earlier children stay taken. Here
the immediate copy is played in an engine whose steps are all or nothing: the step fails, now and at every attempt.
"""

from __future__ import annotations

from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import Request
from labengine.events import StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, try_step
from labengine.scenarios.scenario import Column, Scenario


class CopiesAtTheFork(KVCacheManager):
    """A fork has its own copy of a partly filled block from the start."""

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

    columns = (Column("labengine", CopiesAtTheFork), Column("labengine"))
    follow_ups = (try_step,)
    figures = {
        "steps that failed": lambda lab: len(events_of(lab, StepRolledBack)),
        "answers": num_finished,
    }

    def play(self, lab: Lab) -> None:
        """Take the first step, then twelve more, each of which may end in an error."""
        self.opening(lab)
        for _ in range(12):
            try_step(lab)

    def opening(self, lab: Lab) -> None:
        """Add a prompt with three answers, and compute its first block."""
        lab.add(token_ids=range(1, 7), n=3, max_tokens=3)
        lab.step()
