"""A runner with somebody beside it: real or simulated, what it computes stays as it is."""

from __future__ import annotations

from typing import Any, Protocol

from labengine.core.connector import BlockKV
from labengine.core.step_plan import StepPlan


class Runner(Protocol):
    """What an engine asks of a model. (The engine's own contract, which this room may not import.)"""

    def forward(self, plan: StepPlan) -> Any: ...
    def sample(self, plan: StepPlan, logits: Any) -> list[int]: ...
    def read_block(self, group: int, block_id: int) -> BlockKV | None: ...
    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None: ...


class Onlooker(Protocol):
    """Who is told of what the runner does. Raises nothing."""

    def before_forward(self, plan: StepPlan) -> None: ...
    def after_forward(self, plan: StepPlan) -> None: ...
    def block_overwritten(self, block_id: int) -> None: ...


class WatchedRunner:
    """Passes everything on, and tells what touches the pool's memory."""

    def __init__(self, runner: Runner, onlooker: Onlooker) -> None:
        self._runner = runner
        self._onlooker = onlooker

    def forward(self, plan: StepPlan) -> Any:
        """The runner's own; told before, and after if it comes back."""
        self._onlooker.before_forward(plan)
        logits = self._runner.forward(plan)
        self._onlooker.after_forward(plan)
        return logits

    def sample(self, plan: StepPlan, logits: Any) -> list[int]:
        """The runner's own."""
        return self._runner.sample(plan, logits)

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """The runner's own."""
        return self._runner.read_block(group, block_id)

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """The runner's own; told before."""
        self._onlooker.block_overwritten(block_id)
        self._runner.write_block(group, block_id, kv)
