"""The site's documentation, built by MkDocs from the repository: course, how-tos, bugs, reference, figures."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from labengine.scenarios import bugs
from labengine.scenarios.scenario import Scenario
from labengine_widgets.browser import css, esm
from labengine_widgets.pages.html_page import LOOK
from tools.site import reference
from tools.site.bug_gallery import write_bugs
from tools.site.notebook_page import notebook_page, title_of
from tools.site.notebook_runs import NOTEBOOKS, ROOT, all_runs, notebooks

DOCS = ROOT / "docs"
PAGES = Path(__file__).parent / "pages"
THEME = Path(__file__).parent / "theme"
CONFIG = THEME / "mkdocs.yml"
DATA = (".md", ".png", ".svg", ".webp", ".html", ".json")
"""Suffixes of the files in docs/ that the site shows."""

MOVED = {
    "../README.md": "index.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../SECURITY.md": "security.md",
    "../CITATION.cff": "citation.md",
    "../notebooks/": "course/",
}
"""Targets on the site of links that leave docs/."""


def build(site: Path, selected: Sequence[Path] | None = None, scenarios: Sequence[Scenario] | None = None) -> Path:
    """Write the documentation into site/docs, which is emptied first; return its front page.

    selected, scenarios: notebooks and bugs to write; None for all. Raises SystemExit for a broken link or anchor.
    """
    target = (site / "docs").resolve()
    shutil.rmtree(target, ignore_errors=True)
    with TemporaryDirectory() as folder:
        source = Path(folder)
        course = write_course(source / "course", notebooks() if selected is None else selected)
        write_pages(source)
        with (source / "course" / "index.md").open("a", encoding="utf-8") as index:
            index.write("".join(f"\n* [{title}]({Path(file).name})" for title, file in course) + "\n")
        gallery = write_bugs(source / "bugs", bugs() if scenarios is None else scenarios)
        write_text(source / "bugs" / "index.md", gallery)
        for name, text in reference.pages().items():
            write_text(source / "reference" / name, text)
        write_theme(source)
        run_mkdocs(configuration(source, target, course))
    for name in ("404.html", "sitemap.xml", "sitemap.xml.gz"):  # these need the site's address
        (target / name).unlink(missing_ok=True)
    return target / "index.html"


def write_pages(source: Path) -> None:
    """Write docs/, the pages that only the site has, and the pages from the top of the repository."""
    for path in [*DOCS.rglob("*"), *PAGES.rglob("*")]:
        if path.suffix not in DATA or "__pycache__" in path.parts:
            continue
        base = DOCS if path.is_relative_to(DOCS) else PAGES
        target = source / path.relative_to(base)
        if path.suffix == ".md":
            write_text(target, moved(path.read_text(encoding="utf-8")))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        write_text(source / f"{name.lower()}.md", moved(text.replace("](docs/", "](")))
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    write_text(source / "citation.md", CITATION.format(citation=citation.strip()))


CITATION = """\
# Citation

To cite labengine, use `CITATION.cff` at the top of the repository, which reference managers read:

```yaml
{citation}
```
"""


def moved(text: str) -> str:
    """Return a page with links that leave docs/ replaced by their targets on the site."""
    for old, new in MOVED.items():
        text = text.replace(f"]({old}", f"]({new}")
    return re.sub(r"\]\((course/[\w/]+)\.ipynb", r"](\1.md", text)


def write_course(folder: Path, paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Write a page for each notebook; return (title, file) of each, for the navigation."""
    titles = [title_of(path) for path in paths]
    for number, (path, run) in enumerate(zip(paths, all_runs(paths), strict=True)):
        after = f", before *{titles[number + 1]}*" if number + 1 < len(paths) else ""
        page = notebook_page(path, run, f"Notebook {path.stem[:2]} of the course{after}", {one.stem for one in paths})
        write_text(folder / f"{page.name}.md", page.text)
        for name, data in page.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    shutil.copytree(NOTEBOOKS / "pictures", folder / "pictures")
    return [(f"{path.stem[:2]} {title}", f"course/{path.stem}.md") for path, title in zip(paths, titles, strict=True)]


def write_theme(source: Path) -> None:
    """Write the files that the pages and their frames fetch: style sheets, the widgets' browser half, plotly."""
    from plotly.offline import get_plotlyjs

    for name in ("site.css", "favicon.svg"):
        shutil.copyfile(THEME / name, source / name)
    shutil.copyfile(THEME / "run.html", source / "course" / "run.html")
    write_text(source / "course" / "run.js", esm() + (THEME / "run.js").read_text(encoding="utf-8"))
    write_text(source / "course" / "run.css", LOOK + css() + (THEME / "run.css").read_text(encoding="utf-8"))
    write_text(source / "course" / "plotly.js", get_plotlyjs())
    shutil.copyfile(THEME / "figures.js", source / "course" / "figures.js")


def configuration(source: Path, target: Path, course: Sequence[tuple[str, str]]) -> Any:
    """Return MkDocs' configuration, with the generated pages in its navigation."""
    from mkdocs.config import load_config

    config = load_config(str(CONFIG), docs_dir=str(source), site_dir=str(target))
    generated = {
        "Course": ["course/index.md", *({title: file} for title, file in course)],
        "Reference": [
            "reference/index.md",
            *({subject: f"reference/{reference.file_of(subject)}"} for subject in reference.SUBJECTS),
            {"Events": "reference/events.md"},
        ],
    }
    config.nav = [{name: generated.get(name, entries)} for entry in config.nav for name, entries in entry.items()]
    return config


def run_mkdocs(config: Any) -> None:
    """Have MkDocs write the site. Raises SystemExit for any warning."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    from mkdocs.commands.build import build as build_pages
    from mkdocs.exceptions import Abort

    warnings, log = logging.StreamHandler(), logging.getLogger("mkdocs")
    log.addHandler(warnings)
    try:
        config.plugins.on_startup(command="build", dirty=False)
        build_pages(config)
    except Abort as error:
        raise SystemExit(f"site: the documentation was not built: {error}") from None
    finally:
        config.plugins.on_shutdown()
        log.removeHandler(warnings)


def write_text(path: Path, text: str) -> None:
    """Write a file, and create the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
