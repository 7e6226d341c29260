"""Loading torch: whole in spite of Ctrl-C, with threads that wait asleep, in the user's environment as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAY = "import os; print(sorted(n for n in os.environ if n in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')), line, sep='|')"
LOAD = "from labengine.engine.torch_import import load_torch; line = load_torch()"


def run(code: str, **environment: str) -> tuple[str, str, str]:
    """The variables that are set in the end, what load_torch said, and stderr."""
    done = in_a_process(f"{code}; {SAY}", **environment)
    names, _, line = done.stdout.strip().partition("|")
    return names, line, done.stderr


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process whose environment says nothing about waiting, unless `environment` does."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, check=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU's OpenMP is what torch brings on Linux")
def test_threads_wait_asleep_and_the_environment_is_as_before() -> None:
    collects = "import gc; assert gc.isenabled()"
    names, line, stderr = run(f"{LOAD}; assert line == load_torch(); {collects}", OMP_DISPLAY_ENV="verbose")
    assert (names, line) == ("[]", "wait asleep")
    assert "GOMP_SPINCOUNT = '0'" in stderr


def test_a_users_setting_is_kept() -> None:
    names, line, _ = run(LOAD, OMP_WAIT_POLICY="ACTIVE")
    assert names == "['OMP_WAIT_POLICY']" and "OMP_WAIT_POLICY=ACTIVE" in line


def test_a_torch_that_is_there_is_left_alone() -> None:
    names, line, _ = run(f"import torch; {LOAD}")
    assert names == "[]" and line.startswith("spin")


TORCH = """
import os, signal
from pathlib import Path
from time import sleep

folder = Path(__file__).parent
with (folder / "log").open("a") as log:
    log.write("begun ")
if (folder / "interrupts").exists():
    os.kill(os.getpid(), signal.SIGINT)
    while not (folder / "goes on").exists():
        sleep(0.01)
if (folder / "broken").exists():
    raise OSError("libtorch is damaged")
with (folder / "log").open("a") as log:
    log.write("done ")
"""
"""Stands for torch: it writes down what becomes of its import."""

INTERRUPTED = """
import os, signal, threading
from labengine.engine.torch_import import load_torch

signal.signal(signal.SIGINT, signal.default_int_handler)
(folder / "interrupts").touch()
try:
    load_torch()
except KeyboardInterrupt:
    print("interrupted", (folder / "log").read_text())
if os.fork() == 0:
    try:
        load_torch()
    except ImportError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
(folder / "goes on").touch()
print(load_torch(), load_torch())
"""

REPAIRED = """
from labengine.engine.torch_import import load_torch

(folder / "broken").touch()
for _ in range(2):
    try:
        load_torch()
    except OSError as error:
        print(error)
(folder / "broken").unlink()
print(load_torch())
"""

WITHOUT_THREADS = """
import threading
from labengine.engine.torch_import import load_torch

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
print(load_torch())
"""


EVERY_NAME = """
import labengine
from labengine.engine import torch_import

write = "import threading; open(f'{__path__[0]}/log', 'a').write(threading.current_thread().name + ' ')"
(folder / "__init__.py").write_text(write)
failed = []
for name in labengine.__all__:
    sys.modules.pop("torch", None)
    torch_import._newest = None
    try:
        getattr(labengine, name)
    except ImportError:
        failed.append(name)
print(*failed)
"""


def with_own_torch(tmp_path: Path, code: str) -> tuple[list[str], str]:
    """The lines that the code prints in a process with that torch, and what the torch has written down."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text(TORCH)
    prepared = f"import sys, pathlib; sys.path.insert(0, {str(tmp_path)!r}); folder = pathlib.Path({str(folder)!r})"
    done = in_a_process(prepared + code)
    log = folder / "log"
    return done.stdout.splitlines(), log.read_text() if log.exists() else ""


def test_ctrl_c_breaks_off_the_waiting_and_not_the_import(tmp_path: Path) -> None:
    """Half a torch cannot be imported again: the next cell would fail, or the process crash.

    A process forked in between has no thread that goes on.
    """
    said, log = with_own_torch(tmp_path, INTERRUPTED)
    forked = "torch cannot be imported: this process was forked during the import"
    assert said == ["interrupted begun ", forked, "wait asleep wait asleep"]
    assert log == "begun done "


def test_a_failed_import_raises_once_and_is_tried_again(tmp_path: Path) -> None:
    said, log = with_own_torch(tmp_path, REPAIRED)
    assert said == ["libtorch is damaged", "libtorch is damaged", "wait asleep"]
    assert log == "begun begun begun done "


def test_a_process_that_can_start_no_thread(tmp_path: Path) -> None:
    assert with_own_torch(tmp_path, WITHOUT_THREADS) == (["wait asleep"], "begun done ")


def test_no_public_name_imports_torch_on_the_main_thread(tmp_path: Path) -> None:
    said, log = with_own_torch(tmp_path, EVERY_NAME)
    assert said == ["ModelRunner StaticRunner StaticStep StaticTorch"], "these need torch, which this one is not"
    assert set(log.split()) == {"labengine-imports-torch"}
