"""labengine's core in upstream's terms: the same rows, and the first difference of two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from labengine.core.parts import Parts
from labengine.engine.workload import simulate
from labengine.events import RequestScheduled, StepStarted
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from workloads import Workload

W = TypeVar("W")
Row = dict[str, Any]


def rows_of_labengine(workload: Workload, edition: str | Parts) -> list[Row]:
    """What our core holds after each step, in the keys of nano_upstream.row."""
    scheduled: list[list[list[int]]] = []
    hooks = Hooks(strict=True)
    hooks.subscribe(lambda event: scheduled.append([]), StepStarted)
    hooks.subscribe(lambda event: scheduled[-1].append([event.request_id, event.num_tokens]), RequestScheduled)
    snapshots = simulate(workload.for_simulate(), edition, workload.next_token, hooks)
    return [_row(snapshot, batch) for snapshot, batch in zip(snapshots, scheduled, strict=True)]


def _row(snapshot: Snapshot, scheduled: list[list[int]]) -> Row:
    return {
        "step": snapshot.step,
        "scheduled": scheduled,
        "requests": {
            str(request_id): [len(r.token_ids), r.num_computed_tokens, list(r.block_tables[0])]
            for request_id, r in snapshot.requests.items()
        },
        "ref_counts": [block.ref_count for block in snapshot.blocks],
        "free_queue": list(snapshot.free_queue),
        "map": sorted([list(snapshot.blocks[i].token_ids), i] for ids in snapshot.prefix_map.values() for i in ids),
    }


def first_difference(expected: Sequence[Row], rows: Sequence[Row]) -> str | None:
    """Describe the first difference of two runs; None when they are equal after every step."""
    return next(_differences(expected, rows), None)


def _differences(expected: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
    for number, (theirs, ours) in enumerate(zip_longest(expected, rows)):
        if theirs is None or ours is None:
            yield f"upstream takes {len(expected)} steps, labengine {len(rows)}"
            return
        for key in theirs:
            if theirs[key] != ours[key]:
                yield f"step {number}: {key} is {theirs[key]} upstream, {ours[key]} in labengine"


def is_found_out(runs: Iterable[tuple[W, list[Row]]], difference: Callable[[W, list[Row]], str | None]) -> bool:
    """True if a core that decides otherwise differs from a recorded run, or breaks its own rules there."""
    for workload, rows in runs:
        try:
            found = difference(workload, rows)
        except Exception:
            return True
        if found is not None:
            return True
    return False
