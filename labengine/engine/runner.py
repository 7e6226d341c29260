"""What an engine asks of a model, real or simulated: compute a plan, then pick tokens."""

from __future__ import annotations

from typing import Any, Protocol

from labengine.core.connector import BlockKV
from labengine.core.step_plan import StepPlan


def is_asynchronous(runner: Runner) -> bool:
    """Return True when `forward` returns once the work is launched, and `sample` waits for it: meanwhile the host is
    free.

    A runner that works so says it by an attribute of this name; without one it computes before it returns.
    """
    return bool(getattr(runner, "is_asynchronous", False))


class Runner(Protocol):
    """Computes steps. It knows plans and no schedulers; whatever `forward` returns goes to `sample` untouched."""

    def forward(self, plan: StepPlan) -> Any:
        """Compute all scheduled tokens and write their KV into the plan's slots, and into no others."""
        ...

    def sample(self, plan: StepPlan, logits: Any) -> list[int]:
        """One token per request of plan.sampling, in that order. Same plan and logits, same tokens."""
        ...

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return copies of a block's K and V, for the external tier; None when there are no weights and so no KV."""
        ...

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Put back what `read_block` gave, bit for bit."""
        ...
