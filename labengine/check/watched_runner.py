"""A runner whose access to the pool's memory is reported to an observer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from labengine.core.beams import Likeliest
from labengine.core.connector import BlockKV
from labengine.core.step_plan import Logits, StepPlan
from labengine.system.code_roles import passes_calls_on


class WatchableRunner(Protocol):
    """The methods that an engine calls on a model. Copies the engine's contract, which this package may not import."""

    def forward(self, plan: StepPlan) -> Logits: ...
    def sample(self, plan: StepPlan, logits: Logits) -> list[int]: ...
    def likeliest(self, plan: StepPlan, logits: Logits, num_tokens: int) -> list[Likeliest]: ...
    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None: ...
    def read_block(self, group: int, block_id: int) -> BlockKV | None: ...
    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None: ...


class ForwardObserver(Protocol):
    """An observer of a runner's access to the pool's memory. Raises nothing."""

    def before_forward(self, plan: StepPlan) -> None: ...
    def after_forward(self, plan: StepPlan) -> None: ...
    def after_sample(self, plan: StepPlan, token_ids: Sequence[int]) -> None: ...
    def block_overwritten(self, block_id: int) -> None: ...
    def block_delivered(self, group: int, block_id: int, kv: BlockKV | None) -> None: ...
    def block_copied(self, group: int, block_id: int, into_block_id: int) -> None: ...
    def copy_of(self, group: int, block_id: int, kv: BlockKV | None) -> BlockKV | None: ...


class WatchedRunner:
    """Forwards every call to a runner, and reports calls that touch the pool's memory to an observer."""

    @passes_calls_on
    def __init__(self, runner: WatchableRunner, observer: ForwardObserver) -> None:
        self._runner = runner
        self._observer = observer

    @passes_calls_on
    def forward(self, plan: StepPlan) -> Logits:
        """Run the forward pass; report it before, and afterwards if it returns."""
        self._observer.before_forward(plan)
        logits = self._runner.forward(plan)
        self._observer.after_forward(plan)
        return logits

    @passes_calls_on
    def sample(self, plan: StepPlan, logits: Logits) -> list[int]:
        """Sample with the wrapped runner; report the tokens."""
        token_ids = self._runner.sample(plan, logits)
        self._observer.after_sample(plan, token_ids)
        return token_ids

    @passes_calls_on
    def likeliest(self, plan: StepPlan, logits: Logits, num_tokens: int) -> list[Likeliest]:
        """Rank with the wrapped runner."""
        return self._runner.likeliest(plan, logits, num_tokens)

    @passes_calls_on
    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Copy a block with the wrapped runner; report before and after it."""
        self._observer.block_overwritten(into_block_id)
        self._runner.copy_block(group, block_id, into_block_id)
        self._observer.block_copied(group, block_id, into_block_id)

    @passes_calls_on
    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Read a block with the wrapped runner; the observer adds the identity of its content."""
        return self._observer.copy_of(group, block_id, self._runner.read_block(group, block_id))

    @passes_calls_on
    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Write a block with the wrapped runner; report before and after it."""
        self._observer.block_overwritten(block_id)
        self._runner.write_block(group, block_id, kv)
        self._observer.block_delivered(group, block_id, kv)
