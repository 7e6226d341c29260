"""Loads that arrive a number of steps later: the same every time, for teaching."""

from __future__ import annotations

from labengine.config import ConfigError, is_single_int
from labengine.core.connector import Connector
from labengine.engine.external.late import LateLoads
from labengine.engine.external.staging import PendingLoad


class Delayed(LateLoads):
    """A store whose loads arrive with the n-th call of get_finished after they began; `steps` is n, at least 1."""

    def __init__(self, inner: Connector, steps: int = 1) -> None:
        super().__init__(inner)
        if not is_single_int(steps) or steps < 1:
            raise ConfigError(f"steps must be an integer of at least 1, got {steps!r}")
        self.steps = int(steps)

    def describe(self) -> str:
        """Return the inner one's line, and how late loads are."""
        return f"{super().describe()}; loads arrive {self.steps} step{'s' * (self.steps > 1)} late"

    def _begin(self, load: PendingLoad) -> None:
        load.run(self.inner)

    def _is_due(self, load: PendingLoad) -> bool:
        return load.num_polls >= self.steps
