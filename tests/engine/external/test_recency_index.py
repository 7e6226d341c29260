from __future__ import annotations

import random
from threading import Thread

import pytest

from labengine.config import ConfigError
from labengine.engine.external.store import RecencyIndex, checked_cap


def index_of(sizes: dict[str, int], max_entries: int | None = None, max_bytes: int | None = None) -> RecencyIndex[str]:
    index: RecencyIndex[str] = RecencyIndex(max_entries=max_entries, max_bytes=max_bytes)
    for entry, size in sizes.items():
        index.add(entry, size)
    return index


def test_bytes_add_up_when_threads_touch_and_drop_meanwhile() -> None:
    index = index_of({}, max_bytes=500)

    def use(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(2_000):
            entry = str(rng.randrange(40))
            rng.choice((index.touch, index.drop))(entry)

    users = [Thread(target=use, args=(seed,)) for seed in (1, 2)]
    for user in users:
        user.start()
    rng = random.Random(0)
    for _ in range(2_000):
        size = rng.randrange(1, 60)
        index.make_room(size)
        index.add(str(rng.randrange(40)), size)
    for user in users:
        user.join()
    assert index.num_bytes == sum(index._sizes.values()) <= 500 + 60


@pytest.mark.parametrize("cap", [0, -1, 1.5, "8", True, float("nan")])
def test_a_cap_is_a_positive_integer(cap: object) -> None:
    with pytest.raises(ConfigError, match=r"max_bytes must be a positive"):
        checked_cap("max_bytes", cap)  # type: ignore[arg-type]
