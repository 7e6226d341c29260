"""What each %lab command does when another engine decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from labengine.commands import LAB
from labengine.magics import commands as _commands  # noqa: F401  (the import fills the table)
from magic_notebook import Notebook
from stub_python import stub_python

WORKS = {
    "start": "%lab start --model simulated --blocks 12",
    "drive": "%lab drive vllm --python {python} --blocks 8",
    "add": "%lab add once upon a time --max-tokens 2",
    "step": "%lab step",
    "run": "%lab run --wait",
    "pause": "%lab pause",
    "reset": "%lab reset",
    "abort": "%lab abort A",
    "show": "%lab show",
    "view": "%lab view pool",
    "select": "%lab select block 1",
    "check": "%lab check",
    "status": "%lab status",
    "why": "%lab why request A",
    "back": "%lab back",
    "forward": "%lab forward",
    "goto": "%lab goto 1",
    "rewind": "%lab rewind 1",
    "fork": "%lab fork 1",
    "break": "%lab break BlockFreed",
    "save": "%lab save {folder}/run.lab",
    "doctor": "%lab doctor",
    "close": "%lab close",
}
"""Commands that serve a driven lab."""

REFUSED = {
    "find": "%lab find",
    "judge": "%lab judge A B",
}
"""Commands that it refuses."""

OF_OTHERS = ("patch", "seam", "seams")
"""Commands that the tests of patches use."""

OF_NO_LAB = ("open", "attach", "bugs", "bug", "exercise")
"""Commands that concern no lab."""


@pytest.fixture
def driven(notebook: Notebook, tmp_path: Path) -> Notebook:
    """A driven engine with two requests, after a step."""
    notebook.run(f"%lab drive vllm --python {stub_python(tmp_path)} --blocks 12 --block-size 4")
    notebook.printed("lab.add(token_ids=range(9), max_tokens=4)\nlab.add(token_ids=range(9), max_tokens=4)\nlab.step()")
    return notebook


def test_every_command_is_in_one_of_the_lists() -> None:
    assert sorted(LAB) == sorted([*WORKS, *REFUSED, *OF_OTHERS, *OF_NO_LAB])


@pytest.mark.parametrize("name", WORKS)
def test_it_works(name: str, driven: Notebook, tmp_path: Path) -> None:
    line = WORKS[name].format(python=tmp_path / "python", folder=tmp_path)
    assert driven.run(line).error is None


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_and_nothing_changes(name: str, driven: Notebook) -> None:
    before = driven.value("lab.snapshot()")
    assert "is not for driven engines" in driven.refused(REFUSED[name])
    assert driven.value("lab.snapshot()") == before


def test_settings_that_are_labengines_alone_are_refused(driven: Notebook) -> None:
    assert "a driven engine takes no edition" in driven.refused("%lab fork 1 --edition vllm")
