"""The first run on a GPU machine: correctness in parallel, then stages that need the card alone, figures last.

A failing stage is reported, and all others still run: with only minutes, no failure may hide a later result.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

from brought import Brought
from preparation import prepare, random_models
from stages import Run, Stage, executable, python

PYTEST = (sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-rsf", "--tb=short", "-o", "timeout=240")
"""One line per test, so that the output of a stage killed at its limit has its results so far."""
NEEDS_THE_CARD = ("auto", "memory", "larger_gpu")
"""Words in the names of test_cuda.py's tests that take most of the memory or measure it."""
HYBRID = "hybrid_model"
MEMCHECK = "padding or few_tiles or mixed_steps or only_the_plans or rotate_and_write or cut_rows or top_k_up_to"
"""Some tests of every kernel; under memcheck each takes ten times as long."""
SHARE_SIDE_BY_SIDE = 0.7
"""Share of the budget; the rest belongs to the stages that need the card alone."""


def tests(*words: str, workers: int = 1) -> tuple[str, ...]:
    """Return pytest's command; workers: number of processes, if pytest-xdist is installed."""
    parallel = ("-n", str(workers)) if workers > 1 and find_spec("xdist") is not None else ()
    return (*PYTEST, *parallel, *words)


def cases(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/engine/triton_{name}_cases.py" for name in names)


def side_by_side(brought: Brought) -> list[Stage]:
    """Return the stages of correctness. The kernels' cases are those of tests/engine/test_triton.py, compiled."""
    sanitizer = executable("compute-sanitizer")
    no_gemma = "gemma3-270m was not brought along" if "gemma3-270m" not in brought.model_names() else ""
    sharing = " and ".join(f"not {word}" for word in (*NEEDS_THE_CARD, HYBRID))
    labs = ("tests/engine/test_cuda.py", "tests/engine/test_launch_ahead.py", "tests/session/test_overlap.py")
    fa3 = brought.fa3_environment()
    return [
        Stage("kernels: attention", tests(*cases("attention"), workers=5), 200),
        Stage("kernels: ops", tests(*cases("ops"), workers=2), 200),
        Stage("kernels: sampler", tests(*cases("sampler"), workers=4), 200),
        Stage("kernels: models", tests(*cases("model", "ops_models")), 200),
        Stage("sampler", tests("tests/engine/test_sampler.py", "-m", "gpu"), 120),
        Stage("labs and graphs", tests(*labs, "-m", "gpu", "-k", sharing, workers=4), 240, fa3),
        Stage("hybrid model", tests(labs[0], "-k", HYBRID), 150, lacks=no_gemma if brought.models else ""),
        Stage("wide tables", python("device_checks.py", "wide_tables"), 150),
        Stage("two devices", python("device_checks.py", "threads"), 100),
        Stage(
            "memcheck",
            (sanitizer or "", "--tool", "memcheck", "--error-exitcode", "9",
             *tests(*cases("attention", "ops", "sampler"), "-m", "not sweep", "-k", MEMCHECK)),
            150,
            # Each tensor has a separate allocation, so that a read past its end is detected.
            {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
            lacks="" if sanitizer else "compute-sanitizer is not installed",
        ),
    ]  # fmt: skip


def alone(brought: Brought, out: Path) -> list[Stage]:
    """Return the stages that take most of the memory, or measure. out: the folder for attention.json."""
    fa3 = brought.fa3_environment()
    memory = tests("tests/engine/test_cuda.py", "-k", " or ".join(NEEDS_THE_CARD))
    figures = python("attention.py", "--json", out / "attention.json")
    return [
        Stage("auto and memory", memory, 100, fa3),
        Stage("full memory", python("device_checks.py", "full_memory"), 60),
        Stage("loads and closes", python("device_checks.py", "loads"), 60),
        Stage("figures: limits", python("gpu_limits.py"), 40, is_shown=True),
        Stage("figures: attention", figures, 150, fa3, is_shown=True),
    ]


def names() -> list[str]:
    """Return all stages that --only can pick."""
    return [stage.name for stage in (*side_by_side(Brought()), *alone(Brought(), Path()))]


def run_first(run: Run, brought: Brought, only: Collection[str] = ()) -> None:
    """Prepare, and run the stages; only: names of the stages to run, by default all."""
    usable = prepare(run, brought, *random_models(brought))

    def picked(stages: list[Stage]) -> list[Stage]:
        return [stage for stage in stages if not only or stage.name in only]

    run.side_by_side(picked(side_by_side(usable)), run.budget.part(SHARE_SIDE_BY_SIDE))
    for stage in picked(alone(usable, run.journal.folder)):
        run.alone(stage)
