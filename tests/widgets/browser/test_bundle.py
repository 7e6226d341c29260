"""The committed bundle of the browser half was made from the sources beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labengine_widgets.browser import esm


def test_the_bundle_is_up_to_date(project_root: Path) -> None:
    """`make lint` goes further, with Node: it holds the bundle against what esbuild makes of the sources."""
    root = project_root / "widgets" / "browser"
    sources = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in (".ts", ".css")}
    tables = ("labengine/glossary.json", "labengine/record/hidden_text.json")
    shared = (*tables, "widgets/labengine_widgets/words/phrases.json")
    digest = hashlib.sha256()
    for name, path in (*sorted(sources.items()), *((name, project_root / name) for name in shared)):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    notice = esm().partition("*/")[0]
    assert notice.rstrip().endswith(f"sha256 {digest.hexdigest()}"), "make bundle"
