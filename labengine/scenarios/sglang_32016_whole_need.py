"""SGLang pull request 32016: an allocation evicts all that it needs, although a part of it is free."""

from __future__ import annotations

from labengine.core.radix.block_pool import RadixBlockPool
from labengine.events import NodeEvicted, RequestFinished
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import Column, Scenario


class EvictsTheWholeNeed(RadixBlockPool):
    """Does not subtract the free blocks."""

    def make_room(self, num_blocks: int) -> None:
        """Evict num_blocks blocks if fewer are free."""
        if num_blocks > len(self.free_queue):
            self.tree.evict(num_blocks)


def num_evicted_for_d(lab: Lab) -> int:
    """Return the number of blocks evicted before request 3 ends."""
    num_blocks = 0
    assert lab.timeline is not None
    for event in lab.timeline.events():
        if isinstance(event, NodeEvicted):
            num_blocks += len(event.block_ids)
        elif isinstance(event, RequestFinished) and event.request_id == 3:
            break
    return num_blocks


class WholeNeed(Scenario):
    """A, B and C leave prefixes in the tree; D needs two blocks more than are free, and E comes back for C's."""

    columns = (Column("sglang", EvictsTheWholeNeed), Column("sglang"))
    figures = {
        "blocks evicted for D": num_evicted_for_d,
        "tokens found": lambda lab: num_hit_tokens(lab, 4),
        "tokens computed": num_computed_tokens,
    }
    follow_up_question = "Does E find the prefix that C has left?"
    follow_ups = (lambda lab: lab.add(token_ids=[*range(41, 49), 81], max_tokens=1), lambda lab: lab.step())

    def play(self, lab: Lab) -> None:
        """Run all five."""
        self.opening(lab)
        self.follow_up(lab)

    def opening(self, lab: Lab) -> None:
        """Run A, B, C and D, one after the other."""
        for prompt in (range(1, 9), range(21, 29), range(41, 49), range(61, 77)):
            lab.generate([prompt], max_tokens=1)
