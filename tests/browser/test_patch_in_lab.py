"""%lab seam and %%lab patch in JupyterLab: a bug's method opens in a cell, is mended there, and the run is clean."""

from __future__ import annotations

from browser.lab_page import LabPage
from browser.open_view import OpenComparison

MENDED = """%%lab patch num_missing_blocks
def num_missing_blocks(self, request, num_tokens):
    return -(-num_tokens // self.block_size) - len(request.block_tables[self.index])
"""


def test_71_is_patched_back_in_a_cell_and_is_clean(lab_page: LabPage) -> None:
    lab_page.open_cells("%load_ext labengine", "%lab bug nano-vllm-71", "%lab seam num_missing_blocks")
    for index in range(3):
        lab_page.run_cell(index)
    assert lab_page.errors() == []
    opened = lab_page.sources()[3]
    assert opened.startswith(
        "%%lab patch AppendsWhenFull.num_missing_blocks\ndef num_missing_blocks(self, request: Request"
    )
    index = lab_page.add_cell(MENDED)
    outputs = lab_page.run_cell(index)
    assert lab_page.errors() == []
    text = str(outputs)
    assert "as it was: " in text and "with your num_missing_blocks: no violation" in text
    view = OpenComparison(lab_page, index)
    assert int(view.data("position")) >= int(view.data("differsAt")), "not before the first difference"
    assert "is broken" in view.words, "it opens at the sentence that names the rule"
    view.screenshot("patch-71")
