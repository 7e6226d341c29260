"""Opening takes no more memory and time than allowed: what a file claims is held against that before it is taken."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from os import mkfifo
from pathlib import Path
from typing import Any

import pytest

import labengine
from damaged_traces import GROUNDS, sound_lines
from labengine.config import ConfigError
from labengine.events import EVENT_KINDS, EngineStarted
from labengine.record.files.file_access import parsed_size
from labengine.record.files.parsing import TraceError
from waiting import PATIENCE

MEMORY = 600_000_000
"""Bytes beyond which a process that opens a small file has taken what it should not."""


def changed(where: int, change: Callable[[Any], Any]) -> bytes:
    """A sound file, one line of which says something else."""
    lines = list(sound_lines(GROUNDS[0], 2))
    lines[where] = json.dumps(change(json.loads(lines[where]))).encode()
    return gzip.compress(b"\n".join(lines), 1)


def more_blocks(rows: list[Any]) -> list[Any]:
    assert rows[0][0] == EVENT_KINDS.index(EngineStarted)
    rows[0][1] = 10_000_000
    return rows


def bomb(num_bytes: int) -> bytes:
    """Blanks, at 230 to 1."""
    packer = zlib.compressobj(1, wbits=31)
    pieces = [packer.compress(b" " * 1_000_000) for _ in range(num_bytes // 1_000_000)]
    return b"".join([*pieces, packer.flush()])


def containers(number: int) -> bytes:
    """Empty lists in the facts: 3 bytes each in the file, 60 in memory."""
    lines = list(sound_lines(GROUNDS[0], 2))
    lines[1] = b'{"title": [' + b"[]," * number + b"[]]}"
    return gzip.compress(b"\n".join(lines), 9)


CLAIMS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a bomb": (lambda: bomb(1_500_000_000), "its text needs at least"),
    "many blocks": (lambda: changed(5, more_blocks), "states of 10,000,000 blocks need at least 6.0 GB"),
    "many small lists": (lambda: containers(12_000_000), "a line of 36,000,0.. bytes needs at least 1.[0-9] GB"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_takes_too_much_is_refused_before_it_is_taken(name: str, tmp_path: Path) -> None:
    make, expected = CLAIMS[name]
    (tmp_path / "run.lab").write_bytes(make())
    script = f"""
import resource, labengine
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY + 600_000_000}, resource.RLIM_INFINITY))
try:
    labengine.open({str(tmp_path / "run.lab")!r}, max_seconds=600)
except labengine.config.ConfigError as error:
    print(error)
status = dict(line.split(":") for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0])
"""
    # ru_maxrss would count what the tests' own process had when it was forked
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    message, most = run.stdout.splitlines()
    assert "needs too much memory to open" in message, run.stderr
    assert re.search(expected, message) and "labengine.open(path, max_bytes=" in message
    assert int(most) * 1024 < 2 * MEMORY


def test_both_limits_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "run.lab"
    path.write_bytes(gzip.compress(b"\n".join(sound_lines(GROUNDS[0], 2))))
    with pytest.raises(TraceError, match="needs too much memory to open"):
        labengine.open(path, max_bytes=1000)
    with pytest.raises(TraceError, match=r"longer to open than 1e-09 s.* max_seconds=1e-08"):
        labengine.open(path, max_seconds=1e-9)
    with labengine.open(path, max_bytes=10_000_000, max_seconds=60) as trace:
        assert trace.timeline.end


@pytest.mark.parametrize("value", [None, 0, -1, "1 GB", 1.5, True, float("nan")])
def test_limits_are_numbers(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_bytes must be (an integer|at least 1)"):
        labengine.open(tmp_path, max_bytes=value)
    if value != 1.5 and value is not True:
        with pytest.raises(ConfigError, match="max_seconds must be a number above 0"):
            labengine.open(tmp_path, max_seconds=value)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="it is a pipe"):
        labengine.open(tmp_path / "pipe")


def test_a_lines_size_in_memory_is_not_estimated_too_low() -> None:
    for text in (
        b"[[1,2,3],[4,5,6]]",
        b'{"a":[],"b":{}}',
        b'["x","yy"]',
        b"[[[[[[]]]]]]",
        b"[" + b"123456," * 999 + b"1]",
    ):
        assert parsed_size(text) >= _size(json.loads(text))


def _size(value: Any) -> int:
    inner = [*value.values(), *value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return sys.getsizeof(value) + sum(map(_size, inner))
