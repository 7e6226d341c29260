"""vLLM pull request 29387: a request continues from a state that its own step has yet to compute.

A block's hash is registered when the block is allocated. For attention this does no harm: a whole batch's KV is written
before any of it is read (scenario vllm-38715). A state is copied before the forward pass, so a request that hits a
state of the same step gets the block's old content. The fixed scheduler makes the request wait a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.state_group import StateGroup
from labengine.core.vllm.state_group import VllmStateGroup
from labengine.events import (
    RequestScheduled,
    StepStarted,
)
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens, num_misread_blocks
from labengine.scenarios.scenario import Column, Experiment, Scenario, Table


class HitsStatesOfThisStep(VllmStateGroup):
    """Counts a hit on a state of this step like any other hit."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return the number of blocks that the request takes, regardless of when its hit state is computed."""
        return StateGroup.num_blocks_to_admit(self, hit, num_computed_tokens, num_blocks)


def first_steps(lab: Lab) -> dict[int, int]:
    """Return the first step that schedules each request, by request id."""
    assert lab.timeline is not None
    steps, step = dict[int, int](), 0
    for event in lab.timeline.events():
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, RequestScheduled):
            steps.setdefault(event.request_id, step)
    return steps


class TogetherAdded(Experiment):
    """Prompts added at once and run to the end."""

    columns = (Column("vllm", HitsStatesOfThisStep), Column("vllm"), Column("labengine"))
    prompts: tuple[tuple[int, ...], ...] = ((1, 2, 3, 4), (1, 2, 3, 5))
    figures = {
        "states misread": num_misread_blocks,
        "requests in the first step": lambda lab: sum(step == 1 for step in first_steps(lab).values()),
        "hit of B": lambda lab: num_hit_tokens(lab, 1),
        "tokens computed": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Add the prompts, then run them."""
        for prompt in self.prompts:
            lab.add(token_ids=prompt, max_tokens=2)
        lab.run()


class WaitsBehind(TogetherAdded):
    """A third prompt, which shares nothing."""

    prompts = (*TogetherAdded.prompts, (7, 8, 9, 10))

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the step in which each request starts."""
        return {f"first step of {name}": step for name, step in zip("ABC", first_steps(lab).values(), strict=True)}


class StateOfThisStep(TogetherAdded, Scenario):
    """The pull request's example: blocks of one token, and two prompts that share three of four tokens."""

    experiments = {"behind": WaitsBehind()}

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        _, right, own = (table[column.name]["tokens computed"] for column in self.columns)
        return {"more": own - right}
