"""The stages before all others: the machine is looked at, and what was brought along is installed and unpacked."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from brought import TRITON_CACHE, Brought
from probe import described, versions
from stages import Run, Stage, python

PIP = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir",
       "--disable-pip-version-check")  # fmt: skip


def wheels(brought: Brought) -> Stage:
    """Before all others, which import some of the packages."""
    target = ("--upgrade", "--target", str(brought.site))
    return Stage("prepare: wheels", (*PIP, *target, *map(str, brought.wheels)), 60)


def preparation(brought: Brought) -> list[Stage]:
    """Independent of each other; what was not brought along has no stage."""
    found = [Stage("probe", python("probe.py"), 90, is_shown=True)]
    if brought.fa3 is not None and brought.fa3 != brought.fa3_library:
        found.append(Stage("prepare: FA3", python("unpack.py", brought.fa3, str(brought.fa3_library)), 60))
    if brought.triton_cache is not None:
        found.append(Stage("prepare: kernels", python("unpack.py", brought.triton_cache, TRITON_CACHE.parent), 60))
    return found


def random_models(brought: Brought) -> list[Stage]:
    """One stage per known model: its weights, made at random."""
    return [Stage(f"prepare: {path.name}", python("known_models.py", path.name, path), 90) for path in brought.models]


def qwen3(model_dir: Path) -> Stage:
    """The workload's model."""
    return Stage("prepare: model", python("workload.py", model_dir), 90)


def prepare(run: Run, brought: Brought, *models: Stage) -> None:
    """Say what is missing, at once, and run the preparation; models: stages that make some."""
    run.journal.say(described(versions(), brought.packages()))
    for line in brought.missing():
        run.journal.say(line)
    if brought.wheels:
        shutil.rmtree(brought.site, ignore_errors=True)
        run.alone(wheels(brought))
    run.side_by_side([*preparation(brought), *models])
