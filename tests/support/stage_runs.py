"""Runs of stages in a temporary folder, and processes of which a test wants to know whether they are gone."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from checkout import ROOT
from waiting import wait_until

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

from brought import Brought
from stages import Budget, Journal, Outcome, Run, Stage

WITH_A_CHILD = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10_000)"])
part = pathlib.Path({file!r} + ".part")
part.write_text(str(child.pid))
part.rename({file!r})
"""
"""Starts a process, writes its id to a file that appears complete, and goes on."""


def run_in(folder: Path, budget: Budget | None = None) -> Run:
    environment = Brought(work=folder / "work").environment()
    return Run(Journal(folder / "out"), budget or Budget(), environment, folder / "work")


def python_stage(name: str, code: str, limit: float = 100.0) -> Stage:
    return Stage(name, (sys.executable, "-c", code), limit)


def verdicts(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.stage: outcome.verdict for outcome in outcomes}


def wait_until_gone(file: Path) -> None:
    """Wait until the process, whose id is in the file, runs no more."""
    pid = int(file.read_text())

    def is_gone() -> bool:
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    wait_until(is_gone, f"the end of process {pid}")
