"""#219 in JupyterLab, by keyboard."""

from __future__ import annotations

from browser.lab_page import LabPage
from browser.open_view import OpenComparison

FOCUSED = "() => document.activeElement.className"


def test_it_is_shown_by_keyboard_alone_from_the_cell_to_the_end(notebook: LabPage) -> None:
    """No mouse, and no help from Python: by keys the cell is run, entered, read, asked why, and left again."""
    notebook.execute("%load_ext labengine")
    page, keys = notebook.page, notebook.page.keyboard
    cell = notebook.add_cell("%lab bug nano-vllm-219")
    notebook.select(cell)
    keys.press("Escape")
    keys.press("Control+Enter")
    root = notebook.cell(cell).locator(".labengine")
    notebook.wait_for("the widget", lambda: root.count() == 1 and root.get_attribute("data-used"))
    for _ in range(6):
        if "labengine" in page.evaluate(FOCUSED).split():
            break
        keys.press("Tab")
    assert "labengine" in page.evaluate(FOCUSED).split(), "Tab leads from the cell into the widget"
    outline = root.evaluate("(root) => getComputedStyle(root).outlineStyle")
    assert outline == "solid", "and one sees that it does"
    view = OpenComparison(notebook, cell)
    sentences = [view.root.locator(".le-guide-words").inner_text()]
    while "28 tokens" not in sentences[-1]:
        wanted = str(int(view.data("stop")) + 1)
        keys.press("n")
        view.until("stop", wanted)
        view.until("playing", "false")
        sentences.append(view.root.locator(".le-guide-words").inner_text())
    assert (view.data("used"), view.data("lost"), view.data("peak")) == ("8 5", "3 0", "8 8")
    assert "takes the entry" in " ".join(sentences)
    view.screenshot("219-by-keyboard")
    keys.press("w")
    why = view.root.locator(".le-why-answer:visible")
    notebook.wait_for("why the two part", lambda: why.count() == 1 and len(why.inner_text()) > 20)
    keys.press("?")
    assert view.root.locator(".le-keys").is_visible()
    keys.press("Escape")
    keys.press("b")
    view.until("stop", str(len(sentences) - 2))
    assert notebook.errors() == []
