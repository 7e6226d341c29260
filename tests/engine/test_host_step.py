"""The benchmark of the host's time of a step runs without a GPU, and its gaps are those between two graphs."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import count

import pytest

from checkout import ROOT

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import standin_cuda
from standin_cuda import Marks

TINY = ["--layers", "2", "--steps", "3"]


def printed(*options: str) -> str:
    script = ROOT / "benchmarks" / "gpu" / "host_step.py"
    done = subprocess.run([sys.executable, str(script), *TINY, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.journey
def test_a_step_is_launched_before_the_tokens_of_the_one_before_are_read() -> None:
    """Through production's path for a GPU: the gap is 0 with overlap, and is not without."""
    gaps = dict(re.findall(r"^ +(\d+ \| \w+) *\|.*\| +(\d+\.\d+) +\|", printed("--batches", "1,3"), re.MULTILINE))
    assert [name for name, gap in gaps.items() if float(gap) == 0] == ["1 | overlapped", "3 | overlapped"]
    assert {*gaps} == {"1 | synchronous", "1 | overlapped", "3 | synchronous", "3 | overlapped"}


@pytest.mark.sweep
def test_mixed_steps() -> None:
    found = printed("--mixed")
    assert "module by module  |" in found and "by default        |" in found


def test_a_gap_is_from_reading_a_steps_tokens_to_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standin_cuda, "thread_time", map(float, count()).__next__)
    marks = Marks()
    for _ in range(3):
        marks.launch()
        marks.read(7)  # no token of a launch
        marks.read(marks.token)
    assert marks.gaps() == [1.0, 1.0]


def test_there_is_no_gap_where_the_next_launch_comes_before_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standin_cuda, "thread_time", map(float, count()).__next__)
    marks = Marks()
    marks.launch()
    for _ in range(70):  # more launches than there are tokens
        before = marks.token
        marks.launch()
        marks.read(before)
    assert marks.gaps() == [0.0] * 70


def test_tokens_that_are_not_read_are_noticed() -> None:
    marks = Marks()
    for _ in range(4):
        marks.launch()
    with pytest.raises(RuntimeError, match="tokens of 2 launches were not read"):
        marks.gaps()
