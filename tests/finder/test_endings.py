"""A part that ends its process is a finding, in every way of running; only the user cancels."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import labengine
from finder.endings import ENDINGS, HARMLESS, Ends, ending, once
from finder.test_find import ONE_SCOPE, TINY
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.finder import shrinking, workers
from labengine.finder.counterexample import Counterexample
from labengine.finder.engines.finding import EngineSearch
from labengine.finder.engines.search import find_in_engine
from labengine.finder.find import GRAVE, INTERRUPTED, find
from labengine.finder.judged_alone import EXIT, LOST
from labengine.finder.report import SearchReport
from labengine.finder.scopes import large_scopes, small_scopes
from labengine.isolation import alone
from labengine.isolation.alone import called_alone
from labengine.isolation.board import NoAnswer
from labengine.isolation.channel import Receiver
from labengine.isolation.limits import where_it_is
from waiting import wait_until

ROOT = Path(labengine.__file__).parents[1]
INSIDE = {name: one for name, one in ENDINGS.items() if one.is_seen_inside}
"""Endings that a search in this process survives."""


def searched(parts: object, **settings: Any) -> Counterexample | SearchReport:
    settings = {"scopes": TINY, "kinds": GRAVE, "workers": 2, "max_workloads": 20, "seconds": 600, **settings}
    return find(parts, show_progress=False, **settings)


@pytest.mark.parametrize("name", ENDINGS)
def test_in_processes_an_end_is_a_finding(name: str) -> None:
    one = searched(ending(ENDINGS[name].act), max_workloads=0)
    assert isinstance(one, Counterexample) and ENDINGS[name].said in one.message
    assert (one.rule == EXIT) is not ENDINGS[name].is_seen_inside and one.rule != LOST


@pytest.mark.parametrize("name", INSIDE)
def test_in_this_process_an_end_is_a_finding(name: str) -> None:
    one = searched(ending(INSIDE[name].act), workers=0, max_workloads=0)
    assert isinstance(one, Counterexample) and INSIDE[name].said in one.message


@pytest.mark.parametrize("name", ["sys.exit", "KeyboardInterrupt", "fork"])
def test_in_threads_an_end_is_a_finding(name: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        one = searched(ending(ENDINGS[name].act), workers=pool)
    assert isinstance(one, Counterexample) and ENDINGS[name].said in one.message


class Exits(Ends):
    """Ends its process, also in a pool of processes, to which it can be sent."""

    act = staticmethod(ENDINGS["os._exit(0)"].act)


def test_what_a_pool_of_processes_has_lost_is_searched_here() -> None:
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        one = searched(Exits, workers=pool)
    assert isinstance(one, Counterexample) and one.rule == EXIT


@pytest.mark.parametrize("name", HARMLESS)
def test_what_ends_nothing_is_searched_to_the_end(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    report = searched(once(HARMLESS[name]), max_workloads=0)
    assert isinstance(report, SearchReport) and report.exhausted == ("two requests",) and not report.is_cut
    assert "a print of a part" not in capfd.readouterr().out


class ExitsWhenMade(BlockPool):
    """Ends its process before the first operation."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        os._exit(0)


class RaisesWhenMade(BlockPool):
    """Raises SystemExit before the first operation."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        sys.exit(0)


@pytest.mark.parametrize(("cls", "workers"), [(ExitsWhenMade, 2), (RaisesWhenMade, 2), (RaisesWhenMade, 0)])
def test_a_part_that_ends_the_process_when_it_is_made_is_a_finding(cls: type, workers: int) -> None:
    one = searched(cls, workers=workers)
    assert isinstance(one, Counterexample) and "ends the process" in one.message and not one.operations
    assert "after 0 operations" in repr(one)


def test_an_end_that_no_single_workload_brings_about_is_a_finding_and_no_test() -> None:
    counted: list[int] = []

    def at_the_twentieth() -> None:
        counted.append(1)
        if len(counted) == 20:
            os._exit(0)

    one = searched(ending(at_the_twentieth), scopes=ONE_SCOPE)
    assert isinstance(one, Counterexample) and one.rule == LOST
    assert "exit code 0" in one.message
    with pytest.raises(ConfigError, match="a test would pass"):
        one.to_test()


def test_a_searcher_that_is_killed_from_outside_is_none_and_makes_the_report_no_all_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "MAX_LIVES", 1)

    class Killed(alone.Copy):
        """Kill a searcher at its start, but not a workload played alone."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            os.kill(self.process.pid, 9)

    monkeypatch.setattr(workers, "Copy", Killed)
    report = searched("labengine")
    assert isinstance(report, SearchReport) and report.is_cut
    assert "cut short" in repr(report) and "its process was ended" in repr(report)


# -- what stays in the process -------------------------------------------------------------------------------------

PARENT, GROUP = os.getpid(), os.getpgid(0)
LEAVING: dict[str, Callable[[], object]] = {
    "to the parent": lambda: os.kill(PARENT, signal.SIGURG),
    "to the parent's group": lambda: os.killpg(GROUP, signal.SIGURG),
    "to the parent's group as a process": lambda: os.kill(-GROUP, signal.SIGURG),
}


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Signals received by this process."""
    found: list[int] = []
    before = signal.signal(signal.SIGURG, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGURG, before)


@pytest.mark.parametrize("name", LEAVING)
def test_a_signal_that_would_leave_the_session_is_a_finding(name: str, heard: list[int]) -> None:
    one = searched(ending(LEAVING[name]), max_workloads=0)
    assert isinstance(one, Counterexample) and "it sends signal 23 to another process" in one.message
    found = called_alone(lambda board: LEAVING[name](), inf)
    assert isinstance(found, NoAnswer) and "it sends signal 23 to another process" in found.reason
    assert heard == []


def test_a_signal_to_its_own_group_stays_there(heard: list[int]) -> None:
    assert called_alone(lambda board: os.killpg(os.getpgid(0), signal.SIGURG) or len(heard), inf) == 1
    assert heard == []


def is_gone(pid: int) -> bool:
    return alone._state_and_seconds(pid)[0] in "XZ"


def test_what_it_has_started_ends_with_it() -> None:
    pid = called_alone(lambda board: subprocess.Popen(["sleep", "1000"]).pid, inf)
    wait_until(lambda: is_gone(pid))


def test_it_ends_with_its_parent() -> None:
    reading, writing = os.pipe()
    if (middle := os.fork()) == 0:
        called_alone(lambda board: os.write(writing, b"%d" % os.getpid()) and time.sleep(1000), inf)
    pid = int(os.read(reading, 20))
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    wait_until(lambda: is_gone(pid))
    os.close(reading), os.close(writing)


@dataclass
class Generated:
    """Notes where it is from inside its constructor, which `dataclasses` wrote."""

    where: str = field(default_factory=lambda: where_it_is(sys._getframe(1)))


def test_code_that_does_not_return_is_the_users_or_nobodys() -> None:
    method = "test_code_that_does_not_return_is_the_users_or_nobodys"
    assert Generated().where.startswith(f"it is in {method} (test_endings.py:")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(Generated).result().where == "it had not returned in time"


# -- what a counterexample gives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sys.exit", "KeyboardInterrupt", "os._exit(0)", "SIGKILL", "fork"])
def test_a_counterexample_that_ends_the_process_is_played_without_that(name: str) -> None:
    one = searched(ending(ENDINGS[name].act), max_workloads=0)
    assert isinstance(one, Counterexample)
    with one.lab() as lab:
        assert lab.timeline.end > 0
    assert one.scenario().verdict().reproduced is (name != "fork")
    if name != "fork":
        assert "ends the process after" in one.headline and "ending_of(lambda: lab.step())" in one.to_test()


SOURCE = """
import os
from labengine import BlockPool

class Exits(BlockPool):
    def touch(self, block_ids):
        if block_ids:
            {act}
        super().touch(block_ids)
"""


@pytest.mark.parametrize("act", ["os._exit(0)", "raise SystemExit(0)", "raise KeyboardInterrupt"])
def test_a_made_test_is_red_with_the_part_and_green_without(
    act: str, tmp_path: Path, pytester_run: Callable[[Path], int]
) -> None:
    from labengine.finder.find_command import object_named

    file = tmp_path / f"exiting_{abs(hash(act))}.py"
    file.write_text(SOURCE.format(act=act))
    one = searched(object_named(f"{file}:Exits"), max_workloads=0)
    assert isinstance(one, Counterexample)
    made = tmp_path / "test_made.py"
    made.write_text(one.to_test())
    assert pytester_run(made) == 1
    made.write_text(one.to_test().replace("PARTS = labengine", "PARTS = None and labengine"))
    assert pytester_run(made) == 0


@pytest.fixture
def pytester_run() -> Callable[[Path], int]:
    """Run a test file in this process; return pytest's exit code."""

    def run(path: Path) -> int:
        for name in [name for name in sys.modules if name == path.stem]:
            del sys.modules[name]
        plugins = ["-p", "no:cacheprovider", "-q", "-W", "ignore", f"--rootdir={path.parent}", "-c", os.devnull]
        return int(pytest.main([str(path), *plugins]))

    return run


# -- on the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("act", "said"), [("os._exit(0)", "exit code 0"), ("raise SystemExit(0)", "SystemExit: 0")])
def test_find_does_not_exit_with_0(act: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"exits_{len(act)}.py"
    file.write_text(SOURCE.format(act=act))
    assert main(["find", f"{file}:Exits"]) == 1
    assert said in capsys.readouterr().out


def test_a_file_that_ends_the_process_when_it_is_executed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "script_that_exits.py"
    file.write_text("import sys\nsys.exit(0)\n")
    assert main(["find", f"{file}:Exits"]) == 2
    assert "ends the process when it runs: SystemExit: 0" in capsys.readouterr().err


def test_find_exits_with_0_for_nothing_found_and_with_2_for_an_interrupted_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = import_module("labengine.finder.find")

    def ended(*_: Any) -> Iterator[workers.Message]:
        yield 0, workers.SearchCounts(generated=1)

    def interrupted(*_: Any) -> Iterator[workers.Message]:
        yield from ended()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_messages", ended)
    assert main(["find", "labengine"]) == 0
    assert INTERRUPTED not in capsys.readouterr().out
    monkeypatch.setattr(module, "_messages", interrupted)
    assert main(["find", "labengine"]) == 2
    assert INTERRUPTED in capsys.readouterr().out


# -- on another engine ---------------------------------------------------------------------------------------------

ENGINE = """
import os, signal, sys, threading, types
sys.path.insert(0, {driven!r})

class Engine:
    after_call, plan, num_made = None, {{}}, 0
    def __init__(self, settings, tokens):
        self.num_waiting = 0
        Engine.num_made += 1
    def add(self, *request):
        self.num_waiting += 1
    def step(self):
        {act}
        self.num_waiting = 0
        return True
    def abort(self, name): pass
    def reset(self): pass
    def state(self): return {{"requests": {{}}}}
    is_idle = property(lambda self: not self.num_waiting)

module = types.ModuleType("nano_scheduler")
module.VERSION, module.CORE, module.__file__ = "stub", Engine, __file__
sys.modules["nano_scheduler"] = module
import driver
driver.looks.NUM_ASLEEP = 4
driver.main("nano-vllm")
"""


@pytest.fixture
def search_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], EngineSearch]:
    """Search on an engine whose steps run this code."""
    monkeypatch.setattr(shrinking, "SHRINKING_TRIES", 0)

    def run(act: str) -> EngineSearch:
        script, python = tmp_path / "engine.py", tmp_path / "python"
        script.write_text(ENGINE.format(act=act, driven=str(ROOT / "labengine" / "driven" / "inside")))
        python.write_text(f"#!/bin/sh\nexec {sys.executable} {script}\n")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return find_in_engine("nano-vllm", str(python), max_workloads=3, seconds=600)

    return run


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("sys.exit(0)", "SystemExit: 0"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("os._exit(0)", "its process ended with status 0"),
        ("os.kill(os.getpid(), 9)", "its process ended with status -9"),
        ("os.kill(os.getppid(), signal.SIGURG)", "it sends signal 23 to another process"),
        ("os.closerange(3, 64)", "its process ended with status"),
        ("os.write(3, b'{}\\n')", "answered a different line"),
        ("os.fork()", "RuntimeError: it forks its process"),
        ("threading.Lock().acquire(); threading.Event().wait()", "waits forever"),
    ],
)
def test_an_engine_that_ends_its_process_is_a_finding(
    act: str, said: str, search_engine: Callable[[str], EngineSearch]
) -> None:
    found = search_engine(act)
    assert said in found.findings[0].finding.message


def test_an_engine_that_ends_once_in_some_workloads_is_no_all_clear(
    search_engine: Callable[[str], EngineSearch],
) -> None:
    found = search_engine("Engine.num_made == 3 and os._exit(0)")
    assert not found and "lost once" in found.remarks[0] and found.num_workloads == 3
    assert not search_engine("pass").remarks


# -- verdicts ------------------------------------------------------------------------------------------------------


class ExitsInTheSecondRun(Ends):
    """Ends the process at a hit in a repeated run."""

    is_again = False

    @staticmethod
    def act() -> None:
        if ExitsInTheSecondRun.is_again:
            sys.exit(0)


def test_judge_does_not_end_with_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = labengine.Parts(block_pool=ExitsInTheSecondRun)
    with labengine.Lab("simulated", num_blocks=9, block_size=4, check=False, parts=parts) as lab:
        for _ in range(2):
            lab.add(token_ids=range(9), max_tokens=2)
            lab.run()
        monkeypatch.setattr(ExitsInTheSecondRun, "is_again", True)
        with pytest.raises(ConfigError, match="cannot be repeated: it ends the process: SystemExit: 0, raised in"):
            labengine.judge((lab, "A"), (lab, "B"))


@pytest.mark.parametrize(("name", "is_counted"), [("sys.exit", True), ("KeyboardInterrupt", False)])
def test_a_verdict_does_not_end_with_a_part(name: str, is_counted: bool) -> None:
    def play(lab: labengine.Lab) -> None:
        for _ in range(2):
            lab.add(token_ids=range(9), max_tokens=2)
            lab.run()

    def judged() -> Any:
        parts = ending(ENDINGS[name].act)
        return labengine.scenario(parts, play=play, claim="It ends.", num_blocks=9, block_size=4).verdict()

    if is_counted:
        assert judged().reproduced
    else:
        with pytest.raises(ConfigError, match="ends the process: KeyboardInterrupt"):
            judged()


# -- the channel ---------------------------------------------------------------------------------------------------


def test_what_a_part_writes_into_the_pipe_is_no_message() -> None:
    receiver = Receiver()
    sender = receiver.sender
    sender.own()
    for noise in (b"", b"\0" * 40, b"text\n" * 10, sender._mark[:7]):
        os.write(sender._descriptor, noise)
        sender.send(("found", noise))
        assert receiver.received() == [("found", noise)]
    os.write(sender._descriptor, sender._mark + b"\x05\0\0\0\0\0\0\0\0\0\0\0noise")
    sender.send("after it")
    assert receiver.received() == ["after it"] and not receiver.is_at_end
    sender.close()
    assert receiver.received() == [] and receiver.is_at_end
    receiver.close()


# -- broad ---------------------------------------------------------------------------------------------------------


WAYS = ("processes", "here", "threads")
BROAD = [(name, "processes") for name in ENDINGS] + [
    (name, way) for way in WAYS[1:] for name in INSIDE if (name, way) != ("alarm", "threads")
]
"""Endings and ways. Alarms work only in the main thread."""


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "way"), BROAD)
def test_every_ending_in_every_way_and_by_many_seeds(
    name: str, way: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "SHRINKING_TRIES", 30)  # how short it gets is not asked
    settings: dict[str, Any] = {"seed": seed, "max_workloads": 300}
    settings["scopes"] = small_scopes() if seed % 2 else large_scopes()
    settings |= {"workers": 0} if way == "here" else {}
    with ThreadPoolExecutor(2) as pool:
        settings |= {"workers": pool} if way == "threads" else {}
        one = searched(ending(ENDINGS[name].act), **settings)
    assert isinstance(one, Counterexample) and ENDINGS[name].said in one.message
