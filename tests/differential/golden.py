"""The recordings under tests/golden: one gzipped file per edition, a header line and then one workload per line.

    {"upstream": ..., "commit": ..., "edition": ..., "command": ..., "rows": what a row holds}
    {"workload": {...}, "rows": [one per step, as nano_upstream, sglang_upstream or minisgl_upstream makes them]}

All numbers are integers. Read one with: gzip -dc FILE | head -2
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from workloads import Workload

FOLDER = Path(__file__).resolve().parent.parent / "golden"

Row = dict[str, Any]


def golden_path(edition: str) -> Path:
    """The recording of an edition."""
    return FOLDER / f"{edition}.jsonl.gz"


def write(edition: str, header: dict[str, str], runs: Iterable[tuple[dict[str, Any], list[Row]]]) -> None:
    """Record; the same runs make the same bytes."""
    lines = [json.dumps(header)]
    lines += (json.dumps({"workload": workload, "rows": rows}, separators=(",", ":")) for workload, rows in runs)
    text = "\n".join(lines) + "\n"
    golden_path(edition).write_bytes(gzip.compress(text.encode(), mtime=0))


def read_header(edition: str) -> dict[str, str]:
    """What was recorded, from where, and how."""
    header: dict[str, str] = json.loads(next(_lines(edition)))
    return header


def read(edition: str) -> Iterator[tuple[Workload, list[Row]]]:
    """The recorded workloads, and what upstream held after each of their steps."""
    for workload, rows in read_plain(edition):
        yield Workload.from_dict(workload), rows


def read_plain(edition: str, step: int = 1) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Every `step`-th recorded workload as it is in the file, and its rows."""
    for line in islice(_lines(edition), 1, None, step):
        run = json.loads(line)
        yield run["workload"], run["rows"]


def _lines(edition: str) -> Iterator[str]:
    with gzip.open(golden_path(edition), "rt", encoding="utf-8") as file:
        yield from file
