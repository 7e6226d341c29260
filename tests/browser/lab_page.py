"""One notebook open in JupyterLab, as a person has it: run it, restart it, look at it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Locator, Page

from browser.jupyter_server import JupyterServer
from browser.notebook_files import write_notebook
from browser.page_watch import PageWatch
from browser.screenshots import keep
from waiting import wait_until

SCRIPTS = (Path(__file__).parent / "lab_scripts.js").read_text(encoding="utf-8")
LIGHT: Literal["JupyterLab Light"] = "JupyterLab Light"
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 80.0
"""Milliseconds between two looks; each pause is longer than the one before, because a look costs time itself."""

Output = dict[str, Any]


class LabPage:
    """A browser page on a notebook. Cells are counted from 0; every wait polls, and fails saying what it waited for."""

    def __init__(self, page: Page, server: JupyterServer, artifacts: Path) -> None:
        self.page = page
        self.watch = PageWatch(page, server.url)
        self._server = server
        self._artifacts = artifacts
        self.is_worn = False
        """True when the page should not serve another test."""
        self._is_loaded = False
        page.add_init_script(SCRIPTS)

    # opening

    def open(self, notebook: Path) -> None:
        """Open a copy of `notebook` instead of the open one; returns when the kernel is idle."""
        name = f"{notebook.stem}-{uuid.uuid4().hex[:8]}.ipynb"
        shutil.copy(notebook, self._server.root_dir / name)
        if not self._is_loaded:
            self.load()
        self._finish("the notebook to open", self._ask("open", name))
        self.wait_for("the splash to go", lambda: not self._ask("splash"))
        self.wait_idle()

    def load(self) -> None:
        """Load JupyterLab into the page, in a separate workspace."""
        self.page.goto(f"{self._server.url}/lab/workspaces/auto-{uuid.uuid4().hex}", wait_until="commit")
        self.wait_for("JupyterLab to load its page", lambda: self._ask("isLoaded"))
        self._is_loaded = True

    def open_cells(self, *sources: str) -> None:
        """Open a new notebook of these code cells."""
        path = self._server.base / "cells.ipynb"
        write_notebook(path, sources)
        self.open(path)

    def empty(self) -> None:
        """Close every tab and put back the theme: the page is as it was before its first notebook."""
        if not self._is_loaded:
            return
        self._finish("the tabs to close", self._ask("close"))
        if self._ask("theme") != LIGHT:
            self.set_theme(LIGHT)

    # running

    def run_all(self) -> None:
        """Run every cell and wait until the kernel is idle; errors are in `errors()`."""
        self.command("notebook:run-all-cells")
        self.wait_idle()

    def run_cell(self, index: int, *, wait: bool = True) -> list[Output]:
        """Run one cell and return its outputs; with wait=False return at once, with the outputs so far."""
        self._ask("select", index)
        job = self._ask("command", "notebook:run-cell", {})
        if wait:
            self._finish(f"cell {index} to run", job)
            self.wait_idle()
        return self.outputs(index)

    def select(self, index: int) -> None:
        """Make a cell the active one."""
        self._ask("select", index)

    def add_cell(self, source: str, kind: Literal["code", "markdown"] = "code") -> int:
        """A new last cell; returns its index."""
        index: int = self._ask("addCell", source, kind)
        return index

    def remove_cells(self, first: int) -> None:
        """Remove the cells from `first` on, with what they show; those that show a chart of plotly's stay."""
        self._ask("removeCells", first)

    def execute(self, source: str, *, wait: bool = True) -> int:
        """Run `source` in a new last cell; returns its index."""
        index = self.add_cell(source)
        self.run_cell(index, wait=wait)
        return index

    def restart(self) -> None:
        """Restart the kernel, as the menu does."""
        self.command("notebook:restart-kernel")
        self.wait_idle()

    def restart_and_run_all(self) -> None:
        """Restart the kernel and run every cell, as the menu does."""
        self.command("notebook:restart-run-all")
        self.wait_idle()

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button does."""
        self.command("notebook:interrupt-kernel")

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Run one of JupyterLab's commands and wait until it is done."""
        self._finish(name, self._ask("command", name, arguments or {}))

    def cover(self) -> None:
        """Put another tab in front of the notebook."""
        self._finish("the notebook to be covered", self._ask("cover"))

    def uncover(self) -> None:
        """Close the other tabs: the notebook is in front again."""
        self._finish("the notebook to be seen again", self._ask("uncover"))

    def kernel_status(self) -> str:
        """idle, busy, starting ... ; none without a kernel."""
        return str(self._ask("status"))

    def wait_idle(self) -> None:
        """Wait until the kernel is idle and has answered everything the page asked, clicks on widgets too."""
        self.wait_for("an idle kernel", lambda: self.kernel_status() == "idle" and not self._ask("unanswered"))

    # reading

    def sources(self) -> list[str]:
        """The cells' texts."""
        return list(self._ask("sources"))

    def execution_counts(self) -> list[int | None]:
        """Each cell's [n]; None where it has not run, or is markdown."""
        return list(self._ask("counts"))

    def outputs(self, index: int) -> list[Output]:
        """A cell's outputs as nbformat has them."""
        return list(self._ask("outputs", index))

    def text(self, index: int) -> str:
        """What a cell printed and returned, as plain text."""
        return "".join(_plain_text(output) for output in self.outputs(index))

    def errors(self) -> list[str]:
        """Every error output in the notebook: "cell 3: ValueError: ..."."""
        return [
            f"cell {index}: {output['ename']}: {output['evalue']}"
            for index, outputs in enumerate(self._ask("allOutputs"))
            for output in outputs
            if output["output_type"] == "error"
        ]

    def cell(self, index: int) -> Locator:
        """A cell on the page, input and output, to find and click things in."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def wait_for(self, what: str, holds: Callable[[], object]) -> None:
        """Poll until `holds()` is true; the error says `what`, with a picture, when it never is."""

        def failure() -> str:
            self.page.screenshot(path=self._artifacts / "timed-out.png")
            return f"{what} (picture: timed-out.png)\n{self.watch.report()}"

        pauses = chain((FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE), repeat(LONGEST_PAUSE))
        wait_until(holds, failure, between=lambda: self.page.wait_for_timeout(next(pauses)))

    # looking

    def set_theme(self, name: Literal["JupyterLab Light", "JupyterLab Dark"]) -> None:
        """Change the theme, as the settings menu does."""
        self.command("apputils:change-theme", {"theme": name})
        self.wait_for(f"the theme {name}", lambda: self._ask("theme") == name and not self._ask("splash"))

    def screenshot(self, name: str, of: Locator | None = None) -> Path:
        """Save a picture of the page, or of a part of it, as .artifacts/`name`.png, if pictures are kept; the path."""
        path = self._artifacts / f"{name}.png"
        keep(of or self.page, path)
        return path

    # asking the page

    def _js(self, script: str, *arguments: Any) -> Any:
        return self.page.evaluate(script, list(arguments))

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._js("([name, ...rest]) => window.labtest[name](...rest)", name, *arguments)

    def _finish(self, what: str, job: int) -> None:
        self.wait_for(what, lambda: self._ask("poll", job)["done"])
        error = self._ask("poll", job)["error"]
        assert error is None, f"{what} failed: {error}"


def _plain_text(output: Output) -> str:
    text = output.get("text", output.get("data", {}).get("text/plain", ""))
    return text if isinstance(text, str) else "".join(text)
