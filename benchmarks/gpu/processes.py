"""Processes that are ended together with all that they started: each is the head of a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any


def start_group(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command that writes its errors, and by default all else, into a file. Raises OSError.

    environment: added to this process's own.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **options}
    return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True, **pipes)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process's group, the process itself included, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
