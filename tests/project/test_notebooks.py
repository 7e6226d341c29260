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
    "16_trees",
}
RUN_IN_A_BROWSER = {"01_first_light", "05_late_merge", "10_reading_a_run"}
"""Notebooks that tests/browser runs from top to bottom in JupyterLab: 01 at each change, with its weights, in
test_first_light.py; 05 and 10 in test_notebooks_open.py."""
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


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(EXPECTED - RUN_IN_A_BROWSER))
@pytest.mark.usefixtures("jupyter_dirs")
def test_notebook_runs(name: str) -> None:
    from nbclient import NotebookClient

    notebook = read(FOLDER / f"{name}.ipynb")
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
def test_notebook_is_valid_and_committed_without_outputs(path: Path) -> None:
    """It opens without a question, and what it links to is there."""
    import nbformat

    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code, "a notebook of the course has code"
    assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert "widgets" not in notebook.metadata, "widget state is saved in the notebook's metadata"
    linked = re.findall(r"\]\((\w+\.ipynb)", path.read_text(encoding="utf-8"))
    assert [name for name in linked if not (FOLDER / name).is_file()] == []


@pytest.mark.parametrize(("path", "following"), list(pairwise(NOTEBOOKS)), ids=lambda path: path.stem)
def test_notebook_ends_with_a_link_to_the_next(path: Path, following: Path) -> None:
    last = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"][-1]
    assert f"]({following.name})" in last


def test_every_exercise_is_in_a_notebook() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    assert [name for name in exercise_names() if f'exercise(\\"{name}\\")' not in text] == []


def test_its_drawings_are_what_the_script_draws() -> None:
    spec = importlib.util.spec_from_file_location("course_pictures", FOLDER.parent / "docs" / "course_pictures.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = {name: draw() for name, draw in script.PICTURES.items()}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "pictures").iterdir()}
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.ipynb"))
    assert all(f"](pictures/{name})" in text for name in drawn)
