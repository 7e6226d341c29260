"""Plays workloads on another engine, in that engine's interpreter, for labengine to read and judge.

    PYTHON driver.py ENGINE [PATCH.py]

Lines of JSON come in and go out, one for each workload, in order: {"number", "settings", "tokens", "operations"} is
answered by {"number", "header", "messages", "states", "num_done", "num_steps", "left", "error"}. `number` identifies
the workload; `header` is left out if it has not changed; `states`, after each call, are for an engine without events;
`left` is the engine's state if work is left. The first line that goes out is {"engine", "source"}: the engine's
release, and the text of the file that makes and drives it.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

WORKLOAD_S = 2.0
"""Processor seconds that a workload may take; most take a hundredth of that."""

MAX_STEPS = 400
"""Most steps to the end of a workload, which needs some dozens."""

MAX_STALLS = 12
"""Consecutive steps without a change after which the engine counts as stuck."""

MODULES: dict[str, tuple[str, str | None]] = {
    "vllm": ("vllm_scheduler", "vllm_events"),
    "nano-vllm": ("nano_scheduler", None),
    "mini-sglang": ("mini_sglang_scheduler", None),
    "sglang": ("sglang_scheduler", None),
}
"""Per engine, the module that drives it, and the module that records its events; None: states are kept."""

num_copies = [0]
"""Number of copies of this process that the engine has made."""

sys.path.append(str(Path(__file__).parents[2] / "isolation"))
symptoms, confinement, looks = map(importlib.import_module, ("symptoms", "confinement", "looks"))


class EndlessWorkloadError(BaseException):
    """Raised inside a workload that takes too long. Not an Exception, so that no engine's `except` catches it."""


def main(engine: str, patch: str | None = None) -> None:
    """Answer until stdin ends; whatever the engine prints goes to stderr."""
    answers = _own_stdout()
    name, events = MODULES[engine]
    driving = importlib.import_module(name)
    confinement.confine()
    if patch is not None:
        runpy.run_path(patch)
    with open(str(driving.__file__), encoding="utf-8") as file:
        _say(answers, {"engine": f"{engine} {driving.VERSION}", "source": file.read()})
    signal.signal(signal.SIGVTALRM, _end)
    signal.signal(signal.SIGALRM, _looking(looks.Looks()))
    os.register_at_fork(after_in_child=_end_copy, after_in_parent=_count_copy)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # labengine ends this process on Ctrl-C
    driver = Driver(driving.CORE, importlib.import_module(events).Events if events else States)
    for line in sys.stdin:
        _say(answers, driver.answer(json.loads(line)))


class Driver:
    """Plays one workload after the other, each on a new engine."""

    def __init__(self, make_engine: Any, make_events: Any) -> None:
        self._make_engine, self._make_events = make_engine, make_events
        self._header: Any = None

    def answer(self, workload: dict[str, Any]) -> dict[str, Any]:
        """Play a workload and steps to its end; return the answer, with the engine's exception if any."""
        run = DrivenRun(self._make_engine(workload["settings"], workload["tokens"]), workload["operations"])
        watching = None
        if self._make_events is States or workload["settings"]["transfers"]:  # events do not tell everything
            watching = symptoms.Watching(run.engine, workload["settings"])
        events = self._make_events(run.engine, json.dumps(workload["settings"]))
        error = limited(run.play)
        error = limited(events.end) or error  # a broken queue may never reach its end
        found = {
            "number": workload.get("number"),
            "messages": events.messages,
            "states": watching.states if watching is not None and self._make_events is States else None,
            "num_done": run.num_done,
            "num_steps": run.num_steps,
            "left": None if error or run.engine.is_idle else run.engine.state(),
            "error": error,
        }
        if events.header is not self._header:
            self._header = found["header"] = events.header
        return found


class States:
    """Replaces the events of an engine without a tap, which is judged by the states after its calls."""

    header = None

    def __init__(self, engine: Any, key: str) -> None:
        self.messages: list[Any] = []

    def end(self) -> None:
        """Do nothing."""


class DrivenRun:
    """One workload. num_done: operations begun; num_steps: steps, including those after the last operation."""

    def __init__(self, engine: Any, operations: Sequence[Sequence[Any]]) -> None:
        self.engine, self._operations = engine, operations
        self._actions = {**symptoms.actions(engine), "step": self._step}
        self.num_done = self.num_steps = 0

    def play(self) -> None:
        """Do all operations. Raises the engine's exceptions."""
        for operation in self._operations:
            self.num_done += 1
            what, *values = operation
            self._actions[what](*values)
        self._drain()

    def _step(self) -> Any:
        self.num_steps += 1
        return self.engine.step()

    def _drain(self) -> None:
        num_stalls, last = 0, self.num_steps + MAX_STEPS
        while not self.engine.is_idle and num_stalls < MAX_STALLS and self.num_steps < last:
            num_stalls = 0 if self._step() else num_stalls + 1


def limited(act: Callable[[], object]) -> list[str] | None:
    """Call `act`; return the exception that ended it: its name, message, traceback and a symptom's rule.

    An engine's SystemExit or KeyboardInterrupt is an answer as well, and must not end this process silently.
    """
    signal.setitimer(signal.ITIMER_VIRTUAL, WORKLOAD_S)
    signal.setitimer(signal.ITIMER_REAL, looks.LOOK_S, looks.LOOK_S)
    before = num_copies[0]
    try:
        act()
        if num_copies[0] > before:
            raise RuntimeError("it forks its process")
    except BaseException as error:
        rule = error.rule if isinstance(error, symptoms.Symptom) else ""
        return [type(error).__name__, _text(error), traceback.format_exc(), rule]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _count_copy() -> None:
    num_copies[0] += 1


def _end_copy() -> None:
    os._exit(0)  # a copy would read and answer workloads instead of this process


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:
        return f"(its __str__ raised {type(second).__name__})"


def _looking(at: Any) -> Callable[[int, FrameType | None], None]:
    """Return a handler of SIGALRM that raises EndlessWorkloadError inside a workload that waits."""
    return lambda number, frame: _end(number, frame) if at.is_asleep_for_good() else None


def _end(_: int, frame: FrameType | None) -> None:
    place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    raise EndlessWorkloadError(place)


def _own_stdout() -> TextIO:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
    answers.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main(*sys.argv[1:])
