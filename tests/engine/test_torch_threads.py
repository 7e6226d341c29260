"""Loading torch: whole in spite of Ctrl-C, with threads that wait asleep, in the user's environment as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAY = "import os; print(sorted(n for n in os.environ if n in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')), line, sep='|')"
LOAD = "from labengine.engine.torch_threads import load_torch; line = load_torch()"


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


@pytest.mark.parametrize(("name", "value"), [("GOMP_SPINCOUNT", "1000"), ("OMP_WAIT_POLICY", "ACTIVE")])
def test_a_users_setting_is_kept(name: str, value: str) -> None:
    names, line, _ = run(LOAD, **{name: value})
    assert (names, line) == (f"['{name}']", f"wait as {name}={value} says")


def test_a_torch_that_is_there_is_left_alone() -> None:
    names, line, _ = run(f"import torch; {LOAD}")
    assert names == "[]" and line.startswith("spin while they wait: torch was loaded before")


SLOW_TORCH = """
from pathlib import Path
from time import sleep

folder = Path(__file__).parent
with (folder / "log").open("a") as log:
    log.write("begun ")
sleep(0.6)
if (folder / "broken").exists():
    raise OSError("libtorch is damaged")
with (folder / "log").open("a") as log:
    log.write("done ")
"""

INTERRUPTED = """
import os, signal, threading, time
from labengine.engine.torch_threads import load_torch

threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    load_torch()
except KeyboardInterrupt:
    print("interrupted", (folder / "log").read_text())
print(load_torch(), load_torch())
"""

REPAIRED = """
from labengine.engine.torch_threads import load_torch

(folder / "broken").touch()
for _ in range(2):
    try:
        load_torch()
    except OSError as error:
        print(error)
(folder / "broken").unlink()
print(load_torch())
"""


def with_slow_torch(tmp_path: Path, code: str) -> tuple[list[str], str]:
    """The lines that the code prints where importing torch takes a moment, and what that torch wrote down."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text(SLOW_TORCH)
    prepared = f"import sys, pathlib; sys.path.insert(0, {str(tmp_path)!r}); folder = pathlib.Path({str(folder)!r})"
    done = in_a_process(prepared + code)
    return done.stdout.splitlines(), (folder / "log").read_text()


def test_ctrl_c_breaks_off_the_waiting_and_not_the_import(tmp_path: Path) -> None:
    """Half a torch cannot be imported again: the next cell would fail, or the process crash."""
    said, log = with_slow_torch(tmp_path, INTERRUPTED)
    assert said == ["interrupted begun ", "wait asleep wait asleep"]
    assert log == "begun done "


def test_an_import_that_failed_is_tried_again(tmp_path: Path) -> None:
    said, log = with_slow_torch(tmp_path, REPAIRED)
    assert said == ["libtorch is damaged", "libtorch is damaged", "wait asleep"]
    assert log == "begun begun begun done "
