"""Workloads for a tapped vLLM scheduler, and the recorded ones: tests/golden/vllm-streams.jsonl.gz."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

from differential.vllm_golden import FOLDER
from vllm_scheduler_workloads import scheduler_workload

PATH = FOLDER / "vllm-streams.jsonl.gz"
RECORDED_SEEDS = range(16)

Item = dict[str, Any]


def tapped_workload(seed: int) -> dict[str, Any]:
    """Return a workload; two of three run asynchronously, half of them with aborts, all with resets of the cache."""
    options: dict[str, Any] = {"async": seed % 3 > 0, "resets": True}
    if seed % 2:
        options["aborts"] = seed
    return scheduler_workload(seed) | options


def write(header: dict[str, str], runs: Iterable[tuple[dict[str, Any], list[Item]]]) -> None:
    """Record; the same runs make the same bytes."""
    lines = [header, *({"workload": workload, "items": [*map(timeless, items)]} for workload, items in runs)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    PATH.write_bytes(gzip.compress(text.encode(), mtime=0))


def read() -> Iterator[tuple[dict[str, Any], list[Item]]]:
    """Yield the recorded workloads, and what was seen while each ran."""
    with gzip.open(PATH, "rt", encoding="utf-8") as file:
        next(file)
        for line in file:
            run = json.loads(line)
            yield run["workload"], run["items"]


def lines_of(items: Iterable[Item]) -> list[bytes]:
    """Return the lines of the stream's file."""
    headers = ({**item["header"], "file": 1} for item in items if "header" in item)
    messages = (item["message"] for item in items if "message" in item)
    return [json.dumps(line).encode() for line in (*headers, *messages)]


def timeless(item: Item) -> Item:
    """Return the item with its number in place of the time."""
    return {"message": {**item["message"], "t": item["message"]["n"]}} if "message" in item else item
