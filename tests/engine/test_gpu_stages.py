"""Stages of a run on a GPU machine: what fails or hangs costs only itself, and nothing is left running."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import stages
from stages import Budget, Stage

from stage_runs import WITH_A_CHILD, python_stage, run_in, verdicts, wait_until_gone


def test_each_stage_has_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_in(tmp_path)
    selected = [
        python_stage("good", "print('3 | passed')"),
        python_stage("bad", "print('E   one failed', flush=True); raise SystemExit(9)"),
        python_stage("for two", "print('left out: there is one GPU')"),
        python_stage("silent", ""),
        Stage("absent", ("no-such-program",), 10),
        Stage("lacking", ("no-such-program",), 10, lacks="no-such-program is not installed"),
    ]
    outcomes = {outcome.stage: outcome for outcome in run.side_by_side(selected)}
    found = {name: (outcome.verdict, outcome.words) for name, outcome in outcomes.items()}
    assert found.pop("absent")[0] == "failed (not started)" and "no-such-program" in outcomes["absent"].words
    assert found == {
        "good": ("passed", "3 | passed"),
        "bad": ("failed (9)", "E   one failed"),
        "for two": ("left out", "there is one GPU"),
        "silent": ("passed", "no words"),
        "lacking": ("left out", "no-such-program is not installed"),
    }
    assert {outcome.stage for outcome in outcomes.values() if outcome.has_failed} == {"bad", "absent"}
    assert "        E   one failed" in capsys.readouterr().out
    assert re.search(r"\| good \| passed \| \d+ \| 3 / passed \|", run.journal.report())
    log = (tmp_path / "out" / "all.log").read_text()
    assert log.count("\n===== ") == 4 and "===== bad: " in log


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("===== 2 passed, 1 skipped in 3.0s =====", "passed"),
        ("2 skipped in 3.0s", "failed (nothing was tested)"),
        ("no tests ran in 3.0s", "failed (nothing was tested)"),
    ],
)
def test_tests_that_are_all_skipped_are_a_failure(words: str, verdict: str, tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; print(sys.argv[2])", "pytest", words)
    assert run_in(tmp_path).alone(Stage("tests", command, 100)).verdict == verdict


def test_a_verdict_is_written_when_it_is_known(tmp_path: Path) -> None:
    """The second stage ends when it reads the first one's verdict."""
    file = tmp_path / "out" / "verdicts.jsonl"
    code = f"""
import pathlib, time
file = pathlib.Path({str(file)!r})
while not file.exists() or '"quick"' not in file.read_text():
    time.sleep(0.01)
"""
    outcomes = run_in(tmp_path).side_by_side([python_stage("reader", code), python_stage("quick", "print('done')")])
    assert [outcome.stage for outcome in outcomes] == ["quick", "reader"]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["stage"], row["verdict"], row["words"]) for row in rows] == [
        ("quick", "passed", "done"),
        ("reader", "passed", "no words"),
    ]


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file: as soon as it exists, it is late, and every limit is reached."""
    file = tmp_path / "child"
    clock = SimpleNamespace(monotonic=lambda: 1e6 if file.exists() else 0.0, sleep=stages.time.sleep)
    monkeypatch.setattr(stages, "time", clock)
    return file


def test_a_stage_that_hangs_is_killed_with_all_that_it_started(late: Path, tmp_path: Path) -> None:
    code = WITH_A_CHILD.format(file=str(late)) + "print('begun', flush=True); child.wait()"
    outcome = run_in(tmp_path).alone(python_stage("endless", code, limit=5))
    assert (outcome.verdict, outcome.words) == ("failed (no end after 50 s)", "begun")
    wait_until_gone(late)


def test_what_a_stage_leaves_behind_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "child"
    assert run_in(tmp_path).alone(python_stage("parent", WITH_A_CHILD.format(file=str(file)))).verdict == "passed"
    wait_until_gone(file)


def test_an_interrupt_kills_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "child"

    def sleep(seconds: float) -> None:
        if file.exists():
            raise SystemExit(143)

    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    run = run_in(tmp_path)
    with pytest.raises(SystemExit):
        run.alone(python_stage("endless", WITH_A_CHILD.format(file=str(file)) + "child.wait()"))
    wait_until_gone(file)
    assert verdicts(run.journal.outcomes) == {"endless": "failed (interrupted)"}


def test_nothing_starts_after_the_end_of_the_budget(tmp_path: Path) -> None:
    run = run_in(tmp_path, Budget(0))
    assert verdicts(run.side_by_side([python_stage("one", ""), python_stage("other", "")])) == {
        "one": "not run",
        "other": "not run",
    }
