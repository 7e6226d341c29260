"""A widget below a cell: its data attributes, keys, tabs and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Locator

from browser.frames import FRAME, painted_data, press
from browser.lab_page import LabPage

PLAY_FAST = "(root) => { root.stage.player.speed = 50; }"
HAS_CAPTIONS = "({ stage: { track } }) => track.isCurrent && track.lastCaption > 0"
"""They come after the recordings, and say where the view begins."""

INK = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), shades = new Set();
  for (let i = 0; i < data.length; i += 4)
    if (data[i + 3]) shades.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  return shades.size;
}"""


class OpenView:
    """The root of the `which`-th widget below a cell, scrolled to: out of sight it paints nothing."""

    def __init__(self, notebook: LabPage, cell: int, which: int = 0) -> None:
        self.notebook, self.page = notebook, notebook.page
        self.root: Locator = notebook.cell(cell).locator(".labengine").nth(which)
        notebook.wait_for("the widget", lambda: self.data("used"))

    def data(self, name: str) -> str:
        """What the root's data attribute says, after the next paint."""
        return str(painted_data(self.root, name) or "")

    def until(self, name: str, value: str) -> None:
        """Wait for a data attribute."""
        self.notebook.wait_for(f"{name} {value!r}", lambda: self.data(name) == value)

    def go_to_end(self, lab: str = "lab") -> None:
        """Go to the newest moment that the kernel's lab of this name has, once it has come: later news are played."""
        end = printed(self.notebook, f"{lab}.timeline.end")
        self.until("end", end)
        self.press("End")
        self.until("moment", end)

    def press(self, *keys: str) -> None:
        """Press keys with the widget focused."""
        self.root.scroll_into_view_if_needed()
        press(self.root, *keys)

    def open_tab(self, name: str) -> Locator:
        """Open a view of the drawer, if it is not open yet; returns the drawer."""
        tab = self.root.get_by_role("tab", name=name, exact=True)
        if tab.get_attribute("aria-selected") != "true":
            tab.click()
        self.page.evaluate(FRAME)
        return self.root.locator(".le-drawer:not(.le-is-shut)").first

    def shades(self, canvas: str) -> int:
        """How many colours a canvas shows, the most colourful of several: 0 where nothing is drawn."""
        return max(int(one.evaluate(INK)) for one in self.root.locator(canvas).all())

    def click_block(self, block_id: int, *, on_count: bool = False) -> None:
        """Click a cell of the pool, or the ref count in its corner; pools of 12 in rows of 4, of 32 in rows of 8."""
        canvas = self.root.locator("canvas.le-pool")
        box = canvas.bounding_box()
        assert box is not None
        columns, rows = {12: (4, 3), 32: (8, 4)}[self.num_blocks]
        width, height = min(152.0, box["width"] / columns), min(126.0, box["height"] / rows)
        x, y = (block_id % columns) * width, (block_id // columns) * height
        x, y = (x + width - 14, y + 14) if on_count else (x + width / 2, y + height / 2)
        canvas.click(position={"x": x, "y": y})
        self.page.evaluate(FRAME)

    @property
    def num_blocks(self) -> int:
        label = self.root.locator("canvas.le-pool").get_attribute("aria-label") or ""
        return int(label.partition(" of ")[2].partition(" ")[0])

    def screenshot(self, name: str, of: str | None = None) -> Path:
        """The widget, or a part of it, as a picture in .artifacts."""
        return self.notebook.screenshot(name, self.root.locator(of).first if of else self.root)


class OpenComparison(OpenView):
    """Two labs side by side, at least one caption long."""

    def __init__(self, notebook: LabPage, cell: int, which: int = 0) -> None:
        super().__init__(notebook, cell, which)
        notebook.wait_for("the captions of both sides", lambda: self.root.evaluate(HAS_CAPTIONS))

    @property
    def words(self) -> str:
        """What is said of the moment: one sentence, or one of either side."""
        return self.data("sentence") or f"{self.data('left')} | {self.data('right')}"

    def next_stop(self) -> str:
        """On to the next guided sentence, by keyboard, and played fast; the sentence."""
        wanted = str(int(self.data("stop")) + 1)
        self.root.evaluate(PLAY_FAST)
        self.press("n")
        self.until("stop", wanted)
        self.until("playing", "false")
        return self.root.locator(".le-guide-words").text_content() or ""


def shown(notebook: LabPage, source: str, which: int = 0) -> OpenView:
    """Run a cell that shows a widget."""
    view = OpenView(notebook, notebook.execute(source), which)
    assert notebook.errors() == []
    return view


def printed(notebook: LabPage, expression: str) -> Any:
    """What an expression prints in the kernel."""
    return notebook.text(notebook.execute(f"print({expression})")).strip()
