"""The site's sources, without building it: navigation, reference, citation, kept runs, and links of a small folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import labengine
from checkout import ROOT
from tools.site import docs, reference
from tools.site import notebook_runs as runs
from tools.site.docstrings import as_list
from tools.site.links import wrong_in
from tools.site.notebook_page import notebook_page, prose


def leaves(entries: Any) -> Iterator[str]:
    """Yield the files of a navigation."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else leaves(value)


def test_every_page_of_docs_is_in_the_navigation() -> None:
    nav = list(leaves(yaml.safe_load(docs.CONFIG.read_text(encoding="utf-8"))["nav"]))
    assert len(nav) == len(set(nav))
    assert {path.relative_to(docs.DOCS).as_posix() for path in docs.DOCS.rglob("*.md")} <= set(nav)


def test_the_reference_has_every_public_name_once() -> None:
    named = [name for names in reference.SUBJECTS.values() for name in names]
    assert sorted(named) == sorted({*labengine.__all__, "open"})
    pages = reference.pages()
    assert all(f"::: labengine.{name}\n" in "".join(pages.values()) for name in named)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == labengine.__version__ and citation["license"] == "Apache-2.0"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[({labengine.__version__}|Unreleased)\]", changes, re.MULTILINE)


def test_only_notebooks_with_weights_have_kept_runs() -> None:
    kept = {path.name for path in runs.KEPT.iterdir()}
    assert kept <= {runs.kept_path(path).name for path in runs.notebooks() if runs.has_weights(path)}
    assert sum(path.stat().st_size for path in runs.KEPT.iterdir()) < 1_000_000


def test_a_run_is_kept_of_the_present_code_of_every_notebook_with_weights() -> None:
    without = [path.stem for path in runs.notebooks() if runs.has_weights(path) and runs.run_of(path) is None]
    assert without == [], "make runs"


def test_a_kept_run_makes_a_page_with_frames_and_their_recordings() -> None:
    path = runs.NOTEBOOKS / "01_first_light.ipynb"
    kept = runs.kept_path(path)
    [cell, *_] = runs.code_cells(path)
    run = runs.loaded(kept)
    page = notebook_page(path, run, "First", set())
    frames = re.findall(r'src="run\.html\?of=(runs/[\w-]+\.bin)"', page.text)
    assert frames == list(page.files) and frames
    assert all(data[:2] == b"\x1f\x8b" for data in page.files.values())
    assert cell in page.text


def test_links_between_notebooks_lead_to_pages() -> None:
    text = "[next](05_late_merge.ipynb), [later](99_to_come.ipynb) and [words](../docs/glossary.md)"
    assert prose(text, {"05_late_merge"}) == "[next](05_late_merge.md), later and [words](../glossary.md)"
    assert docs.moved("[a](../notebooks/00_why_blocks.ipynb#x) [b](../CONTRIBUTING.md)") == (
        "[a](course/00_why_blocks.md#x) [b](contributing.md)"
    )


WRONG = {
    '<a href="there.html">x</a>': "there.html leads nowhere",
    '<a href="other.html#no">x</a>': "other.html#no names a missing anchor",
    '<a href="#no">x</a>': "#no names a missing anchor",
    '<a href="/other.html">x</a>': "/other.html begins at the host's root, but the site may be in a folder",
    '<a href="../../outside.html">x</a>': "../../outside.html leads nowhere",
    '<script src="https://cdn.example/x.js"></script>': "fetches https://cdn.example/x.js from another host",
    '<img srcset="//cdn.example/x.png 2x">': "fetches //cdn.example/x.png from another host",
    '<link rel="stylesheet" href="https://a.example/x.css">': "fetches https://a.example/x.css from another host",
    "<style>@import 'https://a.example/x'; </style>": "fetches https://a.example/x from another host",
    '<p style="background: url(http://a.example/x.png)">': "fetches http://a.example/x.png from another host",
}
RIGHT = (
    '<a href="https://example.org/x">x</a>',
    '<a href="other.html#yes">x</a>',
    '<a href="folder/">x</a>',
    '<a href="other.html?bug=1#at=3">x</a>',
    '<img src="data:image/png;base64,x">',
    '<link rel="canonical" href="https://example.org/">',
)


@pytest.mark.parametrize(("markup", "wrong"), [*WRONG.items(), *((markup, None) for markup in RIGHT)])
def test_what_the_checker_sees(markup: str, wrong: str | None, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "folder").mkdir(parents=True)
    (tmp_path / "outside.html").touch()
    (site / "folder" / "index.html").touch()
    (site / "other.html").write_text('<p id="yes">')
    (site / "page.html").write_text(markup)
    assert wrong_in(site) == ([f"page.html: {wrong}"] if wrong else [])


def test_a_style_sheet_that_fetches_from_elsewhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "look.css").write_text("p { background: url('https://a.example/x.png') }")
    assert wrong_in(tmp_path) == ["look.css: fetches https://a.example/x.png from another host"]


def test_what_a_docstring_says_of_names_becomes_a_list() -> None:
    text = "What it is.\n\nmodel: a name. size, rows: two\nnumbers. Note: this stays.\n\nThe end: so."
    assert as_list(text, {"model", "size", "rows"}) == (
        "What it is.\n\n* `model`: a name.\n* `size, rows`: two numbers. Note: this stays.\n\nThe end: so."
    )


def test_the_examples_for_a_workload_of_vllm_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (docs.DOCS / "vllm_workload.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        exec(block, names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 running [0, 1] blocks used 4" and lines[3] == "3 running [0, 1, 2] blocks used 5"
    assert names["lab"].stats().num_finished == 3 and not names["lab"].violations
    names["lab"].close()
