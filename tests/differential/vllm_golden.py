"""vLLM's recordings under tests/golden: a header line, and then one workload per line.

    {"upstream": ..., "version": ..., "command": ..., "rows": what a row holds}
    {"workload": {...}, "rows": [a patch per row, from the row before]}

Integers only, but for words such as "running": 'group:number' in a label's place numbers the prefixes of the
workload's requests in order, and what a row repeats of its op is left out. Read one with read().
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from differential.vllm_labels import group_label, prefix_labels
from differential.vllm_patch import patch, patched
from differential.vllm_process import VERSION
from vllm_scheduler_workloads import next_token

FOLDER = Path(__file__).resolve().parent.parent / "golden"

NAMES = ("ops-full", "ops-hybrid", "scheduler", "priority", "unread")
"""Kinds with one thing at a time; "tier" has an external tier, "states" has state groups, and MIXED_NAMES have drafts
and steps in flight: they have tests of their own."""

MIXED_NAMES = ("forks", "speculation", "checkpoints", "mixed")
"""Kinds of vllm_mixed_workloads that are recorded."""

Row = dict[str, Any]


def golden_path(name: str) -> Path:
    """The recording of one kind of workloads, one of NAMES or "tier"."""
    return FOLDER / f"vllm-{name}.jsonl.gz"


def write(name: str, header: dict[str, str], runs: Iterable[tuple[Row, list[Row]]]) -> None:
    """Record; the same runs make the same bytes."""
    lines = [header, *({"workload": workload, "rows": _encoded(workload, rows)} for workload, rows in runs)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    golden_path(name).write_bytes(gzip.compress(text.encode(), mtime=0))


def read_header(name: str) -> dict[str, str]:
    """What was recorded, from where, and how."""
    header: dict[str, str] = json.loads(next(_lines(name)))
    return header


def read(name: str) -> Iterator[tuple[Row, list[Row]]]:
    """The recorded workloads, and what vLLM held after each op or step of theirs."""
    lines = _lines(name)
    next(lines)
    for line in lines:
        run = json.loads(line)
        yield run["workload"], _decoded(run["workload"], run["rows"])


@cache
def recorded(name: str) -> list[tuple[Row, list[Row]]]:
    """All that read() gives; kept until conftest.py drops it."""
    return list(read(name))


def workloads(name: str) -> list[Row]:
    """The recorded workloads alone."""
    return [workload for workload, _ in recorded(name)]


def assert_header(name: str) -> None:
    """The recording says from which vLLM and by which command it is."""
    header = read_header(name)
    assert header["version"].startswith(VERSION + ".")
    assert header["command"].endswith("python tests/record_vllm_golden.py")


def _encoded(workload: Row, rows: list[Row]) -> list[Any]:
    numbers = {label: number for number, label in enumerate(_labels(workload))}

    def numbered(label: str) -> str:
        group, prefix = label[1:].split(":", 1)
        return f"{group}:{numbers[prefix]}"

    patches: list[Any] = []
    before: Row = {}
    for row in rows:
        fields = {key: value for key, value in row.items() if key not in ("i", "op", "req")}
        row = _renamed(fields, numbered)
        patches.append(patch(before, row))
        before = row
    return patches


def _decoded(workload: Row, patches: list[Any]) -> list[Row]:
    labels = _labels(workload)

    def named(number: str) -> str:
        group, prefix = map(int, number.split(":"))
        return group_label(group, labels[prefix])

    rows: list[Row] = []
    before: Row = {}
    for number, change in enumerate(patches):
        before = patched(before, change)
        rows.append(_of_op(workload, number) | _renamed(before, named))
    return rows


def _of_op(workload: Row, number: int) -> Row:
    op = workload["ops"][number] if "ops" in workload else None
    return {"i": number, "op": op["op"], "req": op.get("req")} if op else {}


def _renamed(row: Row, name: Callable[[str], str]) -> Row:
    """The row with other keys in its prefix map, wherever it lies."""
    held = row.get("state", row)
    renamed = held | {"cached": {name(label): ids for label, ids in held["cached"].items()}}
    return row | {"state": renamed} if "state" in row else renamed


def _labels(workload: Row) -> list[str]:
    """Of every prefix of every request, each once, in order."""
    size = workload.get("hash_block_size") or workload["block_size"]
    requests = _requests_of_ops(workload["ops"]) if "ops" in workload else _requests_of_scheduler(workload)
    return list(dict.fromkeys(label for tokens, salt in requests for label in prefix_labels(tokens, salt, size)))


def _requests_of_ops(ops: list[Row]) -> list[tuple[list[int], str | None]]:
    """Tokens, in the end, and salt of each request."""
    tokens: dict[str, list[int]] = {}
    for op in ops:
        if "tokens" in op:
            tokens.setdefault(op["req"], []).extend(op["tokens"])
    return [(tokens[op["req"]], op.get("salt")) for op in ops if op["op"] == "add"]


def _requests_of_scheduler(workload: Row) -> list[tuple[list[int], str | None]]:
    token_at = next_token(workload)
    requests = []
    for request_id, request in enumerate(workload["requests"]):
        start = len(request["prompt"])
        answer = [token_at(request_id, position) for position in range(start, start + request["max_tokens"])]
        requests.append((request["prompt"] + answer, request.get("salt")))
    return requests


def _lines(name: str) -> Iterator[str]:
    with gzip.open(golden_path(name), "rt", encoding="utf-8") as file:
        yield from file
