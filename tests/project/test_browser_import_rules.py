"""Which folder of the browser half may import which, parsed from this table and held against every import.

    widget.ts        the entry: chooses a layout
      |
    stage/compare    two recordings side by side
      |
    stage            one moment of a recording: time, selection, playing, painting, layouts
      |
    views/NAME       one view each; no view imports another one
      |
    views            what a view is, and what views are made of
      |
    look             colours, theme, elements
      |
    model            a recording and its state at any moment, without a page
      |
    tables           JSON that Python reads too: words/phrases.json, labengine/glossary.json, record/hidden_text.json

    folder         may import, besides itself
    -------------  ----------------------------------------------
    model          tables
    look           model
    views          look, model
    views/NAME     look, model, views
    stage          look, model, views, views/index.ts
    stage/compare  look, model, views, stage
    widget.ts      everything

Only `views/index.ts` knows the views by name. Type imports count. Biome holds that no imports of values form a circle.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest

from import_graph import rules_of

IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.[^"']+\.(?:ts|json))["']""")
TABLES = (
    "../labengine_widgets/words/phrases.json",
    "../../labengine/glossary.json",
    "../../labengine/record/hidden_text.json",
)
OWN_FOLDERS = ("model", "look", "views", "stage", "stage/compare", "widget.ts", "views/index.ts")


def folder_of(path: str) -> str:
    """Return the row of the table that holds for a file: views/log/lines.ts -> views/NAME."""
    if path in OWN_FOLDERS:
        return path
    if path in TABLES:
        return "tables"
    folder = posixpath.dirname(path)
    return folder if folder in OWN_FOLDERS else "views/NAME"


def parse_table(text: str) -> dict[str, frozenset[str]]:
    """Read the table's rows as folder -> folders that it may import."""
    rules = rules_of(text)
    table = {folder: frozenset(rule.split(", ")) - {"nothing"} for folder, rule in rules.items()}
    everything = frozenset((*table, "views/index.ts"))
    return {folder: everything if folders == {"everything"} else folders for folder, folders in table.items()}


TABLE = parse_table(__doc__)
TABLE["views/index.ts"] = frozenset(("views", "views/NAME"))


def is_allowed(source: str, target: str) -> bool:
    """Return whether the table lets one file import another."""
    folder, other = folder_of(source), folder_of(target)
    if folder == other == "views/NAME":
        return posixpath.dirname(source) == posixpath.dirname(target)
    return other == folder or other in TABLE[folder]


def imports_of(source: str, text: str) -> list[tuple[str, str]]:
    """Return (source, target) of each relative import in a file's text."""
    folder = posixpath.dirname(source)
    return [(source, posixpath.normpath(posixpath.join(folder, target))) for target in IMPORT.findall(text)]


@pytest.fixture(scope="module")
def imports(project_root: Path) -> list[tuple[str, str]]:
    root = project_root / "widgets" / "browser"
    files = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.ts"))}
    return [pair for name, path in files.items() for pair in imports_of(name, path.read_text(encoding="utf-8"))]


def test_every_import_of_the_browser_half_is_in_the_table(imports: list[tuple[str, str]]) -> None:
    assert [f"{source} imports {target}" for source, target in imports if not is_allowed(source, target)] == []


def test_every_folder_of_the_table_was_read(imports: list[tuple[str, str]]) -> None:
    assert {folder_of(source) for source, _ in imports} == set(TABLE)


# The rules themselves, tried on files that do not exist.


@pytest.mark.parametrize(
    ("source", "code", "allowed"),
    [
        ("model/scene.ts", 'import { lastBefore } from "./arrays.ts";', True),
        ("model/scene.ts", 'import { element } from "../look/element.ts";', False),
        ("model/scene.ts", 'import type { View } from "../views/view.ts";', False),
        ("model/glossary.ts", 'import terms from "../../../labengine/glossary.json";', True),
        ("model/glossary.ts", 'import colours from "../../../labengine/colours.json";', False),
        ("views/log/log.ts", 'import table from "../../../labengine_widgets/words/phrases.json";', False),
        ("views/pool/pool.ts", 'import { keep } from "../pieces.ts";', True),
        ("views/pool/pool.ts", 'import { cards } from "./cards.ts";', True),
        ("views/pool/pool.ts", 'import { rows } from "../map/rows.ts";', False),
        ("views/pool/pool.ts", 'import type {\n  Stage,\n} from "../../stage/stage.ts";', False),
        ("views/view.ts", 'import { Pool } from "./pool/pool.ts";', False),
        ("stage/panel.ts", 'import { VIEWS } from "../views/index.ts";', True),
        ("stage/panel.ts", 'import { Pool } from "../views/pool/pool.ts";', False),
        ("stage/stage.ts", 'import { Columns } from "./compare/columns.ts";', False),
        ("stage/compare/columns.ts", 'export { Stage } from "../stage.ts";', True),
        ("widget.ts", 'const pool = await import("./views/pool/pool.ts");', True),
    ],
)
def test_the_rules_judge_files_that_do_not_exist(source: str, code: str, allowed: bool) -> None:
    assert [is_allowed(*pair) for pair in imports_of(source, code)] == [allowed]
