"""The recordings under tests/golden: one gzipped file per edition, a header line and then one workload per line.

    {"upstream": ..., "commit": ..., "edition": ..., "command": ..., "rows": what a row holds}
    {"workload": {...}, "rows": [one per step, as nano_upstream.row makes them]}

All numbers are integers. Read one with: gzip -dc FILE | head -2
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workloads import Workload

FOLDER = Path(__file__).resolve().parent.parent / "golden"

Row = dict[str, Any]


def golden_path(edition: str) -> Path:
    """The recording of an edition."""
    return FOLDER / f"{edition}.jsonl.gz"


def write(edition: str, header: dict[str, str], runs: Iterable[tuple[Workload, list[Row]]]) -> None:
    """Record; the same runs make the same bytes."""
    lines = [json.dumps(header)]
    lines += (json.dumps({"workload": w.to_dict(), "rows": rows}, separators=(",", ":")) for w, rows in runs)
    text = "\n".join(lines) + "\n"
    golden_path(edition).write_bytes(gzip.compress(text.encode(), mtime=0))


def read_header(edition: str) -> dict[str, str]:
    """What was recorded, from where, and how."""
    header: dict[str, str] = json.loads(next(_lines(edition)))
    return header


def read(edition: str) -> Iterator[tuple[Workload, list[Row]]]:
    """The recorded workloads, and what upstream held after each of their steps."""
    lines = _lines(edition)
    next(lines)
    for line in lines:
        run = json.loads(line)
        yield Workload.from_dict(run["workload"]), run["rows"]


def _lines(edition: str) -> Iterator[str]:
    with gzip.open(golden_path(edition), "rt", encoding="utf-8") as file:
        yield from file
