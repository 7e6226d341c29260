"""The notebooks of the page: which cells only have recorded outputs there, and that these are recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from labengine.live_page.recorded_cells import REASONS, code_digest
from tools.site import lite_notebooks
from tools.site.cell_needs import cell_needs
from tools.site.lite_notebooks import NOTEBOOKS, changed, in_page, recorded_outputs, shown_outputs, twin_of
from tools.site.notebook_runs import has_weights

NEEDS = {
    "00_why_blocks": {"smollm2": 5, "plotly": 1},
    "01_first_light": {"torch": 1},
    "02_paged_attention_by_hand": {"smollm2": 1, "torch": 14},
    "03_continuous_batching": {"plotly": 1, "smollm2": 1},
    "04_prefix_caching": {"smollm2": 1},
    "06_the_off_by_one_that_was_none": {"smollm2": 1},
    "08_two_phase_allocation": {"gemma3-270m": 1},
    "09_corruption_or_rounding": {"torch": 6},
    "10_reading_a_run": {"pandas": 1},
    "14_guessing_ahead": {"smollm2": 1},
}
"""How many cells need what; a notebook that is not here runs as it is."""


def needs_of(path: Path) -> dict[str, str]:
    return cell_needs(changed(path), twin_of(path).needs)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_each_notebook_says_what_the_page_can_do_with_it(path: Path) -> None:
    needs = needs_of(path)
    assert {need: [*needs.values()].count(need) for need in {*needs.values()}} == NEEDS.get(path.stem, {})
    assert {*needs.values()} <= REASONS.keys()
    cells = in_page(changed(path), needs, {})
    original = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["id"] for cell in cells] == [cell["id"] for cell in original]
    note = cells[0]["source"].partition("> **In this page**")[2].partition("\n")[0]
    assert note and ("%%needs" in note) == bool(needs)
    assert ("(98 MB, once)" in note) == (path.stem[:2] in {"00", "01", "02", "03", "04", "06", "14"})
    assert (lite_notebooks.SIMULATED in note) == (path.stem[:2] in {"00", "01", "02"})


@pytest.mark.parametrize("path", [*filter(has_weights, sorted(NOTEBOOKS.glob("*.ipynb")))], ids=lambda path: path.stem)
def test_what_a_cell_shows_that_needs_something_is_recorded(path: Path) -> None:
    needs, outputs = needs_of(path), recorded_outputs(path)
    cells = {cell["id"]: cell for cell in in_page(changed(path), needs, outputs)}
    silent = [name for name in needs if not outputs[name]]
    assert silent == (["kernel"] if path.stem.startswith("02") else []), "the others print or draw"
    for name in needs:
        assert cells[name]["source"].startswith(f"%%needs {needs[name]}\n") and cells[name]["outputs"] == outputs[name]


def test_the_outputs_are_found_by_the_code_below_the_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(NOTEBOOKS / "pictures", tmp_path / "notebooks" / "pictures")
    shutil.copy(NOTEBOOKS / "00_why_blocks.ipynb", tmp_path / "notebooks")
    monkeypatch.setattr(lite_notebooks, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(lite_notebooks, "run_of", lambda path: None)
    assert lite_notebooks.write(tmp_path / "without a run") == {}
    monkeypatch.undo()
    monkeypatch.setattr(lite_notebooks, "NOTEBOOKS", tmp_path / "notebooks")
    recorded = lite_notebooks.write(tmp_path / "page")
    cells = json.loads((tmp_path / "page" / "00_why_blocks.ipynb").read_text(encoding="utf-8"))["cells"]
    [chart] = [cell for cell in cells if cell["id"] == "chart"]
    assert recorded[code_digest(chart["source"].partition("\n")[2])] == chart["outputs"]
    assert chart["outputs"][0]["data"]["image/svg+xml"].startswith("<svg") and len(recorded) == 6


def test_a_view_is_shown_as_its_picture() -> None:
    picture: dict[str, Any] = {"kind": "image/svg+xml", "data": "<svg/>", "text": "step 1"}
    view: dict[str, Any] = {"kind": "view", "view": "x", "at": [3]}
    assert [one["data"] for one in shown_outputs([picture, view])] == [{"image/svg+xml": "<svg/>"}]
    assert shown_outputs([view])[0]["data"]["text/plain"] == lite_notebooks.PLAYED


@pytest.mark.parametrize(("cell_id", "said"), [("start", "cell 'start' has changed"), ("table", "has no cell 'table'")])
def test_a_change_that_lost_its_place_is_refused(cell_id: str, said: str, tmp_path: Path) -> None:
    notebook = json.loads((NOTEBOOKS / "02_paged_attention_by_hand.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["id"] == cell_id:
            cell.update({"source": "import math"} if cell_id == "start" else {"id": "moved"})
    path = tmp_path / "02_paged_attention_by_hand.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(LookupError, match=said):
        changed(path)
