"""The charts in a real JupyterLab: alive while the lab runs, and in the theme's own ink, also when it changes."""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage

MAKE = """
from labengine import Lab
from labengine_widgets.pictures.charts import charts
lab = Lab("simulated", num_blocks=24, block_size=4, max_num_seqs=4)
figure = charts(lab.view_source())
figure
"""
RUN = """
for first in (1, 1, 40):
    lab.add(token_ids=list(range(first, first + 14)), max_tokens=12)
lab.run()
"""
INK = """() => getComputedStyle(document.querySelector(".labengine-plot .gtitle")).fill"""
IS_AS_WIDE_AS_ITS_CELL = """() => {
  const cell = document.querySelector(".labengine-plot"),
    [outer, inner] = [cell, cell.querySelector(".main-svg")].map((one) => one.getBoundingClientRect().width);
  return Math.abs(outer - inner) < 30;
}"""
PATH = """() => document.querySelector(".labengine-plot .scatterlayer .js-line")?.getAttribute("d")?.length || 0"""


@pytest.mark.sweep
def test_charts_live_and_follow_the_theme(lab_page: LabPage) -> None:
    lab_page.open_cells(MAKE, RUN)
    lab_page.run_cell(0)
    lab_page.page.wait_for_selector(".labengine-plot .gtitle")
    before = lab_page.page.evaluate(PATH)
    lab_page.run_cell(1)
    lab_page.wait_for("the lines to grow", lambda: lab_page.page.evaluate(PATH) > before + 40)
    lab_page.page.wait_for_function(IS_AS_WIDE_AS_ITS_CELL)
    saved = lab_page.page.locator('[data-labengine-picture="plot"]')
    assert saved.count() == 1
    lab_page.wait_for("the picture for a saved notebook to hide behind the figure", saved.is_hidden)
    light = lab_page.page.evaluate(INK)
    lab_page.screenshot("charts_light", lab_page.page.locator(".labengine-plot"))
    lab_page.set_theme("JupyterLab Dark")
    lab_page.wait_for("another ink", lambda: lab_page.page.evaluate(INK) != light)
    lab_page.screenshot("charts_dark", lab_page.page.locator(".labengine-plot"))
    lab_page.set_theme("JupyterLab Light")
    assert lab_page.errors() == []
