"""The course runs: every notebook, top to bottom, in a new kernel of this environment."""

from __future__ import annotations

import importlib.util
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from checkout import ROOT
from labengine.course.words import exercise_names
from waiting import PATIENCE

FOLDER = ROOT / "notebooks"
EXPECTED = {
    "00_why_blocks",
    "01_first_light",
    "02_paged_attention_by_hand",
    "03_continuous_batching",
    "04_prefix_caching",
    "05_late_merge",
    "06_the_off_by_one_that_was_none",
    "07_two_tables",
    "08_two_phase_allocation",
    "09_corruption_or_rounding",
    "10_reading_a_run",
    "11_hunt",
    "12_your_own_policy",
    "13_sharing_what_is_written",
    "14_guessing_ahead",
    "15_states_instead_of_keys",
}
RUN_IN_A_BROWSER = {"01_first_light"}
"""Notebooks that tests/browser runs from top to bottom in JupyterLab: 01 in test_first_light.py, in a restarted
kernel. 05 and 10 run in both, there for the sweep."""
LONG = {"02_paged_attention_by_hand", "09_corruption_or_rounding"}
"""For the sweep alone: the functions of 02 are tried on a few numbers in tests/course/test_paged_by_hand.py, the
verdicts of 09 in tests/session/test_judging.py."""
LONG_CELLS = {
    "03_continuous_batching": "def run_real(",
    "04_prefix_caching": "def measured(",
    "08_two_phase_allocation": 'report.outputs("gemma3-270m")',
    "14_guessing_ahead": "def written(",
}
"""Cells on real models, for the sweep. That chunks do not change the words: tests/engine/test_against_transformers.py;
what a hit leaves to compute, on the simulated model: the other cells of 04; what Gemma writes in 08:
tests/scenarios/test_vllm_44409_on_gemma.py; that drafts change no token, in
14: tests/engine/test_speculation.py."""
SMALLER = {"00_why_blocks": {"NEW = 32": "NEW = 8", "for _ in range(64)": "for _ in range(40)"}}
"""Numbers of tokens and of requests that are smaller at every change; the sweep runs these notebooks as they are."""
NOTEBOOKS = sorted({*FOLDER.glob("*.ipynb"), *(FOLDER / f"{name}.ipynb" for name in EXPECTED)})  # a missing one fails

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    """The notebook as nbformat's node. Imported here: nbformat takes each worker seconds."""
    import nbformat

    return nbformat.read(path, as_version=4)


def test_the_course_is_there() -> None:
    assert [path.name for path in NOTEBOOKS if not path.is_file()] == []


@pytest.mark.usefixtures("jupyter_dirs")
def test_python3_is_this_environment() -> None:
    """What a notebook calls python3 is the interpreter that runs the tests, not one this user has registered."""
    manager = KernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager())
    assert manager.format_kernel_cmd()[0] == sys.executable


RUNS = [
    pytest.param(path.stem, False, id=path.stem, marks=pytest.mark.sweep if path.stem in LONG else ())
    for path in NOTEBOOKS
    if path.stem not in RUN_IN_A_BROWSER
]
RUNS += [
    pytest.param(name, True, id=f"{name}, every cell", marks=pytest.mark.sweep) for name in (*LONG_CELLS, *SMALLER)
]


def shorten(notebook: Any, name: str) -> None:
    """Take out its long cell, and make its large numbers smaller."""
    if name in LONG_CELLS:
        [cell] = [cell for cell in notebook.cells if LONG_CELLS[name] in cell.source]
        notebook.cells.remove(cell)
    for large, small in SMALLER.get(name, {}).items():
        [cell] = [cell for cell in notebook.cells if large in cell.source]
        cell.source = cell.source.replace(large, small)


@pytest.mark.parametrize(("name", "every_cell"), RUNS)
@pytest.mark.usefixtures("jupyter_dirs")
def test_notebook_runs(name: str, every_cell: bool) -> None:
    from nbclient import NotebookClient

    notebook = read(FOLDER / f"{name}.ipynb")
    if not every_cell:
        shorten(notebook, name)
    client = NotebookClient(
        notebook,
        timeout=int(PATIENCE),
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()  # raises CellExecutionError, with the cell and its traceback, on the first error
    ran = [cell.execution_count for cell in client.nb.cells if cell.cell_type == "code" and cell.source.strip()]
    assert ran == list(range(1, len(ran) + 1))


@each_notebook
def test_notebook_is_valid_and_opens_without_a_question(path: Path) -> None:
    import nbformat

    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"


@each_notebook
def test_notebook_links_to_notebooks_that_are_there(path: Path) -> None:
    linked = re.findall(r"\]\((\w+\.ipynb)", path.read_text(encoding="utf-8"))
    assert [name for name in linked if not (FOLDER / name).is_file()] == []


@pytest.mark.parametrize(("path", "following"), list(pairwise(NOTEBOOKS)), ids=lambda path: path.stem)
def test_notebook_ends_with_a_link_to_the_next(path: Path, following: Path) -> None:
    last = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"][-1]
    assert f"]({following.name})" in last


def test_every_exercise_is_in_a_notebook() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    assert [name for name in exercise_names() if f'exercise(\\"{name}\\")' not in text] == []


@each_notebook
def test_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code, "a notebook of the course has code"
    assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert "widgets" not in notebook.metadata, "widget state is saved in the notebook's metadata"


def test_its_drawings_are_what_the_script_draws() -> None:
    spec = importlib.util.spec_from_file_location("course_pictures", FOLDER.parent / "docs" / "course_pictures.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = {name: draw() for name, draw in script.PICTURES.items()}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "pictures").iterdir()}
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.ipynb"))
    assert all(f"](pictures/{name})" in text for name in drawn)
