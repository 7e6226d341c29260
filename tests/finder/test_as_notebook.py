"""A counterexample as a notebook: valid, and each of its cells runs."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from finder.test_find import ONE_SCOPE, TINY, found
from finder.test_repeats import REPEATING
from finder.test_taken_home import SETTINGS, MixesUp
from finder.wrong_parts import (
    Dies,
    EverySecondReuses,
    Exits,
    Loops,
    NeverAdmits,
    NeverShares,
    NoAliveCheck,
    RaisesOnTouch,
)
from labengine.config import ConfigError
from labengine.finder.find import GRAVE


def cells_of(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def played(path: Path) -> dict[str, Any]:
    """Run all cells of a notebook in one namespace, and return it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells_of(path):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (NoAliveCheck, {"scopes": ONE_SCOPE, "kinds": GRAVE, "max_workloads": 0}),
        pytest.param(RaisesOnTouch, {"scopes": ONE_SCOPE, "kinds": GRAVE, "max_workloads": 0}, marks=pytest.mark.sweep),
        pytest.param(NeverAdmits, {"scopes": ONE_SCOPE, "kinds": GRAVE, "max_workloads": 0}, marks=pytest.mark.sweep),
        (Loops, {"scopes": TINY, "kinds": GRAVE, "max_workloads": 0}),
        (Exits, {"scopes": TINY, "kinds": GRAVE, "max_workloads": 0}),
        (Dies, {"scopes": TINY, "kinds": GRAVE, "max_workloads": 0, "workers": 2}),
        (EverySecondReuses, {"scopes": REPEATING, "kinds": GRAVE, "max_workloads": 0}),
        (NeverShares, {"kinds": ("worse",), "max_workloads": 200}),
        (MixesUp, SETTINGS),
    ],
)
def test_it_runs_from_the_first_cell_to_the_last(
    cls: type,
    settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import nbformat

    one = found(cls, **settings)
    path = one.to_notebook(tmp_path / "found.ipynb")
    nbformat.validate(nbformat.read(path, as_version=4))
    names = played(path)
    printed = capsys.readouterr().out
    assert "red: " in printed
    assert ("green" in printed) == (cls is not MixesUp)
    for name in ("comparison", "lab"):
        if name in names:
            names[name].close()
    text = "".join("".join(cell["source"]) for cell in cells_of(path))
    assert f"class {cls.__name__}(" in text or f"import {cls.__name__}" in text
    assert all(operation in text for operation in one.operations)


def test_text_of_others_is_no_markup(tmp_path: Path) -> None:
    one = copy(found(NoAliveCheck, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0))
    one._finding = replace(one._finding, message='<img src=x> [a](b) "quoted" \\ *bold*')
    path = one.to_notebook(tmp_path / "found.ipynb")
    title = "".join(cells_of(path)[0]["source"])
    assert "<img" not in title and r"\[a\](b)" in title and r"\*bold\*" in title
    played(path)


@pytest.mark.parametrize("path", ["found.txt", 3])
def test_another_ending_is_refused(path: Any) -> None:
    one = found(NoAliveCheck, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    with pytest.raises(ConfigError, match=r".ipynb, got"):
        one.to_notebook(path)
