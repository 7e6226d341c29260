"""Unreferenced labs are freed: their threads end, and IPython's Out alone keeps no KV pool."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any
from weakref import ref

import pytest

from checkout import ROOT
from labengine.lab import Lab
from labengine.session import superseded
from waiting import wait_until


def started(lab: Lab) -> None:
    lab.add("once upon", max_tokens=3)
    lab.start()


def endless(lab: Lab) -> None:
    lab.add("once upon", max_tokens=4_000, ignore_eos=True)
    lab.start()


def posted(lab: Lab) -> None:
    lab.view_source().post("add", prompt="x", copies=1, max_tokens=2, n=1, beams=1, priority=0).result()


def raised(lab: Lab) -> None:
    lab.add("x", max_tokens=3)
    lab.session.model.runner.forward = lambda *_: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        lab.step()


def interrupted(lab: Lab) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    lab.add("x", max_tokens=3)
    lab.session.model.runner.forward = interrupt  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        lab.run()


def forked(lab: Lab) -> None:
    lab.add("x", max_tokens=3)
    lab.run()
    lab.fork(1).start()


def compared(lab: Lab) -> None:
    lab.compare(Lab("simulated", num_blocks=260, block_size=16)).start()


WAYS: dict[str, Callable[[Lab], object]] = {
    "never started": lambda lab: None,
    "run": lambda lab: (lab.add("x", max_tokens=3), lab.run()),
    "started": started,
    "endless": endless,
    "posted": posted,
    "raised": raised,
    "interrupted": interrupted,
    "forked": forked,
    "compared": compared,
    "shown": lambda lab: (lab.show(), lab.add("x", max_tokens=3), lab.run()),
    "charted": lambda lab: (lab.view("charts"), lab.view("pool"), started(lab)),
    "shown and closed": lambda lab: (lab.show(), lab.close(), lab.close_views()),
}


def drop(way: Callable[[Lab], object], number: int) -> None:
    """Make labs and drop them; all of them and their threads must go."""
    gc.collect()
    gc.freeze()  # each collection looks at what is new alone
    num_threads, left = threading.active_count(), []
    for _ in range(number):
        lab = Lab("simulated", num_blocks=260, block_size=16)
        way(lab)
        left += [ref(lab), ref(lab.session)]
        del lab

    def is_gone() -> bool:
        gc.collect()
        return not any(one() for one in left) and threading.active_count() <= num_threads

    try:
        wait_until(is_gone, "the end of labs that nobody holds")
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("name", WAYS)
def test_a_lab_that_nobody_holds_is_freed_with_its_thread(name: str) -> None:
    drop(WAYS[name], 3)


@pytest.mark.sweep
@pytest.mark.parametrize("name", WAYS)
def test_two_hundred_of_them_are(name: str) -> None:
    drop(WAYS[name], 40 if name == "shown and closed" else 200)


IN_IPYTHON = """
import json, sys, threading
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.displayhook.write_format_data = lambda *_: None
shell.displayhook.write_output_prompt = lambda: None

def cells(*texts):
    for text in texts:
        shell.run_cell(text, store_history=True).raise_error()

import labengine.session.superseded as superseded

superseded.NUM_SHOWN = 2
NEW = "Lab('simulated', num_blocks=20)"
cells("from labengine import Lab")
for _ in range(int(sys.argv[1])):
    cells(f"lab = {NEW}", "lab")
    cells(f"lab = {NEW}", "lab.add('x', max_tokens=3); lab.step(); lab.show()")
    cells(f"lab = {NEW}", "lab.view('pool')", "lab.start()")
    cells(NEW)
held = {
    "a list": f"kept = [{NEW}]; kept[0]",
    "a default": f"def function(lab={NEW}): return lab\\nfunction()",
    "a method": f"step = {NEW}.step; step.__self__",
    "its dashboard": f"dashboard = {NEW}.show()",
    "a dashboard in a dictionary": f"boards = {{'a': {NEW}.show()}}; boards['a']",
    "a closure": f"closure = (lambda lab: lambda: lab)({NEW}); closure()",
    "an object": f"class Holder: pass\\nholder = Holder(); holder.lab = {NEW}; holder.lab",
    "a variable": f"other = {NEW}; other",
}
cells(*held.values())
cells(f"lab = {NEW}", "lab", "1")

labs = [lab for _, lab in sorted(superseded._open.items())]
closed = [lab.session.stepper.is_closed for lab in labs]
error = ""
try:
    labs[0].add("x")
except RuntimeError as raised:
    error = str(raised)
print(json.dumps({
    "superseded": closed[: -len(held) - 1],
    "held": dict(zip(held, closed[-len(held) - 1 : -1])),
    "newest": closed[-1],
    "error": error,
    "shown": [len(lab.widgets) > 0 for lab in labs[: len(closed) - len(held) - 1]],
    "recording": labs[1].timeline.end > 5 and bool(labs[1].why(block=0)),
    "threads": [thread.name for thread in threading.enumerate() if thread.name.startswith("labengine")],
}))
"""


@pytest.mark.parametrize("number", [1, pytest.param(10, marks=pytest.mark.sweep)])
def test_labs_that_only_out_holds_give_their_memory_back_and_no_other_does(number: int) -> None:
    line = [sys.executable, "-c", IN_IPYTHON, str(number)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found["superseded"]) and len(found["superseded"]) == 4 * number
    assert found["held"] == dict.fromkeys(found["held"], False) and not found["newest"]
    assert "there is a newer lab" in found["error"] and found["recording"]
    assert not any(found["shown"][:-2]), "the dashboards of the newest two stay"
    assert len(found["threads"]) <= 1 + len(found["held"]), "of the labs that are held, and of the newest"


def test_the_classes_and_modules_that_belong_to_a_lab_are_there_by_these_names() -> None:
    homes = ("lab", "session.view_source", "session.looking")
    modules = [import_module(f"labengine.{name}") for name in homes]
    modules += [import_module(f"labengine_widgets.feed.{name}") for name in ("feed", "publisher", "viewers")]
    assert {*superseded._OURS_INSIDE} <= {name for module in modules for name in vars(module)}
    assert {one for one in superseded._OF_LAB if one.startswith("labengine.")} <= {one.__name__ for one in modules}
