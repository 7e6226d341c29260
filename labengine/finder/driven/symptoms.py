"""Plays one workload on an engine, prints its state after each call, and says what is wrong with it.

A script that shows a finding is the engine's file, this one, and the workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MOST_STEPS = 400


class Symptom(Exception):
    """What is wrong with the engine's state."""


class Contents:
    """Which prefix each slot of the cache was computed for. groups: [block size, window or None] each."""

    def __init__(self, groups: Sequence[Sequence[Any]]) -> None:
        self._groups = groups
        self._slots: dict[tuple[int, int], tuple[Any, ...]] = {}

    def compute(self, engine: Any) -> Iterator[str]:
        """Write what the planned step computes; yield a sentence for each token that reads another prefix's KV."""
        tables = {name: engine.state()["requests"].get(name, ["", []])[1] for name in engine.plan}
        places = [(name, group, table) for name in engine.plan for group, table in enumerate(tables[name])]
        for name, group, table in places:
            start, num_tokens = engine.plan[name]
            for position in range(start, start + num_tokens):
                self._slots[self._slot(group, table, position)] = self._prefix(engine, name, position)
        for name, group, table in places:
            start, num_tokens = engine.plan[name]
            window = self._groups[group][1]
            first = 0 if window is None else max(0, start + 1 - window)
            for position in range(first, start + num_tokens):
                slot = self._slot(group, table, position)
                if self._slots.get(slot) != self._prefix(engine, name, position):
                    yield f"request {name} reads position {position} in block {slot[0]}, which holds other tokens' KV"

    def _slot(self, group: int, table: Sequence[int], position: int) -> tuple[int, int]:
        size = self._groups[group][0]
        return table[position // size], position % size

    def _prefix(self, engine: Any, name: str, position: int) -> tuple[Any, ...]:
        return tuple(engine.content_of(name)[: position + 2])


def wrong_counts(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each reference count and queue entry that the tables contradict. Block 0 is vLLM's null."""
    held = Counter(block for _, tables in state["requests"].values() for table in tables for block in set(table))
    held.update(state.get("deferred", ()))
    queued = Counter(state["free_queue"])
    for block, count in enumerate(state["ref_counts"]):
        if block == state.get("null_block", 0):
            continue
        if count != held[block]:
            yield f"block {block} has ref_count {count}, and {held[block]} hold it"
        if queued[block] != (count == 0):
            yield f"block {block} has ref_count {count}, and is {queued[block]} times in the free queue"


def play(
    engine: Any, settings: Mapping[str, Any], operations: Sequence[Sequence[Any]], expected: Sequence[Any]
) -> None:
    """Do the operations, then steps to the end. Raises Symptom, or what the engine raises.

    expected: the state that the design has after each call, or nothing.
    """
    contents, num_calls = Contents(settings["groups"]), 0

    def look(call: str) -> None:
        nonlocal num_calls
        num_calls += 1
        state = engine.state()
        print(f"call {num_calls}, {call}: {state}")
        is_known = call == "schedule" and not settings["transfers"]  # what a connector brings is not known
        refuse_wrong_counts(state)
        if is_known and (found := [*contents.compute(engine)]):
            raise Symptom("; ".join(found[:3]))
        if expected:
            refuse_difference(state, expected[num_calls - 1] if num_calls <= len(expected) else {"requests": {}})

    engine.after_call = look
    do = actions(engine)
    for what, *values in operations:
        print(f"- {what} {', '.join(map(repr, values))}")
        do[what](*values)
    for _ in range(MOST_STEPS):
        if engine.is_idle:
            return
        engine.step()
    raise Symptom(f"after {MOST_STEPS} more steps these have not ended: {engine.state()['requests']}")


def actions(engine: Any) -> dict[str, Callable[..., object]]:
    """Return what each operation does; requests are named by their number."""
    num_added = iter(range(1 << 30))
    return {
        "add": lambda *request: engine.add(str(next(num_added)), *request),
        "step": lambda: engine.step(),
        "abort": lambda number: engine.abort(str(number)),
        "reset": lambda: engine.reset(),
    }


def refuse_wrong_counts(state: Mapping[str, Any]) -> None:
    """Raise Symptom for reference counts and queue entries that the tables contradict."""
    if found := [*wrong_counts(state)]:
        raise Symptom("; ".join(found[:3]))


def refuse_difference(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise Symptom for the first part of the state that is not what the design has."""
    for part, value in expected.items():
        if state[part] != value:
            raise Symptom(f"{part} is {state[part]}, and should be {value}")
