"""The files of a stream: one file, or all of one stream in a folder, in order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError
from labengine.system.regular_file import open_regular

SUFFIX = ".labstream"
WHY_UNTAPPED = 'If vLLM ran with the tap, its log says why: look for "this scheduler is not tapped".'
MAX_LINE_BYTES = 1 << 28
"""Most bytes of a line. The longest ones are keyframes: 300 bytes per block, so 30 MB for 100,000 blocks."""
GZIP = b"\x1f\x8b"
"""The first bytes of a saved recording."""
_NAME = re.compile(rf"(?P<stream>rank\d+-.+)-(?P<number>\d+){re.escape(SUFFIX)}")


def stream_files(place: str | PathLike[str]) -> list[Path]:
    """Return the files of a stream in order. place: a file, a folder, or FOLDER/STREAM, as `places_in` returns it.

    Raises ConfigError for a folder without a stream, or with several.
    """
    path = Path(place)
    if path.is_file():
        return [path]
    if not path.is_dir():
        if found := _streams(path.parent).get(path.name):
            return found
        wanted = f"attach takes a {SUFFIX} file or the folder of LABENGINE_TAP"
        raise ConfigError(f"no file {path}; {wanted}. {WHY_UNTAPPED}")
    streams = _streams(path)
    if not streams:
        raise ConfigError(
            f"no stream in {path}: set LABENGINE_TAP=file:{path} to make vLLM's tap write one. {WHY_UNTAPPED}"
        )
    if len(streams) > 1:
        names = ", ".join(places_in(path)[:8])
        raise ConfigError(f"{path} has {len(streams)} streams, newest first: {names}; name one of them")
    return streams.popitem()[1]


def places_in(place: str | PathLike[str]) -> list[str]:
    """Return the place, or for a folder with several streams FOLDER/STREAM for each, the newest first."""
    path = Path(place)
    streams = _streams(path) if path.is_dir() else {}
    if len(streams) < 2:
        return [str(place)]
    newest = sorted(streams, key=lambda name: max(file.stat().st_mtime for file in streams[name]), reverse=True)
    return [str(path / name) for name in newest]


def _streams(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each stream in a folder, in order."""
    streams: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for file in folder.glob(f"*{SUFFIX}"):
        if found := _NAME.fullmatch(file.name):
            streams[found["stream"]].append((int(found["number"]), file))
    return {name: [file for _, file in sorted(numbered)] for name, numbered in streams.items()}


def is_saved(place: str | PathLike[str]) -> bool:
    """Return True for a file saved by a lab or by attach."""
    path = Path(place)
    if not path.is_file():
        return False
    try:
        with open_regular(path) as file:
            return file.peek(2)[:2] == GZIP
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def lines_of(file: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield (line, whether it is complete) for each line; the last one of a live stream may be incomplete.

    Raises ConfigError for a file that cannot be read, was saved by a lab or by attach, or has too long a line.
    """
    try:
        with open_regular(file) as lines:
            if lines.peek(2)[:2] == GZIP:
                raise ConfigError(
                    f"{file} is a saved recording, not a stream of the tap: `labengine open {file}` shows it, with "
                    "--html as a page; labengine doctor takes either"
                )
            for line in iter(partial(lines.readline, MAX_LINE_BYTES + 1), b""):
                if len(line) > MAX_LINE_BYTES:
                    raise ConfigError(f"{file} has a line of more than {MAX_LINE_BYTES:,} bytes: it is not a stream")
                yield line.rstrip(b"\n"), line.endswith(b"\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
