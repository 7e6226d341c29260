"""docs/your_bug.md: its cells run in a notebook, one after the other, and show what the page says."""

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

PAGE = (ROOT / "docs" / "your_bug.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
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
def test_the_cells_run_and_print_what_the_page_says(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    printed = ""
    for language, text in BLOCKS:
        if language:
            capsys.readouterr()
            shell.run_cell(text).raise_error()
            printed = capsys.readouterr().out
        else:
            for line in text.splitlines():
                assert line in printed
    assert [language for language, _ in BLOCKS].count("") == 4, "lines of output are compared"


def test_it_is_one_page() -> None:
    assert len(PAGE.split()) < MAX_WORDS
