"""%lab bug in JupyterLab: the verdict, and broken beside fixed, from one guided sentence to the next by keyboard."""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenComparison


@pytest.mark.sweep
def test_219_is_shown_by_keyboard_alone(lab_page: LabPage) -> None:
    lab_page.open_cells("%load_ext labengine", "%lab bug nano-vllm-219", "comparison.step()")
    lab_page.run_cell(0)
    lab_page.run_cell(1)
    assert lab_page.errors() == []
    lab_page.cell(1).locator("b", has_text="The claim holds.").wait_for()
    view = OpenComparison(lab_page, 1)
    assert view.data("stop") == "0" and view.data("used") == "0 0"
    stops = [(view.next_stop(), view.data("used"), view.data("lost")) for _ in range(5)]
    assert [(used, lost) for _, used, lost in stops[-3:]] == [("8 8", "0 0"), ("8 7", "1 0"), ("8 5", "3 0")]
    assert "takes the entry" in stops[-2][0] and "28 tokens" in stops[-1][0]
    assert view.data("peak") == "8 8"
    view.screenshot("bug-219-after-the-step")
    view.press("ArrowLeft")
    view.until("position", "20")
    view.press("b")
    view.until("used", "8 7")
    view.press("End")
    lab_page.run_cell(2)
    view.until("step", "2 2")
    view.until("playing", "false")
    assert lab_page.errors() == []


@pytest.mark.sweep
def test_the_follow_up_is_a_button(lab_page: LabPage) -> None:
    lab_page.open_cells("%load_ext labengine", "%lab bug nano-vllm-219")
    lab_page.run_cell(0)
    lab_page.run_cell(1)
    view = OpenComparison(lab_page, 1)
    view.press("End")
    view.root.get_by_role("button", name="What does it cost later?").click()
    view.until("stop", "6")
    view.until("playing", "false")
    stops = [view.next_stop() for _ in range(3)]
    assert "finds 3 blocks" in stops[1]
    assert view.data("used") == "8 5" and view.data("step") == "4 4"
    view.screenshot("bug-219-later")
    assert lab_page.errors() == []


@pytest.mark.sweep
def test_one_column_opens_alone_at_its_first_wrong_event(lab_page: LabPage) -> None:
    lab_page.open_cells("%load_ext labengine", "%lab bug nano-vllm-219 --column nano-vllm")
    lab_page.run_cell(0)
    lab_page.run_cell(1)
    assert lab_page.errors() == []
    root = lab_page.cell(1).locator(".labengine-dashboard")
    root.scroll_into_view_if_needed()
    lab_page.wait_for("the first lost block", lambda: root.get_attribute("data-lost") == "1")
    root.press("ArrowLeft")
    lab_page.wait_for("the last state that was right", lambda: root.get_attribute("data-lost") == "0")
