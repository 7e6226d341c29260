"""A walk through JupyterLab: why?, one selection in all views, and back: by key, by rewind, another way by fork."""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenView, printed, shown

START = "%load_ext labengine\n%lab start --model simulated --blocks 12 --block-size 4"
STEP = """
for _ in range(2):
    lab.add(token_ids=list(range(14)), max_tokens=8)
lab.step()
"""


@pytest.mark.journey
def test_a_count_leads_to_its_events_and_the_engine_back_and_another_way(notebook: LabPage) -> None:
    view = shown(notebook, START)
    notebook.execute(STEP)
    view.go_to_end()
    _links_of_a_ref_count_lead_to_their_events(view)
    _a_choice_in_one_widget_marks_the_other(view)
    _keys_lead_back_and_forth(view)
    notebook.execute("%lab rewind 1")
    view.until("step", "1")
    assert printed(notebook, "lab.snapshot().step, lab.check()") == "1 []"
    notebook.execute("%lab rewind 3")
    view.until("step", "3")
    forked = OpenView(notebook, notebook.execute("%lab fork 0 --edition nano-vllm"))
    forked.until("step", "0")
    notebook.execute("fork.step()")
    forked.go_to_end("fork")
    assert (forked.data("used"), forked.data("lost"), forked.data("step")) == ("8", "3", "1")
    assert (view.data("step"), view.data("lost")) == ("3", "0"), "the first lab is as it was"
    assert notebook.errors() == []


def _links_of_a_ref_count_lead_to_their_events(view: OpenView) -> None:
    view.click_block(0, on_count=True)
    drawer = view.root.locator(".le-why")
    view.page.wait_for_function("() => document.querySelectorAll('.le-why-link').length === 2")
    assert drawer.locator(".le-why-question").inner_text() == "Why is #0's ref count 2?"
    assert drawer.locator(".le-why-change").all_inner_texts() == ["+1", "+1"]
    assert "LateMerge.merge_target" in drawer.locator(".le-why-seam").all_inner_texts()[-1], "which decision it was"
    view.screenshot("why-ref-count")
    drawer.locator(".le-why-link").nth(1).click()
    view.until("moment", "25")
    assert view.data("sentence").startswith("B's #4 is merged into the equal #0")
    assert drawer.locator(".le-why-link").nth(1).get_attribute("aria-current") == "true"
    view.notebook.wait_for("Python to hear of it", lambda: printed(view.notebook, "lab.moment") == "25")


def _a_choice_in_one_widget_marks_the_other(view: OpenView) -> None:
    notebook = view.notebook
    tables = shown(notebook, "lab.view('tables', 'map')")
    tables.root.locator("[data-request='1']").first.click()
    selected = "lab.selection and (lab.selection.kind, lab.selection.id)"
    notebook.wait_for("Python to hear of it", lambda: printed(notebook, selected) == "('request', 1)")
    view.root.scroll_into_view_if_needed()
    marked = view.root.locator(".le-tables-panel [data-request='1'].le-selected")
    notebook.wait_for("the mark in the dashboard", lambda: marked.count() > 0)


def _keys_lead_back_and_forth(view: OpenView) -> None:
    view.notebook.execute("lab.step(2)")
    view.go_to_end()
    end = view.data("moment")
    view.press("ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight")
    assert view.data("moment") == end
    for key, label in (("PageUp", "2"), ("PageUp", "1"), ("PageDown", "2"), ("Home", "1"), ("Home", "0")):
        view.press(key)
        assert view.root.locator(".le-step-count").inner_text() == f"step {label} of 3"
