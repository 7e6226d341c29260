"""#219 in JupyterLab, by keyboard: cells of blocks never move, and each event has a picture."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenComparison, OpenView, shown

FOCUSED = "() => document.activeElement.className"
PLACES = """(root) => {
  const origin = root.getBoundingClientRect(), places = {};
  const note = (name, element) => {
    const { x, y, width, height } = element.getBoundingClientRect();
    places[name] = [x - origin.x, y - origin.y, width, height].map(Math.round).join(" ");
  };
  note("frame", root);
  root.querySelectorAll(".le-panel, canvas").forEach((each, i) => note(`${i} ${each.className}`, each));
  for (const each of root.querySelectorAll("[data-anchor^='row:']"))
    note(`${each.closest("[data-side]").dataset.side} ${each.dataset.anchor}`, each);
  places.page = String(document.scrollingElement.scrollHeight);
  return places;
}"""


@pytest.fixture(scope="module")
def extended(notebook: LabPage) -> LabPage:
    """With the magics."""
    notebook.execute("%load_ext labengine")
    return notebook


@pytest.fixture
def compared(extended: LabPage) -> OpenComparison:
    """Both sides of #219, side by side, at the first guided sentence."""
    view = OpenComparison(extended, extended.execute("%lab bug nano-vllm-219"))
    assert extended.errors() == []
    return view


def test_it_is_shown_by_keyboard_alone_from_the_cell_to_the_end(extended: LabPage) -> None:
    """No mouse, and no help from Python: by keys the cell is run, entered, read, asked why, and left again."""
    page, keys = extended.page, extended.page.keyboard
    cell = extended.add_cell("%lab bug nano-vllm-219")
    extended.select(cell)
    keys.press("Escape")
    keys.press("Control+Enter")
    root = extended.cell(cell).locator(".labengine")
    extended.wait_for("the widget", lambda: root.count() == 1 and root.get_attribute("data-used"))
    for _ in range(6):
        if "labengine" in page.evaluate(FOCUSED).split():
            break
        keys.press("Tab")
    assert "labengine" in page.evaluate(FOCUSED).split(), "Tab leads from the cell into the widget"
    outline = root.evaluate("(root) => getComputedStyle(root).outlineStyle")
    assert outline == "solid", "and one sees that it does"
    view = OpenComparison(extended, cell)
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
    extended.wait_for("why the two part", lambda: why.count() == 1 and len(why.inner_text()) > 20)
    keys.press("?")
    assert view.root.locator(".le-keys").is_visible()
    keys.press("Escape")
    keys.press("b")
    view.until("stop", str(len(sentences) - 2))
    assert extended.errors() == []


@pytest.mark.sweep
def test_cells_never_move_within_a_step(compared: OpenComparison) -> None:
    view = compared
    view.press("End", "Home")
    at_first, end = view.root.evaluate(PLACES), int(view.data("end"))
    assert sum(name.startswith(("0 row:", "1 row:")) for name in at_first) >= 16, "four entries a request and side"
    seen = [view.data("position")]
    while int(view.data("position")) < end:
        view.press("ArrowRight")
        assert view.root.evaluate(PLACES) == at_first, f"at {view.data('position')}: {view.data('sentence')}"
        seen.append(view.data("position"))
    assert len(seen) > 15 and (view.data("used"), view.data("lost")) == ("8 5", "3 0")


@pytest.mark.sweep
def test_the_dashboards_cells_never_move_either(extended: LabPage) -> None:
    view = shown(extended, "comparison.left.show()")
    view.press("End", "Home")
    at_first, end = view.root.evaluate(PLACES), view.data("end")
    while view.data("moment") != end:
        view.press("ArrowRight")
        assert view.root.evaluate(PLACES) == at_first, f"at {view.data('moment')}: {view.data('sentence')}"
    assert (view.data("used"), view.data("lost")) == ("8", "3")


@pytest.mark.sweep
def test_each_event_of_its_step_is_kept_as_a_picture(compared: OpenComparison, artifacts: Path) -> None:
    view, folder = compared, artifacts / "219"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    view.press("End", "Home")
    view.page.wait_for_timeout(300)
    first = int(view.data("position"))
    pictures, sentences = [keep(view, folder, 0)], [view.words]
    while int(view.data("position")) < int(view.data("end")):
        view.press("ArrowRight")
        pictures.append(keep(view, folder, len(pictures)))
        sentences.append(view.words)
    assert len(pictures) == int(view.data("end")) - first + 1 > 15
    assert len({path.read_bytes() for path in pictures}) == len(pictures), "every event is seen"
    (folder / "sentences.txt").write_text("\n".join(f"{i:02} {text}" for i, text in enumerate(sentences)) + "\n")
    assert any("overwrites" in text for text in sentences) and all(sentences)


def keep(view: OpenView, folder: Path, number: int) -> Path:
    path = folder / f"{number:02}.png"
    view.root.screenshot(path=path)
    return path
