"""Stages of a run on a GPU machine: commands with limits, in parallel, with verdicts written at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from brought import ROOT

LEFT_OUT = "left out: "
"""Begins the last line of a check that this machine cannot run; the reason follows."""
PATIENCE = 10
"""Without a budget, every limit is multiplied by this."""
LEAST_SECONDS = 2
"""Minimum seconds left to start a stage."""
POLL_SECONDS = 0.05
REASON = re.compile(r"^(E  |FAILED|ERROR|[\w.]*(Error|Exit|Interrupt)\b)")
"""Lines of a failed stage's output that give the reason."""
NUM_REASONS = 4
"""Number of first distinct lines printed, and of last ones."""


def start_group(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a command that writes its errors, and by default all output, into a file. Raises OSError.

    environment: added to this process's own.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **options}
    return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True, **pipes)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the rest of the process's group, including the process, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Budget:
    """Seconds from now on in which everything has to end; None: no end, but longer limits."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until the end."""
        return float("inf") if self._end is None else self._end - time.monotonic()

    def limit(self, seconds: float) -> float:
        """Return the seconds from now on for a stage with a limit of `seconds`."""
        return PATIENCE * seconds if self._end is None else min(seconds, self.left())

    def part(self, share: float) -> Budget:
        """Return a budget that ends earlier, after this share of the remaining time."""
        return self if self._end is None else Budget(share * self.left())


@dataclass(frozen=True)
class Stage:
    """One command, run in the project's root.

    limit: seconds. lacks: why this machine cannot run it, or "". is_shown: print all its output at its end.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    environment: Mapping[str, str] = field(default_factory=dict)
    lacks: str = ""
    is_shown: bool = False


@dataclass(frozen=True)
class Outcome:
    """Verdict (passed, failed ..., left out, not run), duration, last line and complete output of a stage."""

    stage: str
    verdict: str
    seconds: float
    words: str
    output: str = ""

    @property
    def has_failed(self) -> bool:
        return self.verdict.startswith("failed")


class Journal:
    """Prints at once, and writes to a folder: all.log, and verdicts.jsonl with one line per outcome."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.outcomes: list[Outcome] = []
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print with the seconds since the start, and log."""
        line = f"[{time.monotonic() - self._started:4.0f} s] {text}"
        print(line, flush=True)
        self._append("all.log", line)

    def keep(self, outcome: Outcome, is_shown: bool = False) -> Outcome:
        """Record and print the outcome and, unless its output is shown anyway, the lines that give the reason."""
        self.outcomes.append(outcome)
        row = {
            "at": datetime.now().isoformat(timespec="seconds"),
            "stage": outcome.stage,
            "verdict": outcome.verdict,
            "seconds": round(outcome.seconds, 1),
            "words": outcome.words,
        }
        self._append("verdicts.jsonl", json.dumps(row))
        self.say(f"{outcome.stage}: {outcome.verdict} after {outcome.seconds:.0f} s: {outcome.words}")
        if outcome.has_failed and not is_shown:
            print("".join(f"        {line}\n" for line in reasons_in(outcome.output)), end="", flush=True)
        return outcome

    def log(self, title: str, text: str) -> None:
        self._append("all.log", f"\n===== {title}\n{text}\n")

    def report(self) -> str:
        """Return a Markdown table with one row per outcome."""
        rows = [
            f"| {each.stage} | {each.verdict} | {each.seconds:.0f} | {each.words[:120].replace('|', '/')} |"
            for each in self.outcomes
        ]
        return "\n".join(["| stage | | seconds | last words |", "|---|---|---:|---|", *rows])

    def _append(self, name: str, line: str) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def reasons_in(output: str) -> list[str]:
    """Return the first and last distinct lines of a failed stage that give a reason."""
    lines = output.splitlines()
    found = list(dict.fromkeys(line[:160] for line in lines if REASON.match(line))) or lines[-NUM_REASONS:]
    return found[:NUM_REASONS] + found[NUM_REASONS:][-NUM_REASONS:]


class Run:
    """Runs stages within a budget. environment: added to every stage's; work: a folder for temporary files."""

    def __init__(self, journal: Journal, budget: Budget, environment: Mapping[str, str], work: Path) -> None:
        self.journal, self.budget, self.environment, self.work = journal, budget, environment, work

    def side_by_side(self, stages: Sequence[Stage], budget: Budget | None = None) -> list[Outcome]:
        """Run stages in parallel, until each has ended or reached its limit; return outcomes in order of ending.

        budget: an earlier end for these. Stages that still run when this process is interrupted are killed.
        """
        outcomes: list[Outcome] = []
        running: list[RunningStage] = []
        try:
            for stage in stages:
                self._start(stage, budget or self.budget, running, outcomes)
            while running:
                for each in list(running):
                    if (verdict := each.verdict()) is not None:
                        running.remove(each)
                        outcomes.append(self._end(each, verdict))
                if running:
                    time.sleep(POLL_SECONDS)
        finally:
            for each in running:
                self._end(each, "failed (interrupted)")
        return outcomes

    def alone(self, stage: Stage) -> Outcome:
        (outcome,) = self.side_by_side([stage])
        return outcome

    def _start(self, stage: Stage, budget: Budget, running: list[RunningStage], outcomes: list[Outcome]) -> None:
        limit = budget.limit(stage.limit)
        if stage.lacks:
            outcomes.append(self.journal.keep(Outcome(stage.name, "left out", 0, stage.lacks)))
        elif limit < min(LEAST_SECONDS, stage.limit):
            outcomes.append(self.journal.keep(Outcome(stage.name, "not run", 0, "the budget is spent")))
        else:
            try:
                running.append(RunningStage(stage, limit, self.environment, self.work))
            except OSError as error:
                outcomes.append(self.journal.keep(Outcome(stage.name, "failed (not started)", 0, str(error))))

    def _end(self, running: RunningStage, verdict: str) -> Outcome:
        outcome = running.end(verdict)
        self.journal.log(f"{outcome.stage}: {' '.join(running.stage.command)}", outcome.output)
        if running.stage.is_shown:
            print(outcome.output, flush=True)
        return self.journal.keep(outcome, running.stage.is_shown)


class RunningStage:
    """A started stage: a process group, and a file for its output."""

    def __init__(self, stage: Stage, limit: float, environment: Mapping[str, str], work: Path) -> None:
        self.stage = stage
        self._limit = limit
        self._started = time.monotonic()
        self._file = work / "logs" / f"{re.sub(r'[^a-z0-9]+', '_', stage.name.lower())}.log"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("wb") as output:
            self._process = start_group(stage.command, {**environment, **stage.environment}, output, cwd=ROOT)

    def verdict(self) -> str | None:
        """Return passed or failed; None while it runs within its limit."""
        code = self._process.poll()
        if code is not None:
            return "passed" if code == 0 else f"failed ({code})"
        if time.monotonic() - self._started > self._limit:
            return f"failed (no end after {self._limit:.0f} s)"
        return None

    def end(self, verdict: str) -> Outcome:
        """Kill the rest of the group, and return the outcome."""
        end_group(self._process)
        output = self._file.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        words = lines[-1].strip("= ")[-200:] if lines else "no words"  # pytest draws a rule
        if verdict == "passed" and words.startswith(LEFT_OUT):
            verdict, words = "left out", words.removeprefix(LEFT_OUT)
        if verdict == "passed" and "pytest" in self.stage.command and not re.search(r"\b\d+ passed", words):
            verdict = "failed (nothing was tested)"
        return Outcome(self.stage.name, verdict, time.monotonic() - self._started, words, output)


def python(script: str | Path, *arguments: str | Path) -> tuple[str, ...]:
    """Return the command that runs a script beside this file."""
    return (sys.executable, str(Path(__file__).with_name(str(script))), *map(str, arguments))


def executable(name: str) -> str | None:
    """Return the path of a program, from PATH or CUDA's usual folder."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def answer_of(outcome: Outcome) -> dict[str, object] | None:
    """Return the last JSON object that a stage printed; None if it failed."""
    lines = [line for line in outcome.output.splitlines() if line.startswith("{")]
    if outcome.verdict != "passed" or not lines:
        return None
    answer: dict[str, object] = json.loads(lines[-1])
    return answer
