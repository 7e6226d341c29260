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

    per_hour: of the engine, in any currency; the clock tells how many of its seconds were lost. per_million: of prompt
    tokens, as providers bill them.
    """

    clock: Clock | None = None
    bytes_per_token: float | None = None
    per_hour: float | None = None
    per_million: float | None = None

    def __post_init__(self) -> None:
        for name in ("per_hour", "per_million"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < inf):
                raise ConfigError(f"the price {name} must be a number >= 0, got {shown(value)}")
        if self.per_hour is not None and self.per_million is not None:
            raise ConfigError("give the price of an hour or that of a million tokens, not both")
        if self.per_hour is not None and self.clock is None:
            raise ConfigError("the price of an hour needs a clock: the seconds that the lost tokens took")

    def of(self, num_tokens: int, attended: int = 0) -> Price:
        """Return the price of computing tokens again, with `attended` pairs of attention, in steps that are full."""
        seconds = None if self.clock is None else self.clock.prefill_seconds(num_tokens, attended)
        gib = None if self.bytes_per_token is None else num_tokens * self.bytes_per_token / 2**30
        if self.per_million is not None:
            return Price(seconds, gib, num_tokens * self.per_million / 1e6)
        return Price(seconds, gib, None if self.per_hour is None or seconds is None else seconds * self.per_hour / 3600)
