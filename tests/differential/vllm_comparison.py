"""labengine's edition vllm in vLLM's terms: the same rows, and the first difference of two runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from differential.chance_drafts import ChanceDrafts
from differential.departures import refuse_departures
from differential.vllm_labels import group_label, prefix_labels
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from labengine.engine.replay import replay
from labengine.engine.workload import simulate
from labengine.events import Event, RequestFinished, RequestPreempted, RequestScheduled, StepStarted
from labengine.record.hooks import Hooks
from labengine.record.snapshot import RequestState, Snapshot
from vllm_scheduler_workloads import for_simulate, next_token

Row = dict[str, Any]

EDITION = "vllm"


def rows_of_replay(workload: Row, edition: str | Parts = EDITION) -> list[Row]:
    """What labengine's replay gives and holds after each op, as plain JSON. ValueError where it departs from vLLM."""
    refuse_departures(workload)
    rows: list[Row] = json.loads(json.dumps(replay(workload, edition)["results"]))
    return rows


def rows_of_simulate(workload: Row, edition: str | Parts = EDITION) -> list[Row]:
    """What labengine's scheduler holds after each step, in the keys of differential.vllm_upstream_scheduler.

    Raises ValueError for a workload on which the edition departs from vLLM.
    """
    refuse_departures(workload)
    decisions: list[Row] = []
    hooks = Hooks(strict=True)
    hooks.subscribe(lambda event: note_decision(event, decisions))
    speculation = ChanceDrafts(**workload["speculation"]) if "speculation" in workload else None
    snapshots = simulate(for_simulate(workload), edition, next_token(workload), hooks, speculation)
    labels = labels_of(workload, snapshots[-1].requests)
    return [row_of(snapshot, decided, labels) for snapshot, decided in zip(snapshots, decisions, strict=True)]


def note_decision(event: Event, decisions: list[Row]) -> None:
    match event:
        case StepStarted():
            decisions.append({"scheduled": [], "preempted": [], "finished": []})
        case RequestScheduled():
            decisions[-1]["scheduled"].append([event.request_id, event.num_tokens])
        case RequestPreempted():
            decisions[-1]["preempted"].append(event.request_id)
            still = [row for row in decisions[-1]["scheduled"] if row[0] != event.request_id]
            decisions[-1]["scheduled"] = still
        case RequestFinished():
            decisions[-1]["finished"].append(event.request_id)


def row_of(snapshot: Snapshot, decided: Row, labels: dict[str, str]) -> Row:
    return {
        "step": snapshot.step,
        **decided,
        "requests": {
            str(request_id): [r.status, len(r.token_ids), r.num_computed_tokens, list(map(list, r.block_tables))]
            for request_id, r in snapshot.requests.items()
        },
        "ref_counts": [block.ref_count for block in snapshot.blocks],
        "free_queue": list(snapshot.free_queue),
        "cached": {label(key, labels): list(ids) for key, ids in snapshot.prefix_map.items()},
    }


def labels_of(workload: Row, requests: dict[int, RequestState]) -> dict[str, str]:
    """Hash, hex, to label: every link of the hash chains of all requests, as long as they became."""
    size = workload["hash_block_size"]
    chain = HashChain()
    labels = {}
    for request_id, request in requests.items():
        salt = workload["requests"][request_id].get("salt")
        link = chain.root((("cache_salt", salt),) if salt else ())
        for number, label in enumerate(prefix_labels(request.token_ids, salt, size)):
            link = chain.link(link, request.token_ids[number * size : (number + 1) * size])
            labels[link.hex()] = label
    return labels


def label(key: str, labels: dict[str, str]) -> str:
    """Return what a key of the prefix map, "group:hex", stands for."""
    group, block_hash = key.split(":")
    return group_label(int(group), labels[block_hash])


def first_difference(theirs: Sequence[Row], ours: Sequence[Row]) -> str | None:
    """Describe the first difference of two runs; None when they are equal after every op or step."""
    return next(_differences(theirs, ours), None)


def _differences(theirs: Sequence[Row], ours: Sequence[Row]) -> Iterator[str]:
    for number, (expected, row) in enumerate(zip_longest(theirs, ours)):
        if expected is None or row is None:
            yield f"vLLM has {len(theirs)} rows, labengine {len(ours)}"
            return
        for path, wanted, got in _unequal(expected, row):
            yield f"{_moment(number, expected)}: {path or 'row'} is {wanted} in vLLM, {got} in labengine"


def _moment(number: int, row: Row) -> str:
    words = [row["op"], row["req"] or ""] if "op" in row else ["of clock", str(row.get("step"))]
    return f"{'op' if 'op' in row else 'step'} {number} {' '.join(words)}".rstrip()


def _unequal(wanted: Any, got: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, vLLM's, labengine's) for the innermost mapping entries that are not equal."""
    if wanted == got:
        return
    if not (isinstance(wanted, dict) and isinstance(got, dict)):
        yield path, wanted, got
        return
    for key in [*wanted, *(key for key in got if key not in wanted)]:
        yield from _unequal(wanted.get(key, "absent"), got.get(key, "absent"), f"{path}.{key}" if path else key)


def assert_equal_rows(runs: Iterable[tuple[Row, list[Row]]], rows_of: Callable[[Row], list[Row]]) -> None:
    """labengine holds on each workload what was recorded of vLLM."""
    for number, (workload, rows) in enumerate(runs):
        difference = first_difference(rows, rows_of(workload))
        assert difference is None, f"recorded workload {number}: {difference}\n{workload}"
