"""The files of a stream: one file, or all of one stream in a folder, in order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError

SUFFIX = ".labstream"
_NAME = re.compile(rf"(?P<stream>rank\d+-.+)-(?P<number>\d+){re.escape(SUFFIX)}")


def stream_files(place: str | PathLike[str]) -> list[Path]:
    """Return the files of a stream in order. Raises ConfigError for a folder with none, or with several streams."""
    path = Path(place)
    if not path.is_dir():
        if not path.is_file():
            raise ConfigError(f"there is no file {path}; attach takes a {SUFFIX} file, or the folder of LABENGINE_TAP")
        return [path]
    streams: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for file in path.glob(f"*{SUFFIX}"):
        if found := _NAME.fullmatch(file.name):
            streams[found["stream"]].append((int(found["number"]), file))
    if not streams:
        raise ConfigError(f"there is no stream in {path}: LABENGINE_TAP=file:{path} makes vLLM's tap write one")
    if len(streams) > 1:
        newest = sorted(streams, key=lambda name: max(file.stat().st_mtime for _, file in streams[name]), reverse=True)
        names = ", ".join(str(max(streams[name])[1].name) for name in newest[:8])
        raise ConfigError(f"{path} has {len(streams)} streams, newest first: {names}; attach one of these files")
    return [file for _, file in sorted(streams.popitem()[1])]


def lines_of(file: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield (line, whether it is complete) for each line: the last one of a live stream may be half written.

    Raises ConfigError for a file that cannot be read.
    """
    try:
        with file.open("rb") as lines:
            for line in lines:
                yield line.rstrip(b"\n"), line.endswith(b"\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
