"""The first run on a device, in the order in which a failure explains the ones behind it; `benchmarks/gpu --first`.

Kernels before models, models before graphs, graphs before all tests, and figures last: a figure of a wrong kernel is
worth nothing. A stage that fails is reported, and the others still run, each in a process of its own with a time limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs")
KERNEL_CASES = tuple(f"tests/engine/triton_{case}_cases.py" for case in ("sampler", "attention", "ops"))
LEFT_OUT = "left out: "
"""Begins the last line of a check that this machine has not enough devices for; the reason follows."""


@dataclass(frozen=True)
class Stage:
    """One command. needs: an executable without which it is left out."""

    name: str
    command: tuple[str, ...]
    minutes: float
    needs: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of a stage: passed, failed or left out, and the last lines of what it said."""

    stage: Stage
    verdict: str
    seconds: float
    words: str


def stages(figures: bool = True) -> list[Stage]:
    """All stages, in order."""
    compiled = {"TRITON_INTERPRET": "0"}
    found = [
        Stage("kernels", (*PYTEST, "-m", "gpu", "tests/engine/test_triton.py"), 15),
        Stage("sampler", (*PYTEST, "-m", "gpu", "tests/engine/test_sampler.py"), 5),
        Stage(
            "compute-sanitizer on the kernels",
            ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", *PYTEST, "-m", "not sweep",
             *KERNEL_CASES),
            30,
            needs="compute-sanitizer",
            # Each tensor in an allocation of its own: a read behind its end is seen.
            environment={**compiled, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        ),
        Stage("tiny models", (*PYTEST, "-m", "gpu", "tests/engine/test_cuda.py", "-k", "tiny_models or backends"), 15),
        Stage("graphs", (*PYTEST, "-m", "gpu", "tests/engine/test_cuda.py", "-k", "graph"), 15),
        Stage("all gpu tests", (*PYTEST, "-m", "gpu", "tests"), 40),
    ]  # fmt: skip
    for check, minutes in (("loads", 10), ("threads", 5), ("wide_tables", 10), ("full_memory", 10)):
        found.append(Stage(check, (sys.executable, str(HERE / "device_checks.py"), check), minutes))
    if figures:
        for part in ("limits", "kernels", "workload", "profile"):
            found.append(Stage(f"figures: {part}", (sys.executable, str(HERE), "--only", part), 60))
    return found


def run_first(selected: Sequence[Stage], log: Path, say: Callable[[str], object] = print) -> list[Outcome]:
    """Run the stages; everything they say goes into `log`. Returns their outcomes, in order."""
    outcomes = []
    for number, stage in enumerate(selected, 1):
        say(f"{number}/{len(selected)} {stage.name} ...")
        outcome = _taken(stage, log)
        outcomes.append(outcome)
        say(f"    {outcome.verdict} after {outcome.seconds:.0f} s: {outcome.words}")
    return outcomes


def _taken(stage: Stage, log: Path) -> Outcome:
    if stage.needs is not None and shutil.which(stage.needs) is None:
        return Outcome(stage, "left out", 0.0, f"{stage.needs} is not installed")
    started, path = time.perf_counter(), os.pathsep.join(map(str, (ROOT, ROOT / "widgets")))
    environment = {**os.environ, "PYTHONPATH": path, **stage.environment}
    with log.open("a+") as said:
        said.write(f"\n===== {stage.name}: {' '.join(stage.command)}\n")
        said.flush()
        begin = log.stat().st_size
        try:
            done = subprocess.run(
                stage.command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT, check=False,
                timeout=stage.minutes * 60,
            )  # fmt: skip
            verdict = "passed" if done.returncode == 0 else f"failed ({done.returncode})"
        except subprocess.TimeoutExpired:
            verdict = f"failed (no end after {stage.minutes} minutes)"
        said.seek(begin)
        lines = [line.strip() for line in said.read().splitlines() if line.strip()]
    words = lines[-1][:200] if lines else "no words"
    if verdict == "passed" and words.startswith(LEFT_OUT):
        verdict, words = "left out", words.removeprefix(LEFT_OUT)
    if verdict == "passed" and "pytest" in stage.command and " passed" not in words:
        verdict = "failed (nothing was tested)"
    return Outcome(stage, verdict, time.perf_counter() - started, words)


def report(outcomes: Sequence[Outcome]) -> str:
    """Markdown, one line per stage."""
    rows = [f"| {o.stage.name} | {o.verdict} | {o.seconds:.0f} | {o.words.replace('|', '/')} |" for o in outcomes]
    return "\n".join(["| stage | | seconds | last words |", "|---|---|---:|---|", *rows])
