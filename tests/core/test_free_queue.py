"""The free queue against a plain list, under random operations and their inverses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from labengine.core.free_queue import FreeQueue, holds_in_order
from random_cases import for_random


def test_starts_with_all_blocks_in_order() -> None:
    assert list(FreeQueue(4)) == [0, 1, 2, 3]
    assert len(FreeQueue(4)) == 4


def test_equals_a_list_after_every_operation_and_undo() -> None:
    for_random(lambda rng: _equals_a_list(rng, rng.randint(1, 60)), examples=100)


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_list_in_a_long_episode(seed: int) -> None:
    _equals_a_list(Random(seed), 300)


def _equals_a_list(rng: Random, num_operations: int) -> None:
    num_blocks = rng.randint(1, 12)
    queue, model = FreeQueue(num_blocks), list(range(num_blocks))
    for _ in range(num_operations):
        before = list(model)
        undo = operate(rng, queue, model, num_blocks)
        assert (list(queue), len(queue)) == (model, len(model)) and holds_in_order(queue, model)
        assert not model or not holds_in_order(queue, model[1:])
        assert [i in queue for i in range(num_blocks)] == [i in model for i in range(num_blocks)]
        if rng.random() < 0.3:
            undo()
            model[:] = before
            assert list(queue) == model


def operate(rng: Random, queue: FreeQueue, model: list[int], num_blocks: int) -> Callable[[], object]:
    """One random operation on both; returns its inverse on the queue."""
    out = [i for i in range(num_blocks) if i not in model]
    kind = rng.choice(("take", "remove", "append", "prepend", "insert"))
    if kind == "take":
        taken = queue.take(rng.randint(0, len(model)))
        assert taken == model[: len(taken)]
        del model[: len(taken)]
        return lambda: queue.prepend(taken)
    if kind == "remove" and model:
        block_id = rng.choice(model)
        model.remove(block_id)
        before = queue.remove(block_id)
        return lambda: queue.insert_after(before, block_id)
    if kind in ("append", "prepend", "insert") and out:
        block_ids = rng.sample(out, 1 if kind == "insert" else rng.randint(1, len(out)))
        if kind == "append" or (kind == "insert" and not model):
            queue.append(block_ids)
            model.extend(block_ids)
        elif kind == "prepend":
            queue.prepend(block_ids)
            model[:0] = block_ids
        else:
            before = rng.choice(model)
            queue.insert_after(before, block_ids[0])
            model.insert(model.index(before) + 1, block_ids[0])
        return lambda: [queue.remove(block_id) for block_id in block_ids]
    return lambda: None


@pytest.mark.parametrize("place", ("_next", "_prev"))
def test_a_torn_link_is_seen_wherever_it_is(place: str) -> None:
    for block_id in range(5):
        queue = FreeQueue(4)
        links = getattr(queue, place)
        links[block_id] = (links[block_id] + 1) % 5
        assert not holds_in_order(queue, range(4)) and queue.fault() is not None
    queue = FreeQueue(4)
    queue._length = 3
    assert not holds_in_order(queue, range(4)) and not holds_in_order(queue, range(3)) and queue.fault() is not None


def test_taking_more_than_there_are_changes_nothing() -> None:
    queue = FreeQueue(3)
    with pytest.raises(IndexError, match=r"4 blocks .* 3 are free"):
        queue.take(4)
    assert list(queue) == [0, 1, 2]


def test_a_block_is_queued_once_and_removed_once() -> None:
    queue = FreeQueue(3)
    with pytest.raises(ValueError, match="block 1 is already"):
        queue.insert_after(0, 1)
    queue.remove(1)
    with pytest.raises(ValueError, match="block 1 is not in the free queue"):
        queue.remove(1)
    assert list(queue) == [0, 2]
