"""A counterexample as a notebook: its story, the parts, both engines side by side, and the regression test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from textwrap import indent
from typing import Any

from labengine.config import ConfigError, shown
from labengine.record.wording import visible
from labengine.session.source_text import quoted


@dataclass(frozen=True, kw_only=True)
class Story:
    """The notebook's story, as text and as Python."""

    headline: str
    message: str
    found: str
    """How long it took to find."""
    operations: Sequence[str]
    definitions: str
    """Imports, classes and PARTS."""
    settings: Sequence[str]
    """Lab's arguments without edition and parts."""
    edition: str
    """The edition that the parts replace classes of."""
    reference: str
    """The edition beside them; empty where only they are shown."""
    acts: Sequence[str]
    """Python that plays the workload, act by act; the last one may have several lines, and raises nothing."""
    no_return: str = ""
    """The point of no return in a sentence."""
    rescued: Sequence[str] = ()
    """Lines that lead to an end that is good."""
    test: str = ""
    """The file for pytest; empty where there can be none."""
    test_name: str = ""
    why_no_test: str = ""
    is_green_without: bool = True
    """True if the test is green where PARTS is None."""


def checked_name(path: object) -> str | PathLike[str]:
    """Return a notebook's path. Raises ConfigError for another ending."""
    if not isinstance(path, (str, PathLike)) or not str(path).endswith(".ipynb"):
        raise ConfigError(f"a notebook's name ends in .ipynb, got {shown(path)}")
    return path


def notebook(story: Story) -> bytes:
    """Return the notebook as a file's content, in format 4.5, not executed."""
    cells = [_cell(kind, text, number) for number, (kind, text) in enumerate(_cells(story), 1)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": cells,
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


def _cells(story: Story) -> Iterator[tuple[str, str]]:
    operations = indent("\n".join(story.operations), "    ")
    yield "markdown", f"# {_plain(story.headline)}\n\n{_plain(story.message)}\n\n{operations}\n\n{_plain(story.found)}"
    yield "markdown", "## The parts\n\nThe next cell defines them, and runs nothing."
    yield "code", story.definitions
    yield (
        "markdown",
        "## The run\n\nA broken rule is red, with its event and its method; ask *Why?* at any event.",
    )
    yield "code", "\n".join(_workload(story))
    yield "code", "\n".join(_side_by_side(story) if story.reference else _alone(story))
    if story.no_return:
        yield "markdown", f"## The point of no return\n\n{_plain(story.no_return)}"
        yield "code", "\n".join([f"with {_lab(story)} as lab:", *(f"    {line}" for line in story.rescued)])
    yield "markdown", "## The regression test\n\n" + (_plain(story.why_no_test) or "Save it for pytest, as it is.")
    if story.test:
        yield "code", story.test
        yield "code", "\n".join(_red_and_green(story))


def _workload(story: Story) -> list[str]:
    """Return lines that define `play`: the acts on a lab, in order."""
    *acts, last = story.acts
    lines = [f"    lambda lab: {act}," for act in acts]
    return ["def last(lab):", indent(last, "    "), "", "", "play = [", *lines, "    last,", "]"]


def _side_by_side(story: Story) -> list[str]:
    settings = ", ".join(story.settings)
    return [
        "from labengine.core.editions import edition",
        "",
        f"base = edition({quoted(story.edition)})",
        "own = base if PARTS is None else PARTS.overriding(base)",
        f"claim = {quoted(story.message)}",
        f"found = labengine.scenario(own, {quoted(story.reference)}, play=play, claim=claim, {settings})",
        "comparison = found.compare()",
        "if comparison.has_follow_up:",
        "    comparison.follow_up()",
        "comparison.show()",
    ]


def _alone(story: Story) -> list[str]:
    return [f"lab = {_lab(story)}", "for act in play:", "    act(lab)", "lab.show()"]


def _lab(story: Story) -> str:
    made = [re.sub(r"^external=(\w+)$", r"external=\1()", one) for one in story.settings]
    return f'labengine.Lab("simulated", {", ".join(made)}, edition={quoted(story.edition)}, parts=PARTS)'


def _red_and_green(story: Story) -> list[str]:
    lines = ["try:", f"    {story.test_name}()", "except BaseException as error:"]
    lines += ["    print(f'red: {type(error).__name__}: {error}')"]
    if story.is_green_without:
        lines += ["PARTS = None", f"{story.test_name}()", "print('green with the production classes')"]
    return lines


def _plain(text: str) -> str:
    """Return text of any kind for a Markdown cell: nothing in it is markup."""
    return re.sub(r"([\\`*_\[\]#|$~])", r"\\\1", escape(visible(" ".join(text.split())), quote=False))
