"""A core whose state a part has broken: checks end, in bounded memory, and report each fault and its place."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Iterator

import pytest

from labengine import Lab
from labengine.core.block_pool import BlockPool
from labengine.core.free_queue import FreeQueue
from labengine.engine.engine import Engine

NO_ID = 10_000_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lab_of(num_blocks: int) -> tuple[Lab, Engine]:
    """Two requests, the second of which hits the first one's blocks."""
    lab = Lab("simulated", num_blocks=num_blocks, block_size=4)
    for _ in range(2):
        lab.add(token_ids=[*range(1, 41)], max_tokens=5)
        lab.step()
    assert lab.check() == []
    return lab, lab.session.stepper.engine


def pool_of(engine: Engine) -> BlockPool:
    return engine.scheduler.manager.pool


def links(queue: FreeQueue) -> list[int]:
    return queue._next


def queue_in_a_circle(engine: Engine) -> None:
    *_, second, last = pool_of(engine).free_queue
    links(pool_of(engine).free_queue)[last] = second


def queue_torn(engine: Engine) -> None:
    _, second, *_ = pool_of(engine).free_queue
    links(pool_of(engine).free_queue)[second] = NO_ID


def queue_miscounted(engine: Engine) -> None:
    pool_of(engine).free_queue._length = NO_ID


def table_of_no_ids(engine: Engine) -> None:
    table = engine.requests[0].block_tables[0]
    table[1:4] = [NO_ID, -7, None]  # type: ignore[list-item]


def table_without_end(engine: Engine) -> None:
    engine.requests[0].block_tables[0].extend([3] * 100_000)


def map_to_no_ids(engine: Engine) -> None:
    prefix_map = pool_of(engine).prefix_map
    prefix_map[next(iter(prefix_map))] = (NO_ID, -7, None)  # type: ignore[assignment]


def prefixes_in_a_circle(engine: Engine) -> None:
    first, *_, last = engine.requests[0].prefixes
    first.parent = last


BREAKAGES: dict[Callable[[Engine], None], tuple[str, ...]] = {
    queue_in_a_circle: ("block 63 leads to 62", "block 62 is in the free queue 2 times"),
    queue_torn: (f"leads to {NO_ID}",),
    queue_miscounted: (f"counts {NO_ID} blocks but holds 53",),
    table_of_no_ids: (f"it is block {NO_ID}", f"block {NO_ID} is not in the pool"),
    table_without_end: ("entry 11 of request 0's table is not there; it is block 3", "block 3 appears twice"),
    map_to_no_ids: (f"blocks {NO_ID}, -7, None", f"to block {NO_ID}"),
}


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_a_violation_names_its_place(breakage: Callable[[Engine], None]) -> None:
    lab, engine = lab_of(64)
    breakage(engine)
    messages = [violation.message for violation in lab.check()]
    for words in BREAKAGES[breakage]:
        assert any(words in message for message in messages), messages
    assert not any("check itself failed" in message for message in messages)
    assert all(violation.first_event is not None for violation in lab.violations)
    look_at(lab)


@pytest.mark.parametrize(
    ("num_blocks", "max_bytes"), [(5_000, 100e6), pytest.param(100_000, 200e6, marks=pytest.mark.sweep)]
)
def test_a_large_pool_with_everything_broken_is_looked_at_in_bounded_memory(num_blocks: int, max_bytes: float) -> None:
    lab, engine = lab_of(num_blocks)
    for breakage in (table_of_no_ids, table_without_end, map_to_no_ids, prefixes_in_a_circle, queue_in_a_circle):
        breakage(engine)
    tracemalloc.start()
    try:
        lab.check()
        look_at(lab)
        assert tracemalloc.get_traced_memory()[1] < max_bytes
    finally:
        tracemalloc.stop()


def look_at(lab: Lab) -> None:
    """Everything that reads all of the core."""
    assert lab.snapshot().blocks
    assert repr(lab) and lab.status()
    assert str(lab.why(block=0)) and str(lab.why(block=3))
    for name in ("pool", "tables", "map", "queue"):
        data, _ = lab.view(name)._repr_mimebundle_()
        assert data["text/plain"]
