"""A notebook as a page in Markdown: text, code, printed outputs, and views to scrub in the page."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from gzip import compress
from html import escape
from pathlib import Path
from typing import Any

from labengine.course.check_result import marked
from tools.site.notebook_runs import Output, Run

HEIGHTS = {"dashboard": 760, "compare": 900, "view": 380}
"""Pixels of a frame until its view reports its height."""
NO_RUN = """\
!!! note "Not run here"
    This notebook computes with a model's weights. No run of its current code is recorded, so this page shows text and
    code.
"""
INTRO = """\
<p class="course-bar">{place}. Each view below is the recording of a run: click it, then ← and → move through it;
<kbd>?</kbd> lists all keys. <a href="../../lite/notebooks/index.html?path={name}.ipynb">Open the notebook in
JupyterLite</a> without an install, or copy it to your machine with <code>labengine course DIR</code>.</p>
"""
FIGURES = '\n<script src="plotly.js" defer></script>\n<script src="figures.js" defer></script>\n'


@dataclass
class NotebookPage:
    """A page, and the files beside it: runs/NAME-1.bin ..."""

    name: str
    text: str = ""
    files: dict[str, bytes] = field(default_factory=dict)


def notebook_page(path: Path, run: Run | None, place: str, known: set[str]) -> NotebookPage:
    """Return a notebook's page. place: its place in the course, in words. known: the notebooks that have pages."""
    page = NotebookPage(path.stem)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = iter(run.outputs if run else [])
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(prose(source, known))
        elif source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += _shown(page, run, next(outputs, []))
        else:
            next(outputs, [])
    title, _, body = "\n\n".join(parts).partition("\n")
    head = f"{title}\n\n{INTRO.format(place=marked(place), name=path.stem)}\n{'' if run else NO_RUN}\n"
    page.text = head + body.strip() + "\n" + (FIGURES if 'class="figure"' in body else "")
    return page


def prose(source: str, known: set[str]) -> str:
    """Return a Markdown cell for the page, with links to existing pages only and Markdown inside <details>."""

    def link(match: re.Match[str]) -> str:
        return f"[{match[1]}]({match[2]}.md{match[3] or ''})" if match[2] in known else match[1]

    source = re.sub(r"\[([^\]]*)\]\((\w+)\.ipynb(#[^)]*)?\)", link, source)
    source = re.sub(r"\]\(\.\./docs/", "](../", source)
    return source.replace("<details>", '<details markdown="1">')


def title_of(path: Path) -> str:
    """Return a notebook's first heading."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).partition("\n")[0].removeprefix("# ").strip()


def _shown(page: NotebookPage, run: Run | None, outputs: list[Output]) -> Iterator[str]:
    """Yield the markup of a cell's outputs. A view's frame contains its picture, for a page without scripts."""
    picture = ""
    for output in outputs:
        kind, view = output["kind"], run.views.get(output.get("view", "")) if run else None
        if kind == "image/svg+xml":
            picture = _image(output)
        elif kind == "view":
            yield block(_view(page, _opened(view, output.get("at", [])), picture) if view else picture)
            picture = ""
        else:
            yield from map(block, filter(None, (picture, _markup(output))))
            picture = ""
    if picture:
        yield block(picture)


def block(markup: str) -> str:
    """Return markup as one block, which Markdown leaves unchanged."""
    lines = re.sub(r"\n\s*\n", "\n", markup)
    return f'<div class="cell-output">{lines}</div>'


def _markup(output: Output) -> str:
    kind = output["kind"]
    if kind == "stream":
        look = "" if re.search(r"\S {2,}\S", output["text"]) else " prose"  # columns do not wrap
        return f'<pre class="cell-{escape(output["name"])}{look}">{_lines(output["text"])}</pre>'
    if kind == "text/html":
        return str(output["data"])
    if kind == "image/png":
        return f'<img alt="" src="data:image/png;base64,{escape(output["data"])}">'
    if kind == "application/vnd.plotly.v1+json":
        return _figure(output["data"])
    return f"<pre>{_lines(output['data'])}</pre>"


def _lines(text: str) -> str:
    """Return text for a <pre>, with a character reference for each empty line, which would end the block."""
    return re.sub(r"\n(?=\n)", "\n&#8203;", escape(text.rstrip("\n")))


def _image(output: Output) -> str:
    first_line = output["text"].partition("\n")[0]
    data = b64encode(output["data"].encode()).decode()
    return f'<img alt="{escape(first_line)}" src="data:image/svg+xml;base64,{data}">'


def _view(page: NotebookPage, view: dict[str, Any], picture: str) -> str:
    """Return a frame with a recording to scrub, and put the recording beside the page."""
    if "figure" in view:
        return _figure(view["figure"])
    number = len(page.files) + 1
    file = f"runs/{page.name}-{number}.bin"
    page.files[file] = compress(json.dumps(view, separators=(",", ":")).encode(), mtime=0)
    height = HEIGHTS[view["arrangement"]["kind"]]
    return (
        f'<iframe class="run" title="a recorded run" loading="lazy" height="{height}" '
        f'src="run.html?of={file}"></iframe>'
        f"<noscript>{picture}</noscript>"
    )


def _opened(view: dict[str, Any], at: list[int]) -> dict[str, Any]:
    """Return a view that opens at its moment after its cell, if its lab continued after that."""
    if "figure" in view:
        return view
    sides = [
        one | {"shown": moment} if one["shown"] is None and moment < one["start"] + len(one["events"]) else one
        for one, moment in zip(view["recordings"], at, strict=False)
    ]
    return view | {"recordings": [*sides, *view["recordings"][len(sides) :]]}


def _figure(figure: dict[str, Any]) -> str:
    shown = {"data": figure["data"], "layout": figure.get("layout", {})}
    document = json.dumps(shown).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<div class="figure"><script type="application/json">{document}</script></div>'
