"""The course's notebooks for a page without weights: as they are, with a change or two, or only to be read."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.site.figure_svg import figure_svg
from tools.site.notebook_runs import NOTEBOOKS, Output, has_weights, run_of

NOT_IN_PAGE = re.compile(r"smollm2|gemma3-270m|model_path\(|_frame\(|\b(import|from) (torch|plotly|pandas|numpy)\b")
"""Code that cannot run in the page: a model with weights, or a package that has no build for Pyodide there."""

NOTE = """\
> **In this page**, Python runs in your browser: nothing is installed, nothing is sent. *Run > Run All Cells* works."""
RECORDED = """\
> **This notebook computes with a model's weights, which are not in this page.** What you see below its cells \
is recorded; a cell that you run here says what to install. On your machine, `make lab` opens and runs all of it."""
LEFT_OUT = """\
*This cell needs what is not in this page. On a machine with all of labengine it runs:*"""

WORDS = """\
The same words three times; C was allowed only four tokens. And there are more merges than the three you watched: \
the requests went on alike, so the blocks that their answers filled were equal too, and were merged as soon as they \
were full."""
NUMBERS = """\
Three different texts: the simulated model's tokens depend on the request, so there are no merges after the three that \
you watched. A model with weights writes the same words three times, and the blocks that the requests fill while \
writing are merged too."""

ONE_CELL = " One cell needs a model's weights, and is only shown."

PLAYED = "(a view that plays: the course's page of this notebook has it)"
SHOWN = {"image/svg+xml", "image/png", "text/html", "text/plain"}
"""Kinds of recorded outputs that need no kernel."""
FIGURE = "application/vnd.plotly.v1+json"
"""A chart: drawn as a small SVG, as plotly is not in the page."""

Cell = dict[str, Any]


@dataclass(frozen=True)
class Twin:
    """How a notebook differs in the page.

    note: a sentence at the top. edits: (cell id, old text, new text). shown: ids of cells that are only read.
    """

    note: str = ""
    edits: tuple[tuple[str, str, str], ...] = ()
    shown: tuple[str, ...] = ()


TWINS = {
    "01_first_light": Twin(
        note=" The model is the simulated one: scheduler, pool and prefix cache are the same, each word of a prompt "
        "is a token, and the tokens that it writes mean nothing.",
        edits=(
            ("start-about", "One line starts a real model", "One line starts an engine"),
            ("start-about", " (The very first start fetches and converts the model, which takes about a minute.)", ""),
            ("start", "--model smollm2", "--model simulated"),
            ("predict", "Fourteen tokens make", "Thirteen tokens make"),
            ("not-saved", "only its last two tokens are left", "only its last token is left"),
            ("end-read", WORDS, NUMBERS),
            ("try-1", "2 tokens to compute where the others had 14", "1 token to compute where the others had 13"),
            ("try-2", "14 tokens do not fill", "13 tokens do not fill"),
        ),
        shown=("copies",),
    ),
    "03_continuous_batching": Twin(
        note=" Two cells need a chart's package or a model's weights, and are only shown.", shown=("chart", "real")
    ),
    "04_prefix_caching": Twin(note=ONE_CELL, shown=("real",)),
    "06_the_off_by_one_that_was_none": Twin(note=ONE_CELL, shown=("outputs",)),
    "08_two_phase_allocation": Twin(note=ONE_CELL, shown=("real",)),
    "10_reading_a_run": Twin(note=" One cell needs pandas, and is only shown.", shown=("frame",)),
}


def write(folder: Path) -> None:
    """Write the notebooks and their pictures into a folder."""
    shutil.copytree(NOTEBOOKS / "pictures", folder / "pictures")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        in_page = changed(path.stem, notebook, recorded(path))
        (folder / path.name).write_text(json.dumps(in_page, ensure_ascii=False, indent=1), encoding="utf-8")


def recorded(path: Path) -> dict[str, list[Output]]:
    """Return the outputs of a run that was recorded, by cell id; empty where the page runs all, or nothing is kept."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    run = run_of(path) if has_weights(path) else None
    return {} if run is None else {cell["id"]: outputs for cell, outputs in zip(cells, run.outputs, strict=True)}


def changed(name: str, notebook: dict[str, Any], outputs: Mapping[str, list[Output]]) -> dict[str, Any]:
    """Return a notebook as the page has it; outputs: recorded ones by cell id.

    Raises LookupError if a change has lost its place in the notebook.
    """
    twin = TWINS.get(name, Twin())
    cells: list[Cell] = [{**cell, "source": "".join(cell["source"])} for cell in notebook["cells"]]
    places = {cell["id"]: number for number, cell in enumerate(cells)}
    for cell_id, old, new in twin.edits:
        cell = cells[places[cell_id]]
        if old not in cell["source"]:
            raise LookupError(
                f"{name}: the text of cell {cell_id!r} has changed, and with it what the page must change"
            )
        cell["source"] = cell["source"].replace(old, new)
    for cell_id in twin.shown:
        cells[places[cell_id]] = only_shown(cells[places[cell_id]], outputs.get(cell_id, []))
    note = RECORDED if cannot_run(cells) else NOTE + twin.note
    if cannot_run(cells):
        for cell in cells:
            if cell["cell_type"] == "code":
                cell["outputs"] = [shown_output(one) for one in outputs.get(cell["id"], [])]
    cells[0]["source"] = with_note(cells[0]["source"], note)
    return {**notebook, "cells": cells}


def cannot_run(cells: Iterable[Cell]) -> bool:
    """Return True if a cell cannot run in the page."""
    return any(cell["cell_type"] == "code" and NOT_IN_PAGE.search(cell["source"]) for cell in cells)


def only_shown(cell: Cell, outputs: list[Output]) -> Cell:
    """Return a code cell as text, with its recorded outputs."""
    code = f"```python\n{cell['source']}\n```"
    return {
        "cell_type": "markdown",
        "id": cell["id"],
        "metadata": {},
        "source": "\n\n".join([LEFT_OUT, code, *filter(None, map(as_markdown, outputs))]),
    }


def as_markdown(output: Output) -> str:
    """Return an output as a part of a text cell; empty for a picture that is not a chart."""
    if output["kind"] == FIGURE:
        picture = b64encode(figure_svg(output["data"]).encode()).decode()
        return f"![the chart that this cell draws](data:image/svg+xml;base64,{picture})"
    if output["kind"] == "text/html":
        return str(output["data"])
    text = output["text"] if output["kind"] == "stream" else output["data"] if output["kind"] == "text/plain" else ""
    return f"```text\n{text.rstrip()}\n```" if text else ""


def shown_output(output: Output) -> dict[str, Any]:
    """Return a recorded output as a notebook file has it. A view that plays is in the course's page of the notebook."""
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
