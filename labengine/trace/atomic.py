"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from os import PathLike
from pathlib import Path

from labengine.trace.errors import TraceError


def write_whole(path: str | PathLike[str], content: bytes) -> None:
    """Write aside, then rename: who reads meanwhile sees the file of before. TraceError when that cannot be done."""
    try:
        target = Path(path).resolve()
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        _write_aside(aside, target, content)
    except (OSError, TypeError, ValueError) as error:
        raise TraceError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _write_aside(aside: Path, target: Path, content: bytes) -> None:
    try:
        with aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    finally:
        with suppress(OSError):
            aside.unlink()
