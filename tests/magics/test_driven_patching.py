"""%lab seams, %lab seam and %%lab patch on a driven engine: its own methods, edited in a cell."""

from __future__ import annotations

import pytest

from magic_notebook import Notebook
from stub_python import stub_python

HEAD = "\n".join(
    (
        "def free_blocks(self, ordered_blocks):",
        "    for block in ordered_blocks:",
        "        block.ref_cnt -= 1",
        "        if not block.ref_cnt:",
        "            self.free_block_queue.prepend_n([block])",
        "",
    )
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return stub_python(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def driving(notebook: Notebook, python: str) -> Notebook:
    """A lab on the fake engine, whose two requests have finished."""
    notebook.value(f"%lab drive vllm --python {python} --blocks 12 --block-size 4")
    notebook.printed("%%prompt --copies 2 --max-tokens 4\nOnce upon a time there was a block that waited\n")
    notebook.printed("%lab run --wait")
    return notebook


def test_methods_are_listed_opened_and_replaced(driving: Notebook) -> None:
    [line] = driving.printed("%lab seams pool.free").splitlines()
    assert line.startswith("FakePool.free_blocks  A block without a reference joins the free queue")
    assert "[vllm/fake.py, line " in line
    assert "FakeManager.hit  decides no event by itself  [" in driving.printed("%lab seams FakeManager.hit")
    assert "did you mean FakeManager.hit" in driving.refused("%lab seams FakeManager.hits")

    assert "FakePool.free_blocks is in the cell below, from " in driving.printed("%lab seam free_blocks")
    cell = driving.shell.rl_next_input
    assert cell.startswith("%%lab patch FakePool.free_blocks\ndef free_blocks(self, ordered_blocks: ")
    assert "No difference, event by event. Whether free_blocks was called is unknown." in driving.printed(cell)

    printed = driving.printed(f"%%lab patch free_blocks\n{HEAD}")
    assert "2 requests and 4 steps, run again with your FakePool.free_blocks instead of the one of vllm 0.0." in printed
    assert "First difference: step 4, update." in printed and "+ FakePool.free_blocks: A frees #" in printed

    own_touch = "def touch(self, blocks):\n    raise ValueError('no')\n"
    printed = driving.printed(f"%%lab patch touch --on-top\n{own_touch}")
    assert "with your touch: step 1 failed in FakePool.touch: ValueError: no; %lab goto crash shows" in printed
    [patches] = [one.session.model.driven.patches for one in [driving.shell.user_ns["comparison"].right]]
    assert [patch.method for patch in patches] == ["FakePool.free_blocks", "FakePool.touch"]


def test_a_cell_that_cannot_replace_the_method_is_refused(driving: Notebook) -> None:
    assert "line 3: " in driving.refused("%%lab patch free_blocks\ndef free_blocks(self):\n    x = = 1\n")
    assert "the text defines no function touch" in driving.refused("%%lab patch touch\ndef tuch(self): pass\n")
    assert "'tuch' is no method: name one as " in driving.refused("%%lab patch tuch\ndef tuch(self): pass\n")
