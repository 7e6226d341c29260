"""Commands in real processes, forked from one that has imported labengine: each starts in milliseconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from checkout import child_environment

IMPORTED = (
    "labengine.vllm.cache_events.attach",
    "labengine.prefix_doctor.doctor",
    "labengine.vllm.stream.attach_command",
    "labengine.vllm.stream.page.server",
    "zmq",
)


class ForkingProcess:
    """A process that starts one command after the other, as a script does with &: they ignore SIGINT."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(),
        )

    def start(self, out: Path, err: Path, *arguments: str) -> int:
        """Start labengine with these arguments, its output in files; return the process's id."""
        return int(self._ask([str(out), str(err), *arguments]))

    def wait(self) -> int:
        """Wait for the command's end; return its exit status, negative for the signal that killed it."""
        return int(self._ask(None))

    def _ask(self, question: Any) -> str:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()


def _serve() -> None:
    running = 0
    for line in sys.stdin:
        question = json.loads(line)
        if question is None:
            print(os.waitstatus_to_exitcode(os.waitpid(running, 0)[1]), flush=True)
            running = 0
            continue
        running = os.fork()
        if not running:
            _run(*question)
        print(running, flush=True)
    if running:  # the test has failed
        os.kill(running, signal.SIGKILL)


def _run(out: str, err: str, *arguments: str) -> None:
    from labengine.__main__ import main

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    status = 1
    try:
        status = main([*arguments])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    _serve()
