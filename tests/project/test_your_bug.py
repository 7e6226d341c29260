"""Pages whose cells run in a notebook, one after the other, and show what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from checkout import ROOT
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison

PAGES = {"your_bug.md": 4, "regression_tests.md": 2}
"""Pages, and the number of places in which they show printed output."""
MAX_WORDS = 650


@pytest.fixture
def shell(jupyter_dirs: dict[str, str]) -> Iterator[Any]:
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    yield shell
    for value in list(shell.user_ns.values()):
        if isinstance(value, Lab | Comparison):
            value.close()
    InteractiveShell.clear_instance()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_cells_run_and_print_what_the_page_says(page: str, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)
    shell.run_cell("import labengine")
    printed = ""
    for language, text in blocks:
        if language:
            capsys.readouterr()
            shell.run_cell(text).raise_error()
            printed = capsys.readouterr().out
        else:
            for line in text.splitlines():
                assert line in printed
    assert [language for language, _ in blocks].count("") == PAGES[page], "lines of output are compared"


@pytest.mark.parametrize("page", PAGES)
def test_it_is_one_page(page: str) -> None:
    assert len(text_of(page).split()) < MAX_WORDS


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")
