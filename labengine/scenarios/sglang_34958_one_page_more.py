"""SGLang pull request 34958: a prefill makes room for a page more per request than it takes."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.request import Request
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import Column, Scenario


class MakesRoomForWhatItTakes(SglangScheduler):
    """Counts the blocks that the prompts' tables lack."""

    def make_room_for(self, chosen: Sequence[tuple[Request, int]]) -> None:
        """Evict until the step's blocks are free."""
        lengths = [(request, request.num_computed_tokens + num_tokens) for request, num_tokens in chosen]
        self.pool.make_room(sum(self.group.num_missing_blocks(request, length) for request, length in lengths))


class OnePageMore(Scenario):
    """A leaves a prefix in the tree, B takes exactly the blocks that are free, and C comes back for A's prefix."""

    columns = (Column("sglang"), Column("sglang", MakesRoomForWhatItTakes))
    figures = {
        "tokens found": lambda lab: num_hit_tokens(lab, 2),
        "tokens computed": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Run all three, one after the other."""
        for prompt in (range(1, 9), range(21, 33), [*range(1, 9), 61]):
            lab.generate([prompt], max_tokens=1)
