"""A token that is not sampled yet can be kept and moved, and its value cannot be read."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from labengine.config import SamplingParams
from labengine.core.hash_chain import HashChain
from labengine.core.step_plan import UNSAMPLED, ScheduledRequest, UnsampledError

ASKING: dict[str, Callable[[], object]] = {
    "hash": lambda: hash((1, UNSAMPLED)),
    "equal": lambda: UNSAMPLED == 3,
    "equal, asked by a number": lambda: 3 == UNSAMPLED,  # noqa: SIM300
    "in a tuple": lambda: 3 in (UNSAMPLED,),
    "in a set": lambda: UNSAMPLED in {3},
    "a tuple of it": lambda: (1, UNSAMPLED) == (1, 3),
    "order": lambda: UNSAMPLED > 3,
    "number": lambda: int(UNSAMPLED),
    "sum": lambda: 1 + UNSAMPLED,
    "truth": lambda: bool(UNSAMPLED),
    "text": lambda: f"{UNSAMPLED:d}",
    "bytes": lambda: array("q", [UNSAMPLED]),
    "index": lambda: [1, 2][UNSAMPLED],
    "block hash": lambda: HashChain().link(b"", (1, UNSAMPLED)),
}


@pytest.mark.parametrize("what", ASKING)
def test_whoever_asks_gets_an_error(what: str) -> None:
    with pytest.raises((UnsampledError, TypeError)):
        ASKING[what]()


def test_it_can_be_kept_and_recognised() -> None:
    tokens = [1, 2, UNSAMPLED]
    assert tokens[-1] is UNSAMPLED
    assert tokens[:2] == [1, 2]
    assert len(tuple(tokens)) == 3
    assert "UNSAMPLED" in repr(tokens)


def test_a_plan_is_filled_in() -> None:
    part = ScheduledRequest(0, (5, UNSAMPLED), 3, ((0,),), (((0, 3, 2),),), False, True, SamplingParams(), 0)
    assert part.is_unfilled
    part.fill_in(7)
    assert part.token_ids == (5, 7)
    assert not part.is_unfilled
