"""Drives another engine in that engine's interpreter, for labengine to read and judge.

    PYTHON driver.py ENGINE [PATCH.py]

ENGINE is a key of MODULES, or a driver file, whose name ends in .py.

Lines of JSON come in, and each is answered by one. Every answer has the `number` of its line.

{"settings", "operations"} plays a workload: a new engine, the operations, and steps to the end. With "goes_on", the
engine stays, and {"operations", "goes_on"} without settings continues it. The answer is {"header", "messages",
"states", "num_done", "num_steps", "is_idle", "left", "error"}: `header` is left out if it has not changed; `states`,
after each call, are for an engine without events; `left` is the engine's state if a workload ends with work left.

Several engines can live at once: "run" is the number of the one that is meant (0). A line's "ended", if any, are the
numbers of engines to be forgotten.

{"contract": settings} asks for the first sentence on what a driver file lacks: {"broken"}; see contract.py.

{"patch": {"method", "text", "file"}} replaces a method of the engine's classes, and {"method"} asks for its source; see
methods.py. The first line that goes out is {"engine", "source"}: the engine's release, and the text of the file that
makes and drives it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

WORKLOAD_S = 2.0
"""Processor seconds that a line may take; most take a hundredth of that."""

MAX_FILE = 2**26
"""Most bytes of a file that the engine writes, so that a loop that prints fills no disk."""

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

sys.path.append(str(Path(__file__).parents[2] / "isolation"))
symptoms, contract, methods, confinement, looks, memory_limit = map(
    importlib.import_module, ("symptoms", "contract", "methods", "confinement", "looks", "memory_limit")
)

MOST_FRAMES = 4
"""Most frames of the engine's traceback that are told."""
OWN_FILES = {str(one.__file__) for one in (symptoms, contract, methods)} | {__file__}
"""Files whose frames are labengine's own."""


class EndlessWorkloadError(BaseException):
    """Raised inside a line's work that takes too long. Not an Exception, so that no engine's `except` catches it."""


def main(engine: str, patch: str | None = None) -> None:
    """Answer until stdin ends, at the latest with labengine's process; whatever the engine prints goes to stderr."""
    answers = own_stdout()
    serve = imported(engine)
    confinement.confine()
    if patch is not None:
        runpy.run_path(patch)
    serve(answers)


def imported(engine: str) -> Callable[[TextIO], None]:
    """Import an engine, with what drives it and records its events; return what then answers lines."""
    name, events = MODULES.get(engine, (engine, None))
    driving = _driver_file(engine) if engine not in MODULES else importlib.import_module(name)
    make_events = importlib.import_module(events).Events if events else States
    return partial(_serve, Path(engine).stem, driving, make_events)


def _serve(name: str, driving: Any, make_events: Any, answers: TextIO) -> None:
    with open(str(driving.__file__), encoding="utf-8") as file:
        _say(answers, {"engine": f"{name} {driving.VERSION}", "source": file.read()})
    signal.signal(signal.SIGVTALRM, _end)
    signal.signal(signal.SIGALRM, _looking(looks.Looks()))
    sys.addaudithook(_refuse_copies)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # labengine ends this process on Ctrl-C
    States.decided_by = getattr(driving, "DECIDED_BY", {})
    driver = Driver(driving, make_events)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
    if sys.platform == "linux":
        memory_limit.limit_memory()
    for line in sys.stdin:
        _shorten_log()
        asked = json.loads(line)
        _say(answers, {"number": asked.get("number"), **driver.answer(asked)})


def _driver_file(path: str) -> Any:
    """Return a driver file as a module. PYTHONPATH has the folders that it can import from."""
    sys.path.remove(str(Path(__file__).parent))  # the engine's modules may have the names of those beside this file
    spec = importlib.util.spec_from_file_location("driver_file", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(methods)["PACKAGES"] = (spec.name, *getattr(module, "PACKAGES", ()))
    return module


class Driver:
    """Plays one workload after the other, each on a new engine, or single operations on the newest one."""

    def __init__(self, driving: Any, make_events: Any) -> None:
        self._driving, self._make_events = driving, make_events
        self._runs: dict[int, DrivenRun] = {}
        self._headers: dict[int, Any] = {}
        """Per run, the newest header that was told."""

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what a line asks for; return the answer, with the engine's exception if any."""
        for ended in asked.get("ended", ()):
            self._runs.pop(ended, None)
            self._headers.pop(ended, None)
        if "contract" in asked:
            return self._contract(asked["contract"])
        if "patch" in asked:
            States.places = None
            return {"error": limited(partial(methods.replace, **asked["patch"]))}
        if "method" in asked:
            return {"found": methods.described(asked["method"])}
        number, goes_on = asked.get("run", 0), bool(asked.get("goes_on"))
        if "settings" in asked:
            self._runs.pop(number, None)
            make = partial(self._make_run, number, asked["settings"], is_judged=not goes_on)
            if error := limited(make, may_wait=True):
                return {"error": error, "messages": [], "states": None, "num_done": 0, "num_steps": 0, "left": None}
        return self._told(number, asked["operations"], goes_on)

    def _contract(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        found: list[str] = []
        promises = contract.broken_promises(self._driving, settings)
        error = limited(lambda: found.extend(islice(promises, 1)))
        return {"broken": found, "error": error}

    def _make_run(self, number: int, settings: Mapping[str, Any], *, is_judged: bool) -> None:
        self._runs[number] = DrivenRun(self._driving.CORE, self._make_events, settings, is_judged=is_judged)

    def _told(self, number: int, operations: Sequence[Sequence[Any]], goes_on: bool) -> dict[str, Any]:
        run = self._runs[number]
        error = limited(partial(run.play, operations)) or (None if goes_on else limited(run.drain))
        error = limited(partial(run.look, goes_on=goes_on, has_failed=bool(error))) or error
        told = {
            "messages": run.events.take(),
            "states": run.take_states(),
            "num_done": run.num_done,
            "num_steps": run.num_steps,
            "is_idle": run.is_idle,
            "left": run.left,
            "error": error,
        }
        if run.events.header is not self._headers.get(number):
            self._headers[number] = told["header"] = run.events.header
        return told


class States:
    """Replaces the events of an engine without a tap: the state and the plan after each of its calls."""

    decided_by: Mapping[str, str] = {}
    """The method that decides each kind of event, by the engine's module."""
    places: dict[str, Any] | None = None
    """Where these methods are; None until it is asked for."""

    def __init__(self, engine: Any, key: str) -> None:
        pass

    @property
    def header(self) -> dict[str, Any]:
        """Return {"methods": {kind: {class, method, module, line}}}, of the methods that this version has."""
        if States.places is None:
            found = {name: methods.described(name) for name in {*self.decided_by.values()}}
            known = {name: one for name, one in found.items() if "refusal" not in one}
            of_kinds = {kind: known[name] for kind, name in self.decided_by.items() if name in known}
            States.places = {"methods": {kind: {**one, "text": ""} for kind, one in of_kinds.items()}}
        return States.places

    def take(self) -> list[Any]:
        """Return no messages."""
        return []

    def look(self) -> None:
        """Do nothing."""

    end = look


class DrivenRun:
    """One engine, and what it is told to do. num_done: operations begun; num_steps: steps, to the end if drained.

    is_judged: each state is judged here, and requests sample alike; else each samples by its seed or number.
    """

    def __init__(self, make_engine: Any, make_events: Any, settings: Mapping[str, Any], *, is_judged: bool) -> None:
        self._seeds: dict[str, int] = {}
        has_states = make_events is States
        is_watched = is_judged and bool(has_states or settings["transfers"])  # events do not tell everything
        sample = symptoms.sampling(settings) if is_watched else symptoms.alike if is_judged else self._token_at
        self.engine = make_engine(settings, sample)
        self._watching: Any = None
        if is_watched:
            self._watching = symptoms.Watching(self.engine, settings)
        elif has_states:
            self._watching = symptoms.Following(self.engine)
        self._states = self._watching.states if has_states else None
        self.events = make_events(self.engine, json.dumps(settings))
        self._actions = {**symptoms.actions(self.engine), "add": self._add, "step": self._step}
        self.num_added = self.num_done = self.num_steps = 0
        self.is_idle = False
        self.left: Any = None

    def play(self, operations: Sequence[Sequence[Any]]) -> None:
        """Do operations. Raises the engine's exceptions."""
        for operation in operations:
            self.num_done += 1
            what, *values = operation
            self._actions[what](*values)

    def drain(self) -> None:
        """Take steps until all requests have ended, or the engine is stuck."""
        num_stalls, last = 0, self.num_steps + MAX_STEPS
        while not self.engine.is_idle and num_stalls < MAX_STALLS and self.num_steps < last:
            num_stalls = 0 if self._step() else num_stalls + 1
        if self.engine.is_idle:
            symptoms.refuse("end", symptoms.forgotten(self.engine))

    def look(self, *, goes_on: bool, has_failed: bool) -> None:
        """Look at the engine: it may raise, and a broken queue may have no end. Sets `is_idle` and `left`."""
        self.is_idle, self.left = False, None
        (self.events.look if goes_on else self.events.end)()
        if not has_failed:
            self.is_idle = self.engine.is_idle
            self.left = None if goes_on or self.is_idle else self.engine.state()

    def take_states(self) -> list[Any] | None:
        """Return the states since the last call; None for an engine that has events."""
        if self._states is None:
            return None
        states = list(self._states)
        self._states.clear()
        return states

    def _add(
        self, prompt: Sequence[int], max_tokens: int, salt: str | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        name, options = str(self.num_added), dict(more or {})
        self._seeds[name] = options.pop("seed", self.num_added)
        self.num_added += 1
        self.engine.add(name, prompt, max_tokens, salt, **options)

    def _step(self) -> Any:
        self.num_steps += 1
        return self.engine.step()

    def _token_at(self, name: str, position: int) -> int:
        return int(symptoms.token_at(self._seeds[name], position))


def limited(act: Callable[[], object], *, may_wait: bool = False) -> list[str] | None:
    """Call `act`; return the exception that ended it: its name, message, traceback, a symptom's rule, and its method.

    may_wait: True does not end it for waiting: vLLM waits for a process of its own when its first engine is made.

    An engine's SystemExit or KeyboardInterrupt is an answer as well, and must not end this process silently.
    """
    signal.setitimer(signal.ITIMER_PROF, 3 * WORKLOAD_S)  # ends the process, also in C
    signal.setitimer(signal.ITIMER_VIRTUAL, WORKLOAD_S)
    if not may_wait:
        signal.setitimer(signal.ITIMER_REAL, looks.LOOK_S, looks.LOOK_S)
    try:
        act()
    except BaseException as error:
        if isinstance(error, MemoryError):
            memory_limit.open_reserve()
        rule = error.rule if isinstance(error, symptoms.Symptom) else ""
        return [type(error).__name__, _text(error), _trace(error), rule, methods.raising(error)]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _shorten_log() -> None:
    """Empty the file that holds what the engine prints, if it is long."""
    if os.fstat(2).st_size > MAX_FILE // 2:
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)


def _refuse_copies(event: str, _: object) -> None:
    if event in ("os.fork", "os.forkpty"):  # a copy would read and answer lines instead of this process
        raise RuntimeError("it forks its process")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:
        return f"(its __str__ raised {type(second).__name__})"


def _trace(error: BaseException) -> str:
    """Return an exception's traceback: the innermost frames of the engine and of its driver."""
    told = traceback.TracebackException.from_exception(error)
    frames = [one for one in told.stack if one.filename not in OWN_FILES]
    told.stack = traceback.StackSummary.from_list(frames[-MOST_FRAMES:])
    return "".join(told.format())


def _looking(at: Any) -> Callable[[int, FrameType | None], None]:
    """Return a handler of SIGALRM that raises EndlessWorkloadError inside a workload that waits."""
    return lambda number, frame: _end(number, frame) if at.is_asleep_for_good() else None


def _end(_: int, frame: FrameType | None) -> None:
    place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    raise EndlessWorkloadError(place)


def own_stdout() -> TextIO:
    """Return a file that writes to stdout, where nothing else does from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
    answers.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main(*sys.argv[1:])
