"""A counterexample as a notebook: its story, the parts, both engines side by side, and the regression test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from os import PathLike
from textwrap import indent
from typing import Any

from labengine.config import ConfigError, shown
from labengine.record.wording import visible
from labengine.session.source_text import quoted

Cell = tuple[str, str]
"""("markdown" or "code", its text)."""


def checked_name(path: object) -> str | PathLike[str]:
    """Return a notebook's path. Raises ConfigError unless it ends in .ipynb."""
    if not isinstance(path, (str, PathLike)) or not str(path).endswith(".ipynb"):
        raise ConfigError(f"the notebook's name must end in .ipynb, got {shown(path)}")
    return path


def notebook(cells: Iterable[Cell]) -> bytes:
    """Return the notebook as a file's content, in format 4.5, not executed."""
    made = [_cell(kind, text, number) for number, (kind, text) in enumerate(cells, 1)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return {**cell, "source": text.splitlines(keepends=True)}


def told(headline: str, message: str, operations: Sequence[str], found: str) -> Cell:
    """Return the cell that states the finding and its operations. found: a sentence on the search."""
    lines = indent("\n".join(operations), "    ")
    return "markdown", f"# {plain(headline)}\n\n{plain(message)}\n\n{lines}\n\n{plain(found)}"


def playing(acts: Sequence[str]) -> Cell:
    """Return the cell that defines `play`: acts on a lab, whose last one may have several lines and raises nothing."""
    *before, last = acts
    lines = [f"    lambda lab: {act}," for act in before]
    return _code(["def last(lab):", indent(last, "    "), "", "", "play = [", *lines, "    last,", "]"])


def side_by_side(claim: str, edition: str, reference: str, settings: Sequence[str]) -> Cell:
    """Return the cell that plays PARTS, overriding an edition, beside the reference. settings: Lab's arguments."""
    return _code(
        [
            "from labengine.core.editions import edition",
            "",
            f"base = edition({quoted(edition)})",
            "own = base if PARTS is None else PARTS.overriding(base)",
            f"claim = {quoted(claim)}",
            f"found = labengine.scenario(own, {quoted(reference)}, play=play, claim=claim, {', '.join(settings)})",
            "comparison = found.compare()",
            "if comparison.has_follow_up:",
            "    comparison.follow_up()",
            "comparison.show()",
        ]
    )


def alone(edition: str, settings: Sequence[str]) -> Cell:
    """Return the cell that plays PARTS, and shows the lab."""
    return _code([f"lab = {_lab(edition, settings)}", "for act in play:", "    act(lab)", "lab.show()"])


def rescued(point: str, lines: Sequence[str], edition: str, settings: Sequence[str]) -> list[Cell]:
    """Return the cells on the point of no return. lines: Python that leads to a good end."""
    body = [f"with {_lab(edition, settings)} as lab:", *(f"    {line}" for line in lines)]
    return [("markdown", f"## The point of no return\n\n{plain(point)}"), _code(body)]


def tested(test: str, *, is_green_without: bool) -> list[Cell]:
    """Return the cells with the pytest test and a run of it, also with PARTS = None if it is green then."""
    name = "".join(re.findall(r"^def (test_\w+)\(", test, re.MULTILINE))
    lines = ["try:", f"    {name}()", "except BaseException as error:"]
    lines += ["    print(f'red: {type(error).__name__}: {error}')"]
    if is_green_without:
        lines += ["PARTS = None", f"{name}()", "print('green with the production classes')"]
    return [("code", test), _code(lines)]


def _lab(edition: str, settings: Sequence[str]) -> str:
    made = [re.sub(r"^external=(\w+)$", r"external=\1()", one) for one in settings]
    return f'labengine.Lab("simulated", {", ".join(made)}, edition={quoted(edition)}, parts=PARTS)'


def _code(lines: Sequence[str]) -> Cell:
    return "code", "\n".join(lines)


def plain(text: str) -> str:
    """Return any text for a Markdown cell, with its markup escaped."""
    return re.sub(r"([\\`*_\[\]#|$~])", r"\\\1", escape(visible(" ".join(text.split())), quote=False))
