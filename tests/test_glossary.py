"""One glossary for the tooltips, the page in docs, and %lab."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labengine.glossary import TERMS, glossary, meaning
from labengine.notebook import LabMagics, load_ipython_extension
from tools import glossary_page


def test_the_page_is_the_glossary(project_root: Path) -> None:
    assert (project_root / glossary_page.PATH).read_text(encoding="utf-8") == glossary_page.page()


@pytest.mark.parametrize(("term", "text"), TERMS.items())
def test_a_term_is_one_plain_sentence(term: str, text: str) -> None:
    assert text[0].isupper() and text.endswith(".") and ". " not in text and "|" not in text
    assert len(text.split()) < 30


def test_a_term_is_found_whatever_its_case() -> None:
    assert meaning("kv-cache group") == f"KV-cache group: {TERMS['KV-cache group']}"
    assert meaning("page table") is None


def test_the_magics_help_has_every_term() -> None:
    assert LabMagics.lab.__doc__ is not None and LabMagics.lab.__doc__.endswith(glossary())


def test_the_help_on_a_word_is_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell()
    load_ipython_extension(shell)
    shell.run_line_magic("lab", "help lost block")
    assert capsys.readouterr().out == f"lost block: {TERMS['lost block']}\n"
    shell.run_line_magic("lab", "help step")
    assert capsys.readouterr().out.startswith("Take"), "a command before a term"


def test_the_views_name_known_terms(project_root: Path) -> None:
    sources = (project_root / "widgets" / "browser").rglob("*.ts")
    named = {term for path in sources for term in re.findall(r'\bmeaning\("([^"]+)"\)', path.read_text("utf-8"))}
    assert named and named <= set(TERMS)
