"""Why? and the selection in JupyterLab: a click on a ref count, a chain of links, one selection in all views."""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenView, printed, shown

MAKE = """
lab = labengine.Lab("simulated", num_blocks=12, block_size=4)
for _ in range(2):
    lab.add(token_ids=list(range(14)), max_tokens=8)
lab.step()
lab.show()
"""
NUM_SELECTS = "({ stage }) => stage.inbox.heard.num_selects"


@pytest.fixture(scope="module")
def dashboard(notebook: LabPage) -> OpenView:
    """Two equal prompts after one step: #0 to #2 are shared."""
    view = shown(notebook, MAKE)
    view.press("End")
    view.until("used", "5")
    return view


@pytest.fixture
def at_the_end(dashboard: OpenView) -> OpenView:
    """The dashboard at the newest moment, nothing selected."""
    notebook = dashboard.notebook
    notebook.execute("lab.selection = None")
    num_selects = printed(notebook, "lab.feed.shown.num_selects")
    notebook.wait_for("the view to hear of it", lambda: str(dashboard.root.evaluate(NUM_SELECTS)) == num_selects)
    dashboard.press("End")
    dashboard.until("used", "5")
    return dashboard


def selected(notebook: LabPage) -> str:
    return str(printed(notebook, "lab.selection and (lab.selection.kind, lab.selection.id)"))


def wait_selected(notebook: LabPage, wanted: str) -> None:
    """The browser sends it a moment later."""
    notebook.wait_for(f"the selection {wanted}", lambda: selected(notebook) == wanted)


@pytest.mark.journey
def test_a_click_on_a_ref_count_shows_the_chain_and_its_links_lead_there(at_the_end: OpenView) -> None:
    view = at_the_end
    view.click_block(0, on_count=True)
    drawer = view.root.locator(".le-why")
    view.page.wait_for_function("() => document.querySelectorAll('.le-why-link').length === 2")
    assert drawer.locator(".le-why-question").inner_text() == "Why is #0's ref count 2?"
    assert drawer.locator(".le-why-answer").inner_text().startswith("2 table entries point to #0")
    assert drawer.locator(".le-why-change").all_inner_texts() == ["+1", "+1"]
    seams = drawer.locator(".le-why-seam").all_inner_texts()
    assert "LateMerge.merge_target" in seams[-1], "each link says which decision of the code it was"
    view.screenshot("why-ref-count")
    drawer.locator(".le-why-link").nth(1).click()
    view.until("moment", "25")
    assert view.data("sentence").startswith("B's #4 is merged into the equal #0")
    assert drawer.locator(".le-why-link").nth(1).get_attribute("aria-current") == "true"
    drawer.locator(".le-why-link").first.click()
    view.until("moment", "6")
    assert "from the free queue, for A's table[0]" in view.data("sentence")
    view.notebook.wait_for("Python to hear of it", lambda: printed(view.notebook, "lab.moment") == "6")


def test_the_questions_go_by_keyboard(at_the_end: OpenView) -> None:
    view = at_the_end
    view.open_tab("Log")
    view.root.locator("canvas.le-pool").focus()
    view.page.keyboard.press("ArrowRight")
    view.page.keyboard.press("Enter")
    view.press("w")
    question = view.root.locator(".le-why-question")
    view.notebook.wait_for("an answer", lambda: question.inner_text() == "Why is #1's ref count 2?")
    view.root.locator(".le-why-link").first.focus()
    view.page.keyboard.press("ArrowDown")
    view.page.keyboard.press("Enter")
    view.notebook.wait_for("the merge of #1", lambda: "merged into the equal #1" in view.data("sentence"))


def test_python_asks_the_same(at_the_end: OpenView) -> None:
    printed_answer = printed(at_the_end.notebook, "lab.why(block=0)")
    assert printed_answer.startswith("Why is #0's ref count 2?") and "LateMerge.merge_target" in printed_answer


def test_a_choice_in_one_widget_marks_every_other_of_the_lab(at_the_end: OpenView) -> None:
    first, notebook = at_the_end, at_the_end.notebook
    second = shown(notebook, "lab.view('tables', 'map')")
    second.until("step", "1")
    second.root.locator(".le-map-panel [data-hash]").first.click()
    marked = first.root.locator(".le-map-panel .le-selected")
    first.root.scroll_into_view_if_needed()
    notebook.wait_for("the mark in the dashboard", lambda: marked.count() > 0)
    first.click_block(3)
    wait_selected(notebook, "('block', 3)")
    second.root.scroll_into_view_if_needed()
    notebook.wait_for(
        "the mark in the tables",
        lambda: second.root.locator(".le-tables-panel [data-block='3'].le-selected").count() > 0,
    )
    second.root.locator("[data-request='1']").first.click()
    wait_selected(notebook, "('request', 1)")
    second.press("Escape")
    wait_selected(notebook, "None")


def test_python_chooses_and_every_widget_shows_it(at_the_end: OpenView) -> None:
    view, notebook = at_the_end, at_the_end.notebook
    view.open_tab("Log")
    for choice, selector in (
        ('("block", 7)', ".le-tables-panel [data-block='7'].le-selected"),
        ('("request", 0)', ".le-tables-panel [data-request='0'].le-selected"),
        ('("event", 24)', ".le-log [data-event='24'].le-selected"),
    ):
        notebook.execute(f"lab.selection = {choice}")
        notebook.wait_for(choice, lambda: view.root.locator(selector).count() > 0)  # noqa: B023
    notebook.execute("lab.selection = None")
    notebook.wait_for("nothing chosen", lambda: view.root.locator(".le-selected").count() == 0)
    cell = notebook.execute("try:\n    lab.selection = ('blok', 3)\nexcept ValueError as error:\n    print(error)")
    assert "blok" in notebook.text(cell)
    assert notebook.errors() == []
