"""Static batching: the next batch begins when the last request of the one before is done."""

from __future__ import annotations

from labengine.core.request import Request
from labengine.core.scheduler import Admission
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler


class StaticBatching(TokenBudgetScheduler):
    """A scheduler that admits nobody to a step that began with a request still running."""

    is_open = True

    def schedule(self) -> StepPlan:
        """Note whether a new batch may begin."""
        self.is_open = not self.running
        return super().schedule()

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Return the tokens that a waiting request computes; None while a batch is under way."""
        return super().admit(request, limit, is_first=is_first) if self.is_open else None
