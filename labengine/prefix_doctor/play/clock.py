"""The duration of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Placeholder until the fitted one arrives."""

    per_token: float
    per_step: float

    def duration(self, num_tokens: int, attended: int, read: int) -> float:
        """Return the seconds of one step."""
        return self.per_step + self.per_token * num_tokens
