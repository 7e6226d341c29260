"""An engine is imported once for a lab and its patches: each process is a copy, or new where a copy would differ."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import labengine
from hostile import hostile_tests, processes
from labengine.driven.calls import EngineRaisedError
from labengine.lab import Lab
from labengine.session.stepper import LabClosedError
from stub_python import quick_python, stub_python
from waiting import wait_until

ENDING = "def free_blocks(self, *blocks):\n    import os; os._exit(7)"
PATCH = labengine.Patch("FakePool.free_blocks", "def free_blocks(self, *blocks):\n    raise ValueError('patched')\n")
OWN = Path(__file__).with_name("own_engine.py")

MAKER, COPY, STAND_IN, NEW = "maker", "copy", "stand-in", "new"


@pytest.fixture(autouse=True)
def marked() -> Iterator[None]:
    with hostile_tests():
        yield
    assert not [*processes()]


def made(python: str) -> Lab:
    return labengine.drive("vllm", python, num_blocks=12, block_size=4)


def kinds() -> dict[int, str]:
    """Return the kinds of the processes that these tests have started, by their numbers."""
    found = dict[int, str]()
    commands, parents = dict[int, list[str]](), dict[int, int]()
    for pid in processes():
        with suppress(OSError, IndexError):  # it has ended since
            commands[pid] = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            is_maker = commands[pid][-2].isdigit()
            found[pid] = STAND_IN if "stand_in.py" in commands[pid][3] else MAKER if is_maker else NEW
    return {pid: COPY if found.get(parents[pid]) == MAKER else name for pid, name in found.items()}


def kind(name: str) -> int:
    """Return the number of the only process of a kind."""
    [pid] = [pid for pid, found in kinds().items() if found == name]
    return pid


def steps(lab: Lab) -> None:
    lab.add(token_ids=range(9), max_tokens=3)
    lab.run()


def test_all_processes_of_a_lab_and_its_patches_are_copies_of_one(stub: str) -> None:
    with made(stub) as lab:
        assert sorted(kinds().values()) == [COPY, MAKER, STAND_IN]
        maker = kind(MAKER)
        with lab.rerun(PATCH) as comparison:
            assert sorted(kinds().values()) == [COPY, COPY, MAKER, STAND_IN, STAND_IN] and kind(MAKER) == maker
            steps(comparison.left)
            with pytest.raises(EngineRaisedError, match="patched"):
                steps(comparison.right)
        lab.close()
        assert not kinds()
        with pytest.raises(LabClosedError):
            lab.rerun(PATCH)


def test_a_patched_lab_outlives_the_first(stub: str) -> None:
    lab = made(stub)
    with lab.rerun(PATCH) as comparison:
        lab.close()
        steps(comparison.left)
        assert sorted(kinds().values()) == [COPY, COPY, MAKER, STAND_IN, STAND_IN]


THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
NO_FORK = "import os\ndef fork(): raise OSError\nos.fork = fork"
ENDS = "if len(sys.argv) > 2: sys.exit(3)"
MOVES = "import os; os.environ['LABENGINE_STARTED_BY'] += ''"
NO_FILES = "copies.NUM_FILES = 2"


@pytest.mark.parametrize("more", [THREAD, NO_FORK, ENDS, NO_FILES, MOVES])
def test_a_process_that_cannot_be_copied_is_started_anew(more: str, tmp_path: Path) -> None:
    with made(stub_python(tmp_path, more=more)) as lab:
        steps(lab)
        assert NEW in kinds().values() and COPY not in kinds().values()


def test_one_without_the_engine_is_refused_as_if_it_were_alone(tmp_path: Path) -> None:
    with pytest.raises(labengine.ConfigError, match=r"cannot be driven with .*; its last output: .*no such engine"):
        made(stub_python(tmp_path, more="raise ImportError('no such engine')"))


def test_an_edited_file_is_imported_anew(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"
    file.write_text(OWN.read_text())
    python = quick_python(tmp_path, sys.executable, 2.0)
    with labengine.drive(file, python, num_blocks=12, block_size=4) as lab:
        assert COPY in kinds().values()
        file.write_text(f"{OWN.read_text()}\nVERSION = 'edited'\n")
        same = labengine.Patch("Scheduler.schedule", lab.session.model.described("Scheduler.schedule")["text"])
        with lab.rerun(same) as comparison:
            assert NEW in kinds().values()
            assert comparison.right.session.model.name == "engine edited"


@pytest.mark.parametrize("change", ["environment", "folder"])
def test_other_surroundings_mean_a_new_process(
    stub: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(stub) as lab:
        monkeypatch.setenv("SOME", "1") if change == "environment" else monkeypatch.chdir(tmp_path)
        with lab.rerun(PATCH):
            assert NEW in kinds().values()
        monkeypatch.undo()


def test_a_lab_whose_imported_process_is_killed_goes_on(stub: str) -> None:
    with made(stub) as lab:
        steps(lab)
        os.kill(kind(MAKER), signal.SIGKILL)
        wait_until(lambda: STAND_IN not in kinds().values())
        steps(lab)
        assert [*kinds().values()] == [NEW]


@pytest.mark.parametrize("stopped", [MAKER, COPY, STAND_IN])
def test_a_stopped_process_ends_with_the_lab(stub: str, stopped: str) -> None:
    with made(stub) as lab:
        steps(lab)
        os.kill(kind(stopped), signal.SIGSTOP)


KILLED = """
import os, signal, sys
import labengine
lab = labengine.drive("vllm", sys.argv[1], num_blocks=12, block_size=4)
lab.rerun(labengine.Patch("FakePool.free_blocks", "def free_blocks(self, *blocks): pass"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_how_a_copy_ended_is_known_where_its_starter_blocks_the_signal(stub: str) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        with made(stub) as lab:
            comparison = lab.rerun(labengine.Patch(PATCH.method, ENDING))
            with comparison, pytest.raises(EngineRaisedError, match="status 7"):
                steps(comparison.right)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_they_end_with_labengine(stub: str) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, stub], capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    wait_until(lambda: not [*processes()])


def test_a_copy_shows_its_own_mark(stub: str) -> None:
    """By which the processes that it has started are found, whatever they have closed."""
    with made(stub):
        marks = {
            Path(f"/proc/{pid}/environ").read_bytes().partition(b"LABENGINE_STARTED_BY=")[2][:32] for pid in kinds()
        }
        assert len(marks) == 2
