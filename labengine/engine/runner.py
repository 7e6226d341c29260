"""The runner: an engine's interface to a model, real or simulated."""

from __future__ import annotations

from typing import Protocol

from labengine.core.beams import Likeliest
from labengine.core.connector import BlockKV
from labengine.core.step_plan import Logits, StepPlan


def is_asynchronous(runner: Runner) -> bool:
    """Return True if `forward` only launches the work and `sample` waits for it, with the host free in between.

    Such a runner has a true attribute of this name; any other has finished computing when `forward` returns.
    """
    return bool(getattr(runner, "is_asynchronous", False))


class Runner(Protocol):
    """Computes steps. It depends on plans but not on schedulers; `sample` gets the unchanged result of `forward`.

    An asynchronous runner may also have `launch_ahead`, like ModelRunner.
    """

    def forward(self, plan: StepPlan) -> Logits:
        """Compute all scheduled tokens, and write their KV only into the plan's slots."""
        ...

    def sample(self, plan: StepPlan, logits: Logits) -> list[int]:
        """Return one token per row of plan.rows, in that order. Equal plans and logits give equal tokens."""
        ...

    def likeliest(self, plan: StepPlan, logits: Logits, num_tokens: int) -> list[Likeliest]:
        """Return, per beam of plan.beams, its num_tokens likeliest next tokens with their log-probabilities.

        Among equally likely tokens the lower id comes first.
        """
        ...

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Copy a group's K and V in a block to another block, bit for bit."""
        ...

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return copies of a block's K and V for the external tier; None for a model without weights, and so no KV."""
        ...

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Write a result of `read_block`, bit for bit."""
        ...
