"""The runner: an engine's interface to a model, real or simulated."""

from __future__ import annotations

from typing import Protocol

from labengine.core.beams import Likeliest
from labengine.core.connector import BlockKV
from labengine.core.step_plan import Logits, StepPlan


def is_asynchronous(runner: Runner) -> bool:
    """Return True if `forward` returns once the work is launched and `sample` waits for it: the host is free meanwhile.

    Such a runner has a true attribute of this name; any other computes before it returns.
    """
    return bool(getattr(runner, "is_asynchronous", False))


class Runner(Protocol):
    """Computes steps. It depends on plans but not on schedulers; a result of `forward` goes to `sample` unchanged.

    An asynchronous runner may also have `launch_ahead`, as ModelRunner has it.
    """

    def forward(self, plan: StepPlan) -> Logits:
        """Compute all scheduled tokens and write their KV into the plan's slots, and into no others."""
        ...

    def sample(self, plan: StepPlan, logits: Logits) -> list[int]:
        """Return one token per row of plan.rows, in that order. Equal plans and logits give equal tokens."""
        ...

    def likeliest(self, plan: StepPlan, logits: Logits, num_tokens: int) -> list[Likeliest]:
        """Return, per beam of plan.beams, its num_tokens likeliest next tokens with their log-probabilities.

        Of equally likely ones the lower id comes first.
        """
        ...

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Copy the K and V that a group keeps in a block into another block, bit by bit."""
        ...

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return copies of a block's K and V, for the external tier; None when there are no weights and so no KV."""
        ...

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Write a result of `read_block`, bit by bit."""
        ...
