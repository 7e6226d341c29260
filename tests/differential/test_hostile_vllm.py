"""Live: patches of vLLM's own methods that loop, raise, exit, fork, eat memory or return nonsense, and Ctrl-C.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_hostile_vllm.py

Every patch has a process of its own: a copy of one that has imported vLLM.
"""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

import labengine
from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from driven_waits import Waits, interrupted
from hostile import ENDINGS, LOST, NAP, NUM_OF_LAB, Hostile, hostile_tests, processes
from interrupting import assert_goes_on, assert_nothing_held, python_takes_ctrl_c
from labengine.driven import model
from labengine.driven.calls import EngineRaisedError
from labengine.lab import Lab
from labengine.session.history.inputs import BrokenStep
from seeds import first
from stub_python import quick_python

NUM_PATCHES, NUM_SWEEP_PATCHES = 44, 200
CALL_S = 1.0
"""Processor seconds that a call may take."""

METHODS = (
    *("BlockPool.get_new_blocks", "BlockPool.free_blocks", "BlockPool.touch", "BlockPool.cache_full_blocks"),
    *("KVCacheManager.allocate_slots", "KVCacheManager.get_computed_blocks"),
    *("Scheduler.schedule", "Scheduler.update_from_output", "Scheduler.add_request"),
)
"""Methods that the hostile call, an add and a step, calls."""

LONG, ENDLESS = "takes too much processor time or waits forever", "without end, outside of Python"
SILENT = "its process was silent for"
ANSWERED, DAMAGED = "answered a different line", "is not a JSON object"
RAISED = "{name} in {method}"
ANY = "*"
"""The call may succeed."""


def raises(error: str, name: str = "") -> Hostile:
    return Hostile(f"raise {error}", f"{name or error.partition('(')[0]} in {{method}}")


ACTS = (
    Hostile("while True: pass", LONG),
    Hostile("while True:\n    try:\n        while True: len('')\n    except BaseException: pass", ENDLESS),
    Hostile("import itertools; sum(itertools.count())", ENDLESS),
    Hostile("any(map(bool, iter(int, 1)))", ENDLESS),
    Hostile("import re; re.match('(a*)*b', 'a' * 40)", LONG),
    Hostile("import threading; threading.Event().wait()", LONG),
    Hostile("import time; time.sleep(1000)", LONG),
    Hostile("import sys; sys.stdin.readline()", LONG),
    raises("ValueError('no')"),
    raises("BaseException"),
    raises("SystemExit"),
    raises("KeyboardInterrupt"),
    raises("GeneratorExit"),
    raises("RecursionError"),
    raises("ExceptionGroup('many', [ValueError(1)])"),
    raises("ValueError('x' * 10**7)"),
    raises("type('Dumb', (Exception,), {'__str__': lambda self: 1 / 0})", "Dumb"),
    *ENDINGS,
    Hostile("import os; os.kill(os.getpid(), 19)", SILENT),
    Hostile("import os; os.kill(os.getppid(), 9)", "OutsideSignalError in "),
    Hostile("import os; os.kill(-1, 9)", "OutsideSignalError in "),
    Hostile("import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()", "it forks"),
    Hostile("import ctypes; ctypes.CDLL(None).fork()", ANY),
    Hostile(f"import subprocess; subprocess.Popen(['sh', '-c', 'sleep {NAP} & (sleep {NAP} &)'])", ANY),
    Hostile(
        f"import os; os.system('f() {{ [ $1 = 0 ] || {{ f $(($1-1)) & f $(($1-1)) & sleep {NAP}; }}; }}; f 4 &')", ANY
    ),
    Hostile(f"import subprocess; subprocess.Popen(['sleep', '{NAP}'], start_new_session=True)", ANY),
    Hostile(f"import subprocess; subprocess.Popen(['sleep', '{NAP}'], start_new_session=True, env={{}})", ANY),
    Hostile(f"import os; os.system('env -i setsid sleep {NAP} &'); os._exit(3)", f"{LOST} 3"),
    Hostile("import threading; threading.Thread(target=threading.Event().wait).start()", ANY),
    Hostile("import threading, itertools; threading.Thread(target=sum, args=[itertools.count()]).start()", ANY),
    Hostile("import threading, os; threading.Timer(0.01, os._exit, [9]).start()", ANY),
    Hostile("kept = []\nwhile True: kept.append(bytearray(1 << 24))", "MemoryError in {method}"),
    Hostile("globals()['KEPT'] = kept = []\nwhile True: kept.append(bytearray(1 << 24))", "MemoryError in {method}"),
    Hostile("import torch; torch.zeros(1 << 40)", "RuntimeError in "),
    Hostile("import os; os.closerange(0, 64)", LOST),
    Hostile(
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'[' * 99999 + b'\\n')\n    except OSError: pass",
        DAMAGED,
    ),
    Hostile("import os\nfor n in range(3, 64):\n    try: os.write(n, b'{}\\n')\n    except OSError: pass", ANSWERED),
    Hostile("import sys; sys.stdout.close(), sys.stderr.close()", ANY),
    Hostile("print('x' * 10**7); import sys; sys.stderr.write('y' * 10**7)", ANY),
    Hostile("while True: print('x' * 10**6)", "in "),
    Hostile("import signal\nfor n in (14, 26, 27): signal.signal(n, signal.SIG_IGN)\nwhile True: pass", SILENT),
    Hostile("import signal\nfor n in (0, 1, 2): signal.setitimer(n, 0)\nwhile True: pass", SILENT),
    Hostile("import sys; sys.settrace(lambda *a: 1 / 0)", ANY),
    Hostile("import sys; sys.setrecursionlimit(60)", ANY),
    Hostile("import time; time.monotonic = time.time = time.thread_time = None", ANY),
    Hostile("import json; json.dumps = lambda *a, **k: 'boo'", DAMAGED),
    Hostile("import json; json.dumps = None", LOST),
    Hostile("import driver; driver.Driver.answer = driver.limited = None", ANY),
    Hostile("from labengine_vllm.tap import Tap; Tap.send_state = lambda *a: 1 / 0", ANY),
    Hostile("import builtins; builtins.len = builtins.isinstance = None", ANY),
    Hostile("import sys; sys.modules.clear()", ANY),
    Hostile("import gc; [one.clear() for one in gc.get_objects() if type(one) is dict and len(one) > 9]", ANY),
    *(Hostile(f"return {value}", ANY) for value in ("None", "'x'", "float('nan')", "10**5000", "[None] * 3", "[[]]")),
    Hostile("return self", ANY),
    Hostile("return [*getattr(self, 'blocks', ())][:3]", ANY),
    Hostile("for one in locals().copy().values(): getattr(one, 'clear', str)()", ANY),
    Hostile("vars(self).clear()", ANY),
    Hostile("for name in vars(self): setattr(self, name, float('nan'))", ANY),
)

DRAWN = Random(58).sample([(method, hostile) for method in METHODS for hostile in ACTS], NUM_SWEEP_PATCHES)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with vLLM, where a call may take CALL_S."""
    if (vllm := named_interpreter()) is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}")
    return quick_python(tmp_path_factory.mktemp("quick"), vllm, CALL_S)


@pytest.fixture(scope="module")
def lab(python: str) -> Iterator[Lab]:
    """A lab after a step; in the next one, B ends, and a third request finds the cached beginning."""
    with hostile_tests(), labengine.drive("vllm", python, num_blocks=24, block_size=4) as made:
        made.add(token_ids=range(9), max_tokens=8)
        made.add(token_ids=range(20, 29), max_tokens=2)
        made.step()
        yield made


def patch_of(lab: Lab, method: str, act: str, flag: Path) -> labengine.Patch:
    """Return a patch: the method as it is, after an act while a file exists."""
    tree = ast.parse(lab.session.model.described(method)["text"])
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    acting = ast.parse(f"if __import__('os').path.exists({str(flag)!r}):\n    pass").body[0]
    assert isinstance(acting, ast.If)
    acting.body = ast.parse(act).body
    function.body.insert(0, acting)
    return labengine.Patch(method, ast.unparse(tree))


def add(lab: Lab) -> None:
    lab.add(token_ids=range(12), max_tokens=2)


@pytest.mark.parametrize("number", first(NUM_PATCHES, NUM_SWEEP_PATCHES))
def test_the_lab_answers(lab: Lab, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, hostile = DRAWN[number]
    flag, folder = tmp_path / "flag", tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    num_files = len(os.listdir("/proc/self/fd"))
    with lab.rerun(patch_of(lab, method, hostile.act, flag)) as comparison:
        left, right = comparison.left, comparison.right
        assert isinstance(left, Lab) and isinstance(right, Lab)
        if method != "Scheduler.add_request":
            add(left), add(right)
        call = add if method == "Scheduler.add_request" else Lab.step
        before, status, inputs = right.snapshot(), right.status(), right.inputs
        flag.touch()
        with monkeypatch.context() as patching:
            if hostile.said == SILENT:
                patching.setattr(model, "PATIENCE_S", 2.0)
            said = error_of(right, call)
        flag.unlink()
        if said is None:
            assert hostile.said == ANY
            error_of(right, Lab.step)
        else:
            assert hostile.said == ANY or hostile.said.format(method=method) in said
            assert hostile.said == ANY or method in said, said
            assert right.snapshot() == before and right.status() == status
            assert [one for one in right.inputs if not isinstance(one, BrokenStep)] == [*inputs]
            call(right)
            call(left)
            assert right.snapshot() == left.snapshot()
    assert len([*processes()]) == NUM_OF_LAB and not [*folder.iterdir()]
    assert len(os.listdir("/proc/self/fd")) == num_files


def error_of(lab: Lab, call: Callable[[Lab], object]) -> str | None:
    """Call; return the error, or None if it succeeds."""
    try:
        call(lab)
    except EngineRaisedError as error:
        return str(error)
    return None


def test_ctrl_c_at_each_wait_for_vllm(lab: Lab) -> None:
    """An act is done completely, or not at all, and the next step is that of a lab never interrupted."""
    text = lab.session.model.described("BlockPool.touch")["text"]
    acts: tuple[Callable[[Lab], object], ...] = (
        *(Lab.step, Lab.run, add, lambda lab: lab.fork().close()),
        lambda lab: lab.rerun(labengine.Patch("BlockPool.touch", text)).close(),
    )
    with python_takes_ctrl_c():
        for act in acts:
            waits = [Waits(number, is_late=is_late) for number in range(3) for is_late in (False, True)]
            assert [one for one in waits if is_interrupted(lab, act, one)]


def is_interrupted(lab: Lab, act: Callable[[Lab], object], waits: Waits) -> bool:
    """Press Ctrl-C in an act on a copy of the lab; return whether it was interrupted."""
    with lab.fork() as fork:
        with waits.counted():
            error = interrupted(partial(act, fork))
        assert_nothing_held()
        assert fork.crash is None and fork.check() == []
        assert_goes_on(fork)
    return error is not None
