"""`%%needs torch`: the site's notebooks show a cell's output as recorded on a machine that has what the cell needs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Any

from IPython.display import Markdown, display

from labengine.config import ConfigError
from labengine.live_page.model_offer import NAME, ModelOffer

REASONS = {
    "torch": "torch, which has no build for web pages",
    "plotly": "plotly, which is not in this page",
    "pandas": "pandas, which is not in this page",
    "gemma3-270m": "the weights of Gemma-3-270M, which are not in this page",
    NAME: "SmolLM2's weights, which are not in this page yet",
}
"""The things a cell may need, as phrases for the page."""
RECORDED = "*This cell needs {reason}. Its output below was recorded.*"
SILENT = "*This cell needs {reason}. It has no output.*"
CHANGED = "*This cell needs {reason}, and no output of this code was recorded.*"

Recorded = Mapping[str, list[dict[str, Any]]]
"""Outputs in the notebook format, by the digest of their cell's code."""


def code_digest(code: str) -> str:
    """Return the digest of a cell's code, the key of its recorded outputs."""
    return sha256(code.strip().encode()).hexdigest()[:16]


class RecordedCells:
    """The magic `%%needs`. offer: the model, the only need that the page can fetch."""

    def __init__(self, shell: Any, read: Callable[[], Recorded], offer: ModelOffer) -> None:
        self._shell, self._read, self._offer = shell, read, offer

    def needs(self, line: str, cell: str) -> None:
        """Run the cell if its need is met; else show its recorded outputs, and run its imports for later cells."""
        need = line.strip()
        if need == NAME and self._offer.is_loaded:
            self._shell.run_cell(cell)
            return
        outputs = self._recorded.get(code_digest(cell))
        words = CHANGED if outputs is None else RECORDED if outputs else SILENT
        display(Markdown(words.format(reason=REASONS.get(need, need))))  # type: ignore[no-untyped-call]
        if need == NAME:
            self._offer.show_below(cell)
        for output in outputs or []:
            _show(output)
        self._import_what_is_here(cell)

    @cached_property
    def _recorded(self) -> Recorded:
        return self._read()

    def _import_what_is_here(self, cell: str) -> None:
        for statement in ast.parse(self._shell.transform_cell(cell)).body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                with suppress(ImportError, ConfigError):
                    exec(compile(ast.Module([statement], []), "<imports>", "exec"), self._shell.user_ns)


def _show(output: dict[str, Any]) -> None:
    if output["output_type"] == "stream":
        print(output["text"], end="", file=getattr(sys, output["name"]))
    else:
        display(output["data"], raw=True)  # type: ignore[no-untyped-call]
