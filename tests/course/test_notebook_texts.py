"""Sentences of notebooks that no cell of theirs asserts."""

from __future__ import annotations

import json
from pathlib import Path

from checkout import ROOT
from labengine.finder.scopes import large_scopes, small_scopes


def text_of(number: str) -> str:
    """Return all markdown of a notebook."""
    [path] = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_the_finders_own_pools_are_as_small_as_they_are_said_to_be() -> None:
    sizes = [scope.config.num_blocks for scope in (*small_scopes(), *large_scopes())]
    said = f"pools have {min(sizes)} to {max(sizes)} blocks"
    assert said in text_of("11") and said in (ROOT / "docs" / "finder.md").read_text(encoding="utf-8").lower()
