"""The notebooks of the page: what needs weights is not run there, and what was changed still is in the notebook."""

from __future__ import annotations

import json

import pytest

from tools.site.lite_notebooks import NOTEBOOKS, cannot_run, changed

WITH_WEIGHTS = {"00_why_blocks", "09_corruption_or_rounding"}
"""Notebooks that can only be read in the page."""


@pytest.mark.parametrize("name", [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_each_notebook_says_what_the_page_can_do_with_it(name: str) -> None:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    in_page = changed(name, notebook)
    first = in_page["cells"][0]["source"]
    assert [cell["id"] for cell in in_page["cells"]] == [cell["id"] for cell in notebook["cells"]]
    assert ("weights, which are not in this page" in first) == cannot_run(in_page["cells"])
    assert "installed, nothing is sent" in first or cannot_run(in_page["cells"])
    assert cannot_run(in_page["cells"]) == (name in WITH_WEIGHTS), "a change of TWINS may be missing"


def test_a_change_that_lost_its_place_is_refused() -> None:
    notebook = json.loads((NOTEBOOKS / "01_first_light.ipynb").read_text(encoding="utf-8"))
    [start] = [cell for cell in notebook["cells"] if cell["id"] == "start"]
    start["source"] = "%lab start --model gemma3-270m"
    with pytest.raises(LookupError, match="01_first_light: the text of cell 'start' has changed"):
        changed("01_first_light", notebook)
