"""Nothing loads torch before an engine computes: a trace opens at once, everywhere."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from waiting import PATIENCE

HEAVY = ("torch", "transformers")

PACKAGE = ROOT / "labengine"
TOP = {"__init__", "__main__", "lab", "notebook"} | {path.stem for path in PACKAGE.glob("*.py")}
GROUND_AND_FRONT = sorted(f"labengine.{name}".removesuffix(".__init__") for name in TOP)

LOAD_EXTENSION = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "labengine")
assert "lab" in shell.magics_manager.magics["line"], "%lab is missing after %load_ext labengine"
"""

LIST_NAMES = """
import labengine
names = dir(labengine)
assert "Lab" in names and "simulate" in names, names
"""


def loaded_by(code: str, modules: tuple[str, ...] = HEAVY) -> set[str]:
    """Those of `modules` that a fresh interpreter has loaded after running `code`."""
    probe = f"{code}\nimport sys\nprint('loaded:', *sorted(set(sys.modules) & set({modules!r})))"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, f"{code.strip()}\n{run.stderr}"
    return set(run.stdout.splitlines()[-1].split()[1:])


def modules_in(package: Path, name: str) -> list[str]:
    """`name` and every module below it."""
    return [name, *(module.name for module in pkgutil.walk_packages([str(package)], f"{name}."))]


def test_the_probe_sees_what_is_loaded() -> None:
    assert loaded_by("import json, decimal", ("json", "decimal", "sqlite3")) == {"json", "decimal"}


@pytest.mark.parametrize("module", GROUND_AND_FRONT)
def test_the_ground_and_the_front_open_without_torch(module: str) -> None:
    assert loaded_by(f"import {module}") == set()


@pytest.mark.parametrize("room", ["core", "check"])
def test_what_decides_and_what_checks_open_without_torch(room: str, project_root: Path) -> None:
    modules = modules_in(project_root / "labengine" / room, f"labengine.{room}")
    assert loaded_by(f"import {', '.join(modules)}") == set()


def test_the_widgets_open_without_torch(project_root: Path) -> None:
    modules = modules_in(project_root / "widgets" / "labengine_widgets", "labengine_widgets")
    assert loaded_by(f"import {', '.join(modules)}") == set()


@pytest.mark.usefixtures("jupyter_dirs")
def test_the_notebook_extension_loads_without_torch() -> None:
    assert loaded_by(LOAD_EXTENSION) == set()


SIMULATED = """
import labengine
with labengine.Lab("simulated", num_blocks=8, block_size=4) as lab:
    lab.generate("a b c", max_tokens=2)
"""


def test_model_files_are_validated_only_where_there_are_any() -> None:
    assert loaded_by(SIMULATED, ("pydantic", "safetensors", "tokenizers")) == set()


def test_public_names_are_listed_without_torch() -> None:
    assert loaded_by(LIST_NAMES) == set()


PARTS = """
from labengine import (
    BlockPool, Connector, FreeQueue, FullAttentionGroup, HashChain, KeepDuplicates, KVCacheGroup, KVCacheManager,
    LateMerge, MergePolicy, Parts, PrefillFirstScheduler, Scheduler, SlidingWindowGroup, StateGroup,
    TokenBudgetScheduler,
)
Parts(
    scheduler=TokenBudgetScheduler, kv_cache_manager=KVCacheManager, full_attention_group=FullAttentionGroup,
    sliding_window_group=SlidingWindowGroup, state_group=StateGroup, block_pool=BlockPool, free_queue=FreeQueue,
    hash_chain=HashChain, merge_policy=LateMerge,
)
assert issubclass(PrefillFirstScheduler, Scheduler) and issubclass(KeepDuplicates, MergePolicy)
assert issubclass(SlidingWindowGroup, KVCacheGroup) and issubclass(StateGroup, KVCacheGroup)
assert Connector.__abstractmethods__
"""


def test_the_parts_to_override_are_public_names_and_come_without_torch() -> None:
    assert loaded_by(PARTS) == set()
