"""A developer of vLLM in JupyterLab: two prompts, steps, Why?, a patch, the first difference, the script.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest -m "" tests/browser/test_drive_in_lab.py
"""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenComparison, OpenView
from differential.vllm_process import VARIABLE, VERSION, named_interpreter

PROMPTS = (
    "%%prompt --max-tokens 2\nOnce upon a time there was a block that waited",
    "%%prompt --max-tokens 6\nOnce upon a time there was a block that left",
)
METHOD = "BlockPool.free_blocks"
ORIGINAL, FAULTY = "block.ref_cnt -= 1", "block.ref_cnt = 0"
SCRIPT = "script = comparison.to_test()\nopen('test_free_blocks.py', 'w').write(script)\nprint(script)"


@pytest.mark.journey
@pytest.mark.timeout(900)
def test_a_method_of_vllm_is_patched_and_becomes_a_red_script(lab_page: LabPage) -> None:
    if (python := named_interpreter()) is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}")
    lab_page.open_cells(
        "%load_ext labengine",
        f"%lab drive vllm --python {python} --blocks 16 --block-size 4",
        *PROMPTS,
        "%lab step",
        "%lab step",
        "%lab why request B",
        f"%lab seam {METHOD}",
    )
    for index in range(8):
        lab_page.run_cell(index)
    assert lab_page.errors() == []
    dashboard = OpenView(lab_page, 1)
    assert int(dashboard.data("moment")) > 0
    _photograph(lab_page, 1, 6)
    assert "vllm/v1/core/" in lab_page.text(6)
    opened = lab_page.sources()[8]
    assert opened.startswith(f"%%lab patch {METHOD}\ndef free_blocks(self") and opened.count(ORIGINAL) == 1
    patched = lab_page.execute(opened.replace(ORIGINAL, FAULTY))
    assert lab_page.errors() == []
    comparison = OpenComparison(lab_page, patched)
    assert int(comparison.data("position")) >= int(comparison.data("differsAt")), "not before the first difference"
    _photograph(lab_page, patched)
    script = lab_page.execute(SCRIPT)
    run = lab_page.execute(f"!{python} test_free_blocks.py; echo status $?")
    assert lab_page.errors() == []
    lab_page.screenshot("drive-script")
    assert "fails here: SYMPTOM: block" in lab_page.text(script)
    assert "SYMPTOM" in lab_page.text(run) and "status 1" in lab_page.text(run)


def _photograph(lab_page: LabPage, *cells: int) -> None:
    """Keep pictures of cells in both themes, wide and narrow; leave the page dark and wide."""
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        lab_page.set_theme(theme)
        for width in (390, 1024, 1440):
            lab_page.page.set_viewport_size({"width": width, "height": 1000})
            for index in cells:
                lab_page.cell(index).scroll_into_view_if_needed()
                lab_page.screenshot(f"drive-{theme[11:]}-{width}-{index}")
