"""Patches that loop, raise, exit, fork, eat memory or break the driver: the lab answers, and no process is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

import labengine
from hostile import ENDINGS, LOST, NAP, NUM_OF_LAB, Hostile, hostile_tests, processes
from labengine.driven.calls import EngineRaisedError
from labengine.lab import Lab
from stub_python import stub_python

METHODS = ("FakeScheduler.schedule", "FakeManager.allocate_slots", "FakeScheduler.update_from_output")
METHODS += ("FakeScheduler._allocate", "FakePool.cache_full_blocks")
"""Methods that each step calls."""


ACTS = (
    Hostile("while True: pass", "takes too much processor time or waits forever"),
    Hostile("while True:\n    try:\n        while True: len('')\n    except BaseException: pass", "without end"),
    Hostile("sum(iter(int, 1))", "without end, outside of Python"),
    Hostile("any(map(bool, iter(int, 1)))", "without end, outside of Python"),
    Hostile("import threading; threading.Event().wait()", "waits forever"),
    Hostile("import time; time.sleep(1000)", "waits forever"),
    Hostile("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "waits forever"),
    Hostile("import sys; sys.stdin.readline(); import os; os.read(0, 1)", "waits forever"),
    Hostile("raise ValueError('no')", "ValueError in {method}: no"),
    Hostile("raise SystemExit", "SystemExit in {method}"),
    Hostile("import sys; sys.exit(0)", "SystemExit in {method}: 0"),
    Hostile("raise KeyboardInterrupt", "KeyboardInterrupt in {method}"),
    Hostile("raise GeneratorExit", "GeneratorExit in {method}"),
    Hostile("raise StopIteration", "StopIteration in {method}"),
    Hostile("raise type('Own', (BaseException,), {})('mine')", "Own in {method}: mine"),
    Hostile("raise type('Dumb', (Exception,), {'__str__': lambda self: 1 / 0})", "Dumb in {method}"),
    Hostile("raise ValueError('x' * 10**6)", "ValueError in {method}: xxx"),
    Hostile("raise ValueError('\\n\\x1b[2J\\ud800')", "ValueError in {method}"),
    Hostile("self.frob()", "AttributeError in {method}"),
    *ENDINGS,
    Hostile("import os; os.kill(os.getppid(), 23)", "OutsideSignalError in "),
    Hostile("import os; os.killpg(os.getpgid(os.getppid()), 23)", "OutsideSignalError in "),
    Hostile("import pty; pty.fork()", "it forks its process"),
    Hostile("import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()", "it forks"),
    Hostile("kept = []\nwhile True: kept.append(bytearray(1 << 24))", "MemoryError in {method}"),
    Hostile("globals()['KEPT'] = kept = []\nwhile True: kept.append(bytearray(1 << 24))", "MemoryError in {method}"),
    Hostile("bytearray(1 << 45)", "MemoryError in {method}"),
    Hostile("import os; os.closerange(0, 64)", LOST),
    Hostile("import os; os.closerange(3, 64)", LOST),
    Hostile("import os; os.write(3, b'{}\\n')", "answered a different line"),
    Hostile("import os; os.write(3, b'garbage\\n')", "is not a JSON object"),
    Hostile("import os; os.write(3, b'[' * 10**5 + b'\\n')", "is not a JSON object"),
    Hostile("import os\nwhile True: os.write(3, bytes(1 << 16))", "does not end"),
    Hostile("while True: print('x' * 10**6)", "OSError in {method}: [Errno 27] File too large"),
    Hostile("import os\nfor n in range(99): os.write(3, b'{\"number\": %d}\\n' % n)", "driver"),
    Hostile("import os; os.write(1, b'garbage\\n'); print('garbage'); print('{}', flush=True)", ""),
    Hostile("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", ""),
    Hostile("import threading\nthreading.Thread(target=threading.Event().wait).start()", ""),
    Hostile("import json; json.dumps = lambda *a, **k: 'boo'", "is not a JSON object"),
    Hostile("import json; json.dumps = lambda *a, **k: '{}'", "answered a different line"),
    Hostile("import json; json.dumps = None", LOST),
    Hostile(f"import subprocess; subprocess.Popen(['sleep', '{NAP}'])", ""),
    Hostile(f"import subprocess; subprocess.Popen(['sleep', '{NAP}'], start_new_session=True, env={{}})", ""),
    Hostile(f"import os; os.system('setsid sleep {NAP} & (sleep {NAP} &) & exit')", ""),
    Hostile("import ctypes, os\nif not ctypes.CDLL(None).fork():\n os.setsid(); os.close(2)\n while 1: id(0)", ""),
    Hostile(
        f"import os, subprocess; subprocess.Popen(['sleep', '{NAP}'], env={{}}, stderr=-3); os._exit(3)", f"{LOST} 3"
    ),
    Hostile(f"import os; os.system('env -i setsid sleep {NAP} &'); os._exit(3)", f"{LOST} 3"),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab on the fake engine with two requests, before their first step; a call may take a fifth of a second."""
    python = stub_python(tmp_path_factory.mktemp("stub"), seconds=0.2)
    with hostile_tests(), labengine.drive("vllm", python, num_blocks=12, block_size=4) as made:
        made.add(token_ids=range(9), max_tokens=4)
        made.add(token_ids=range(9), max_tokens=3)
        yield made


def patched(lab: Lab, method: str, act: str) -> labengine.Patch:
    """Return a patch: the method as it is, after an act in the second step."""
    tree = ast.parse(lab.session.model.described(method)["text"])
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    acting = ast.parse("if STEP == 2:\n    pass").body[0]
    assert isinstance(acting, ast.If)
    acting.body = ast.parse(act).body
    function.body.insert(0, acting)
    return labengine.Patch(method, ast.unparse(tree))


@pytest.mark.parametrize("hostile", ACTS, ids=lambda one: one.act.replace(NAP, "1000")[:60])
@pytest.mark.parametrize("method", [METHODS[0], *(pytest.param(one, marks=pytest.mark.sweep) for one in METHODS[1:])])
def test_the_lab_answers(lab: Lab, method: str, hostile: Hostile) -> None:
    with lab.rerun(patched(lab, method, hostile.act)) as comparison:
        right = comparison.right
        assert isinstance(right, Lab)
        right.step()
        before = right.snapshot()
        if hostile.said:
            with pytest.raises(EngineRaisedError) as raised:
                right.step()
            assert hostile.said.format(method=method) in str(raised.value)
            assert right.crash is not None and right.crash.step == 2 and right.crash.exception is raised.value
            assert right.snapshot() == before
            added = right.add(token_ids=range(3), max_tokens=1)
            assert added in right.snapshot().requests and not right.violations
            right.goto("crash")
        else:
            right.step()
            assert right.snapshot().step == 2
    assert len([*processes()]) == NUM_OF_LAB
    with lab.fork() as fork:
        fork.run()
        assert fork.snapshot().step == 4 and not fork.crash
