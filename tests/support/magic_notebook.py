"""A notebook without a browser: cells are run in a shell, and one sees what a reader would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

from labengine.lab import Lab

START = "%lab start --model simulated --blocks 12 --block-size 4"
PROMPT = "%%prompt --copies 2 --max-tokens 4\nOnce upon a time there was a block that waited in a queue\n"
NAMES = (
    *("start", "drive", "add", "step", "run", "pause", "reset", "abort"),
    *("show", "view", "select", "check", "status", "why"),
    *("back", "forward", "goto", "rewind", "fork", "break", "save", "open", "attach"),
    *("seams", "seam", "patch", "find", "judge", "doctor"),
    *("bugs", "bug", "exercise", "close"),
)


@dataclass
class Cell:
    """What a cell returned, printed and raised."""

    value: Any
    printed: str
    error: BaseException | None


class Notebook:
    """A shell that runs cells and hands over what a reader would see."""

    def __init__(self, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell = shell
        self._capsys = capsys

    def run(self, cell: str) -> Cell:
        """Run a cell, which may fail."""
        self._capsys.readouterr()
        result = self.shell.run_cell(cell)
        captured = self._capsys.readouterr()
        return Cell(result.result, captured.out + captured.err, result.error_before_exec or result.error_in_exec)

    def value(self, cell: str) -> Any:
        """The value of a cell that works."""
        return self._worked(cell).value

    def printed(self, cell: str) -> str:
        """What a cell that works printed."""
        return self._worked(cell).printed

    def refused(self, cell: str) -> str:
        """The message of the UsageError that a cell ends with; a reader sees no traceback."""
        ran = self.run(cell)
        assert isinstance(ran.error, UsageError), f"{cell}: {ran.error!r}\n{ran.printed}"
        assert "Traceback" not in ran.printed and f"UsageError: {ran.error}" in ran.printed
        return str(ran.error)

    def completions(self, line: str) -> list[str]:
        """What the tab key offers at the end of a line."""
        with provisionalcompleter():
            return [completion.text for completion in self.shell.Completer.completions(line, len(line))]

    @property
    def lab(self) -> Lab:
        """The variable `lab`."""
        lab = self.shell.user_ns["lab"]
        assert isinstance(lab, Lab)
        return lab

    def _worked(self, cell: str) -> Cell:
        ran = self.run(cell)
        assert ran.error is None, f"{cell}: {ran.error!r}\n{ran.printed}"
        return ran
