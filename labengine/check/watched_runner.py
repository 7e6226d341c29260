"""A runner with an observer: it computes what the wrapped runner computes."""

from __future__ import annotations

from typing import Protocol

from labengine.core.connector import BlockKV
from labengine.core.step_plan import Logits, StepPlan


class WatchableRunner(Protocol):
    """The methods that an engine calls on a model. (The engine's own contract, which this room may not import.)"""

    def forward(self, plan: StepPlan) -> Logits: ...
    def sample(self, plan: StepPlan, logits: Logits) -> list[int]: ...
    def read_block(self, group: int, block_id: int) -> BlockKV | None: ...
    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None: ...


class ForwardObserver(Protocol):
    """An observer of a runner's access to the pool's memory. Raises nothing."""

    def before_forward(self, plan: StepPlan) -> None: ...
    def after_forward(self, plan: StepPlan) -> None: ...
    def block_overwritten(self, block_id: int) -> None: ...


class WatchedRunner:
    """Forwards every call to a runner, and reports to an observer the calls that touch the pool's memory."""

    def __init__(self, runner: WatchableRunner, observer: ForwardObserver) -> None:
        self._runner = runner
        self._observer = observer

    def forward(self, plan: StepPlan) -> Logits:
        """Run the forward pass; report before it, and after it if it returns."""
        self._observer.before_forward(plan)
        logits = self._runner.forward(plan)
        self._observer.after_forward(plan)
        return logits

    def sample(self, plan: StepPlan, logits: Logits) -> list[int]:
        """Sample with the wrapped runner."""
        return self._runner.sample(plan, logits)

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Read a block with the wrapped runner."""
        return self._runner.read_block(group, block_id)

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Write a block with the wrapped runner; report before it."""
        self._observer.block_overwritten(block_id)
        self._runner.write_block(group, block_id, kv)
