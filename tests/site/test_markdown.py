"""Pages written for CommonMark, as GitHub and JupyterLab show them, have the same parts on the site."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt

from checkout import ROOT
from tools.site import docs
from tools.site import notebook_runs as runs
from tools.site.notebook_page import prose

PARTS = {"li", "ul", "ol", "table", "tr", "pre", "h1", "h2", "h3", "blockquote", "a", "em", "strong", "img", "details"}
PAGES = [*sorted(docs.DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


class Parts(HTMLParser):
    """Counts the parts of a page, without the links that the site adds to headings."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in PARTS and ("class", "headerlink") not in attrs:
            self.counts[tag] += 1


@cache
def extensions() -> tuple[list[str], dict[str, Any]]:
    """Return the site's extensions of Markdown, and their settings."""
    entries = yaml.safe_load(docs.CONFIG.read_text(encoding="utf-8"))["markdown_extensions"]
    pairs = [one if isinstance(one, dict) else {one: {}} for one in entries]
    settings = {name: value for pair in pairs for name, value in pair.items()}
    return ["fenced_code", *settings], settings  # MkDocs adds fenced_code by itself


def on_the_site(text: str) -> Counter[str]:
    names, settings = extensions()
    html = markdown.Markdown(extensions=names, extension_configs=settings).convert(prose(text, set()))
    return Parts(html).counts


def elsewhere(text: str) -> Counter[str]:
    return Parts(MarkdownIt("commonmark").enable("table").render(text)).counts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_of_docs_has_the_same_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert on_the_site(text) == elsewhere(text)


@pytest.mark.parametrize("path", runs.notebooks(), ids=lambda path: path.stem)
def test_a_notebooks_prose_has_the_same_parts(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for text in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"):
        assert on_the_site(text) == elsewhere(prose(text, set())), text


def test_a_list_that_only_github_sees_is_found() -> None:
    text = "Some words:\n* one\n* two\n"
    assert on_the_site(text) != elsewhere(text)
