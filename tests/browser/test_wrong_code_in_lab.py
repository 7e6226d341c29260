"""A part that contradicts its events, in JupyterLab: counted in red, described, marked; and a crash inspected."""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenView, printed, shown
from browser.screenshots import ARE_KEPT

MAKE = """
from labengine import Lab, Parts
from labengine.core.block_pool import BlockPool

class WrongTouch(BlockPool):
    def touch(self, block_ids):
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1

lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=WrongTouch))
lab.show()
"""
FIRST = "lab.add(token_ids=list(range(1, 10)), max_tokens=1)\nlab.step()"
WRONG = """
lab.add(token_ids=list(range(1, 10)), max_tokens=6)
lab.add(token_ids=list(range(50, 62)), max_tokens=6)
lab.step(2)
"""
RED = "rgb(198, 40, 40)"
BACKGROUND = "(one) => getComputedStyle(one).backgroundColor"
WIDTHS = (1440, 1024, 720)
CUT = "(one) => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1"


@pytest.fixture(scope="module")
def wrong(notebook: LabPage) -> OpenView:
    """The dashboard after the step that the override has spoiled."""
    view = shown(notebook, MAKE)
    notebook.execute(FIRST)
    notebook.execute(WRONG)
    assert notebook.errors() == []
    view.go_to_end()
    assert view.data("step") == "3"
    return view


def pictures(view: OpenView, name: str) -> None:
    """At three widths of the window the alarm's text is not cut; if pictures are kept, in the dark too."""
    page, before = view.page, view.page.viewport_size
    for theme in ("Light", "Dark") if ARE_KEPT else ("Light",):
        view.notebook.set_theme(f"JupyterLab {theme}")  # type: ignore[arg-type]
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 1200})
            view.data("step")
            words = view.root.locator(".le-alarm-words")
            view.notebook.wait_for(f"the whole text at {width}", lambda words=words: not words.evaluate(CUT))  # type: ignore[misc]
            view.screenshot(f"wrong-touch-{name}-{width}-{theme.lower()}")
    page.set_viewport_size(before or {"width": 1400, "height": 1000})
    view.notebook.set_theme("JupyterLab Light")


def test_violations_are_counted_described_and_marked_and_lead_to_why(wrong: OpenView) -> None:
    view, root = wrong, wrong.root
    number = printed(view.notebook, "len(lab.violations)")
    counts = root.locator(".le-alarm-count:visible")
    assert counts.count() == 2, "in the header, and above the sentence"
    for count in counts.all():
        assert count.inner_text().split()[1] == number and count.evaluate(BACKGROUND) == RED
    words = root.locator(".le-alarm-words").inner_text()
    assert "(BlockTouched) says that block 0 left the free queue; it is still in it" in words
    assert words.endswith("(WrongTouch.touch)"), "event, class and method"
    marked = root.locator(".le-tables [data-block]", has=view.page.locator(".le-violated", has_text="said/is"))
    assert [entry.get_attribute("data-block") for entry in marked.all()] == ["0", "1"]
    assert "Rules are broken about 2 blocks." in str(root.locator("canvas.le-pool").get_attribute("aria-label"))
    pictures(view, "violations")
    counts.first.click()
    answer = root.locator(".le-why")
    view.notebook.wait_for("an answer", lambda: "WrongTouch.touch" in answer.inner_text())
    view.screenshot("wrong-touch-why")


def test_python_says_what_the_events_say_and_what_the_core_is(wrong: OpenView) -> None:
    answer = " ".join(printed(wrong.notebook, "lab.why(block=0)").split())
    assert "1 table entry points to #0" in answer, "what the events say"
    assert "But the core is not what the events say" in answer and "it is still in it, at place" in answer
    assert "WrongTouch overrides BlockPool.touch" in answer and "decided by WrongTouch.touch: #0" in answer
    assert printed(wrong.notebook, "0 in lab.snapshot().free_queue") == "True", "which is true"


def test_the_crash_is_kept_and_stood_at(wrong: OpenView) -> None:
    view, notebook = wrong, wrong.notebook
    assert "block 1 is freed twice" in " ".join(notebook.outputs(notebook.execute("lab.run()"))[-1]["traceback"])
    assert printed(notebook, "repr(lab)[:9]") == "simulated", "and what was broken is drawn"
    notebook.execute("lab.goto('crash')")
    view.until("moment", printed(notebook, "lab.crash.moment"))
    assert view.root.locator(".le-alarm-crash:visible").inner_text() == "step 7 failed"
    assert view.root.locator(".le-alarm-words").inner_text().startswith("FreedTwiceError in BlockPool.release: block 1")
    pictures(view, "crash")
    view.press("Home")
    magic = notebook.execute("%load_ext labengine\n%lab goto crash")
    assert "failed here in BlockPool.release" in notebook.text(magic)
    view.until("moment", printed(notebook, "lab.crash.moment"))
