"""A notebook that was saved and is opened again without its kernel shows the pictures, and no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage

pytestmark = pytest.mark.browser

LAB = """import labengine
lab = labengine.Lab("simulated", num_blocks=12, block_size=4)
lab.add(token_ids=list(range(14)), max_tokens=8)
lab.step()"""
SHOWN = ("lab", "lab.view('tables')", "labengine.bug('nano-vllm-219').compare()")
WORDS = "Run the cell to make it live."


def newest(server: JupyterServer) -> Path:
    return max(server.root_dir.glob("*.ipynb"), key=lambda each: each.stat().st_mtime)


def wait_live(lab: LabPage, cell: int) -> None:
    """Wait until a cell shows its live view, and the picture has given way."""
    lab.cell(cell).locator(".labengine").wait_for()
    picture = lab.cell(cell).locator("[data-labengine-picture]")
    lab.wait_for("the picture to give way", lambda: not picture.is_visible())


@pytest.mark.journey
def test_a_saved_notebook_shows_pictures_where_no_kernel_makes_them_live(
    lab_page: LabPage, jupyter_server: JupyterServer, tmp_path: Path
) -> None:
    lab_page.open_cells(LAB, *SHOWN)
    lab_page.run_all()
    assert lab_page.errors() == []
    cells = range(1, 1 + len(SHOWN))
    for cell in cells:
        wait_live(lab_page, cell)
    lab_page.command("docmanager:save")
    saved = newest(jupyter_server)
    kept = tmp_path / "kept.ipynb"
    kept.write_bytes(saved.read_bytes())

    lab_page.open(kept)
    for cell in cells:  # Jupyter's own words, behind the picture, come once it has asked the new kernel
        lab_page.cell(cell).locator(".jp-OutputArea", has_text="model not found").wait_for()
        picture = lab_page.cell(cell).locator("[data-labengine-picture] img")
        picture.scroll_into_view_if_needed()
        lab_page.wait_for("the picture", picture.is_visible)
        is_drawn = lambda one=picture: one.evaluate("(one) => one.complete && one.naturalWidth > 100")  # noqa: E731
        lab_page.wait_for("the whole picture", is_drawn)
        text = lab_page.cell(cell).locator(".jp-OutputArea").inner_text()
        assert WORDS in text and "model not found" not in text
    lab_page.screenshot("reopened")
    lab_page.watch.forget()  # the widgets' own word on the console: their models are gone

    lab_page.run_cell(0)
    lab_page.run_cell(1)
    lab_page.wait_for(
        "a live view alone", lambda: not lab_page.cell(1).locator("[data-labengine-picture]").is_visible()
    )
    lab_page.watch.forget()
