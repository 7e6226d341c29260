"""A notebook's run: its views open where they were after their cells, and a cell that only steps has its picture."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import nbformat

from tools.site.notebook_page import notebook_page
from tools.site.notebook_runs import executed

CELLS = (
    'import labengine\nlab = labengine.Lab("simulated", num_blocks=8, block_size=4)\nlab.add("a b c", max_tokens=8)\nlab.show()',
    "print(1)",
    "lab.step()",
    "lab.step();",
    "lab.step()\nprint(2)",
)


def opened(content: bytes) -> Any:
    """The step that a view of a page opens after; None for the end of its recording."""
    [recording] = json.loads(gzip.decompress(content))["recordings"]
    if recording["shown"] is None:
        return None
    kinds = [kind[0] for kind in recording["header"]["kinds"]]
    return sum(kinds[row[0]] == "StepEnded" for row in recording["events"][: recording["shown"]])


def test_views_open_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "steps.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, CELLS)]), path)
    run = executed(path)
    [view] = run.views
    shown = [[output["view"] for output in cell if output["kind"] == "view"] for cell in run.outputs]
    assert shown == [[view], [], [view], [view], []], "a cell that prints shows what it prints"
    page = notebook_page(path, run, "1 of 1", set())
    assert [opened(content) for content in page.files.values()] == [0, 1, 2]
    run.outputs[3][-1]["at"] = [
        run.views[view]["recordings"][0]["start"] + len(run.views[view]["recordings"][0]["events"])
    ]
    assert [opened(content) for content in notebook_page(path, run, "1 of 1", set()).files.values()] == [0, 1, None]
