"""The stages before all others: probe the machine, and install and unpack the parts brought along."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from brought import TRITON_CACHE, Brought
from probe import described, versions
from stages import Run, Stage, python

PIP = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir",
       "--disable-pip-version-check")  # fmt: skip

FA3 = "prepare: FA3"


def wheels(brought: Brought) -> Stage:
    """Return the stage that installs wheels, before others import them."""
    target = ("--upgrade", "--target", str(brought.site))
    return Stage("prepare: wheels", (*PIP, *target, *map(str, brought.wheels)), 60)


def preparation(brought: Brought) -> list[Stage]:
    """Return stages that are independent of each other, one per part brought along."""
    found = [Stage("probe", python("probe.py"), 90, is_shown=True)]
    if brought.fa3 is not None:
        command = python("unpack.py", "fa3", brought.fa3, str(brought.fa3_library))
        found.append(Stage(FA3, command, 60, brought.fa3_environment()))
    if brought.triton_cache is not None:
        command = python("unpack.py", "cache", brought.triton_cache, TRITON_CACHE.parent)
        found.append(Stage("prepare: kernels", command, 60))
    return found


def random_models(brought: Brought) -> list[Stage]:
    """Return one stage per known model, which makes its random weights."""
    return [Stage(f"prepare: {path.name}", python("known_models.py", path.name, path), 90) for path in brought.models]


def qwen3(model_dir: Path) -> Stage:
    """Return the stage that makes the workload's model."""
    return Stage("prepare: model", python("workload.py", model_dir), 90)


def prepare(run: Run, brought: Brought, *models: Stage) -> Brought:
    """Report missing parts at once, and run the preparation; models: stages that make models.

    Returns the usable parts, without FA3 if its library does not load here.
    """
    run.journal.say(described(versions(), brought.packages()))
    for line in brought.missing():
        run.journal.say(line)
    if brought.wheels:
        shutil.rmtree(brought.site, ignore_errors=True)
        run.alone(wheels(brought))
    outcomes = run.side_by_side([*preparation(brought), *models])
    if any(outcome.stage == FA3 and outcome.verdict != "passed" for outcome in outcomes):
        run.journal.say("all stages run without FA3")
        return replace(brought, fa3=None)
    return brought
