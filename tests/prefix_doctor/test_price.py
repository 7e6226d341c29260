"""Lost tokens as seconds, memory and money."""

from __future__ import annotations

import pytest

from labengine.config import ConfigError
from labengine.prefix_doctor.causes.finding import Price
from labengine.prefix_doctor.play.clock import Clock
from labengine.prefix_doctor.play.price import Prices

CLOCK = Clock.of_rates(8000, 0.025)


def test_lost_tokens_become_seconds_memory_and_money() -> None:
    prices = Prices(CLOCK, bytes_per_token=2**17, per_hour=3.6)
    found = prices.of(16_000)
    assert (found.seconds, found.gib, found.money) == pytest.approx((2.0, 16_000 / 2**13, 0.002))
    assert Prices().of(10) == Price()


def test_a_price_that_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a clock"):
        Prices(per_hour=2.0)
    with pytest.raises(ConfigError, match="number >= 0"):
        Prices(CLOCK, per_hour=-2.0)
