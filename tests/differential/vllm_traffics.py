"""vLLM's figures of traffics under tests/golden/vllm-traffics.json.gz.

"random": by seed, what vllm_upstream_traffic returns. "made": by the name of a traffic of prefix_doctor.traffics, the
totals "before", "after" the known cure, and with the one that the "doctor" proposes.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parent.parent / "golden" / "vllm-traffics.json.gz"

RECORDED_SEEDS = range(60)

Row = dict[str, Any]


def write(header: dict[str, str], figures: Row) -> None:
    """Record; the same figures make the same bytes."""
    text = json.dumps({**header, **figures}, separators=(",", ":"))
    PATH.write_bytes(gzip.compress(text.encode(), mtime=0))


@cache
def recorded() -> Row:
    """Return the header's and the figures' keys."""
    document: Row = json.loads(gzip.decompress(PATH.read_bytes()))
    return document
