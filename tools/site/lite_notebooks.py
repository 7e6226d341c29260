"""The course's notebooks for a web page, with recorded outputs for the cells that may not run there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labengine.live_page.model_offer import MEGABYTES
from labengine.live_page.model_offer import NAME as MODEL_NAME
from labengine.live_page.recorded_cells import Recorded, code_digest
from tools.site.cell_needs import cell_needs
from tools.site.figure_svg import figure_svg
from tools.site.notebook_runs import NOTEBOOKS, Output, run_of

NOTE = """\
> **In this page**, Python runs in your browser. Nothing is installed or sent. *Run > Run All Cells* works."""
BUTTON = " Below the first cell that asks for SmolLM2, a button fetches its weights ({megabytes} MB, once)."
SIMULATED = """\
 Until then a simulated model replaces it: each word of a prompt is a token, and some numbers in the text come from \
the real model."""
NEEDS = " A cell that begins with `%%needs` shows its recorded output if the page lacks something that the cell needs."

PLAYED = "(a view with playback: see this notebook's page in the course)"
SHOWN = {"image/svg+xml", "image/png", "text/html", "text/plain"}
"""Kinds of recorded outputs that need no kernel."""
FIGURE = "application/vnd.plotly.v1+json"
"""A chart; it is drawn as a small SVG, because plotly is not in the page."""

Cell = dict[str, Any]


@dataclass(frozen=True)
class Twin:
    """The differences of a notebook in the page.

    edits: (cell id, old text, new text). needs: by cell id, needs that a cell's code does not show.
    """

    edits: tuple[tuple[str, str, str], ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)


TORCH_AT_START = """\
import math
import os

import torch

import labengine

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # for the kernel at the end: without a GPU, Python runs it
"""
TWINS = {
    "00_why_blocks": Twin(needs={"one-block": MODEL_NAME}),
    "01_first_light": Twin(needs={"copies": "torch"}),
    "02_paged_attention_by_hand": Twin(
        edits=(("start", TORCH_AT_START, "import math\n\nimport labengine\n"),), needs={"table": MODEL_NAME}
    ),
    "03_continuous_batching": Twin(needs={"real": MODEL_NAME}),
    "04_prefix_caching": Twin(needs={"real": MODEL_NAME}),
    "06_the_off_by_one_that_was_none": Twin(needs={"outputs": MODEL_NAME}),
    "14_guessing_ahead": Twin(needs={"real": MODEL_NAME}),
}


def write(folder: Path) -> Recorded:
    """Write the notebooks and their pictures into a folder; return the outputs of cells that a page may not run."""
    shutil.copytree(NOTEBOOKS / "pictures", folder / "pictures")
    recorded: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = changed(path)
        needs = cell_needs(cells, twin_of(path).needs)
        outputs = recorded_outputs(path) if needs else {}
        recorded |= {
            code_digest(one["source"]): outputs[one["id"]]
            for one in cells
            if one["id"] in needs.keys() & outputs.keys()
        }
        notebook = json.loads(path.read_text(encoding="utf-8")) | {"cells": in_page(cells, needs, outputs)}
        (folder / path.name).write_text(json.dumps(notebook, ensure_ascii=False, indent=1), encoding="utf-8")
    return recorded


def in_page(cells: list[Cell], needs: Mapping[str, str], outputs: Recorded) -> list[Cell]:
    """Return the page's form of the cells. needs and outputs: by the ids of the cells that it may not run."""
    asks = any(MODEL_NAME in one["source"] for one in cells if one["cell_type"] == "code" and one["id"] not in needs)
    button = BUTTON.format(megabytes=MEGABYTES) if asks or MODEL_NAME in needs.values() else ""
    note = NOTE + button + (SIMULATED if asks else "") + (NEEDS if needs else "")
    shown = [
        cell | {"source": f"%%needs {needs[cell['id']]}\n{cell['source']}", "outputs": outputs.get(cell["id"], [])}
        if cell["id"] in needs
        else cell
        for cell in cells
    ]
    return [shown[0] | {"source": with_note(shown[0]["source"], note)}, *shown[1:]]


def twin_of(path: Path) -> Twin:
    """Return the differences of a notebook in the page."""
    return TWINS.get(path.stem, Twin())


def changed(path: Path) -> list[Cell]:
    """Return a notebook's cells with the page's edits. Raises LookupError if an edit no longer applies."""
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    edits = {cell_id: (old, new) for cell_id, old, new in twin_of(path).edits}
    for cell in cells:
        cell["source"] = "".join(cell["source"])
        old, new = edits.pop(cell["id"], ("", ""))
        if old not in cell["source"]:
            raise LookupError(f"{path.stem}: cell {cell['id']!r} has changed, so adapt the page's edit of it")
        cell["source"] = cell["source"].replace(old, new) if old else cell["source"]
    if lost := [*edits, *twin_of(path).needs.keys() - {cell["id"] for cell in cells}]:
        raise LookupError(f"{path.stem} has no cell {', '.join(map(repr, lost))}")
    return cells


def recorded_outputs(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the outputs of a notebook's run by cell id; {} if no run of its code is kept."""
    ids = [cell["id"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    run = run_of(path)
    return {} if run is None else dict(zip(ids, map(shown_outputs, run.outputs), strict=True))


def shown_outputs(outputs: list[Output]) -> list[dict[str, Any]]:
    """Return recorded outputs in a notebook file's form; for a view with playback, its picture."""
    pictures = [number for number, output in enumerate(outputs) if output["kind"] == "image/svg+xml"]
    return [
        shown_output(output)
        for number, output in enumerate(outputs)
        if output["kind"] != "view" or number - 1 not in pictures
    ]


def shown_output(output: Output) -> dict[str, Any]:
    """Return a recorded output in a notebook file's form. A view without a picture is in the course's page."""
    if output["kind"] == "stream":
        return {"output_type": "stream", "name": output["name"], "text": output["text"]}
    if output["kind"] == FIGURE:
        output = {"kind": "image/svg+xml", "data": figure_svg(output["data"])}
    data = {"text/plain": PLAYED} if output["kind"] not in SHOWN else {output["kind"]: output["data"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def with_note(text: str, note: str) -> str:
    """Return a notebook's first cell with a note below its title."""
    title, _, body = text.partition("\n\n")
    return f"{title}\n\n{note}\n\n{body}"
