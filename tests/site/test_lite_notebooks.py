"""The notebooks of the page: what needs weights is not run there, and what was changed still is in the notebook."""

from __future__ import annotations

import json

import pytest

from tools.site.lite_notebooks import NOTEBOOKS, cannot_run, changed, recorded

WITH_WEIGHTS = {"00_why_blocks", "02_paged_attention_by_hand", "09_corruption_or_rounding"}
"""Notebooks that can only be read in the page."""


@pytest.mark.parametrize("name", [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_each_notebook_says_what_the_page_can_do_with_it(name: str) -> None:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    in_page = changed(name, notebook, recorded(NOTEBOOKS / f"{name}.ipynb"))
    first = in_page["cells"][0]["source"]
    assert [cell["id"] for cell in in_page["cells"]] == [cell["id"] for cell in notebook["cells"]]
    assert ("weights, which are not in this page" in first) == cannot_run(in_page["cells"])
    assert "installed, nothing is sent" in first or cannot_run(in_page["cells"])
    assert cannot_run(in_page["cells"]) == (name in WITH_WEIGHTS), "a change of TWINS may be missing"


def test_a_recorded_run_is_read_in_the_page() -> None:
    path = NOTEBOOKS / "00_why_blocks.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    outputs = {
        "one-block": [{"kind": "stream", "name": "stdout", "text": "keys [4, 3, 64]"}],
        "live": [{"kind": "view", "view": "x"}],
    }
    cells = {cell["id"]: cell for cell in changed(path.stem, notebook, outputs)["cells"]}
    assert cells["one-block"]["outputs"][0]["text"] == "keys [4, 3, 64]"
    assert "the course's page" in cells["live"]["outputs"][0]["data"]["text/plain"]
    path = NOTEBOOKS / "06_the_off_by_one_that_was_none.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    kept = {"outputs": [{"kind": "text/plain", "data": "1 of 2 texts differs"}]}
    [shown] = [cell for cell in changed(path.stem, notebook, kept)["cells"] if cell["id"] == "outputs"]
    assert shown["cell_type"] == "markdown" and "```text\n1 of 2 texts differs\n```" in shown["source"]


def test_a_change_that_lost_its_place_is_refused() -> None:
    notebook = json.loads((NOTEBOOKS / "01_first_light.ipynb").read_text(encoding="utf-8"))
    [start] = [cell for cell in notebook["cells"] if cell["id"] == "start"]
    start["source"] = "%lab start --model gemma3-270m"
    with pytest.raises(LookupError, match="01_first_light: the text of cell 'start' has changed"):
        changed("01_first_light", notebook, {})


def test_charts_are_small_pictures() -> None:
    for name, cell_id in (("00_why_blocks", ""), ("03_continuous_batching", "chart")):
        path = NOTEBOOKS / f"{name}.ipynb"
        in_page = json.dumps(changed(name, json.loads(path.read_text(encoding="utf-8")), recorded(path))["cells"])
        is_text = "![the chart that this cell draws](data:image/svg+xml;base64," in in_page
        assert is_text == bool(cell_id) and ('image/svg+xml": "<svg' in in_page) != is_text
