"""What tokens cost that had to be computed again."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from labengine.config import ConfigError, shown
from labengine.prefix_doctor.causes.finding import Price
from labengine.prefix_doctor.play.clock import Clock


@dataclass(frozen=True, slots=True)
class Prices:
    """The user's prices; None for an unknown one. bytes_per_token: of KV.

    per_hour: of the engine, in any currency; the clock tells how many of its seconds were lost.
    """

    clock: Clock | None = None
    bytes_per_token: float | None = None
    per_hour: float | None = None

    def __post_init__(self) -> None:
        if self.per_hour is None:
            return
        if not (isinstance(self.per_hour, int | float) and 0 <= self.per_hour < inf):
            raise ConfigError(f"price_per_hour must be a number >= 0, got {shown(self.per_hour)}")
        if self.clock is None:
            raise ConfigError("price_per_hour needs a clock: the seconds that the lost tokens took")

    def of(self, num_tokens: int) -> Price:
        """Return the price of computing tokens again, in steps that are full."""
        seconds = None if self.clock is None else self.clock.prefill_seconds(num_tokens)
        gib = None if self.bytes_per_token is None else num_tokens * self.bytes_per_token / 2**30
        return Price(seconds, gib, None if self.per_hour is None or seconds is None else seconds * self.per_hour / 3600)
