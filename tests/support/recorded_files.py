"""Recorded streams as files, as the tap writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from differential import vllm_streams


def written(items: list[dict[str, Any]], folder: Path) -> Path:
    """Write a recorded stream into a file."""
    path = folder / "run.labstream"
    path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(items)))
    return path
