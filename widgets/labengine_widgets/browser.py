"""The browser halves as one module: plain ES modules, wrapped one by one and joined, each after those it imports."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ENTRY = "stage/widget.js"
"""The module that exports `render` (for anywidget) and `mount` (for a page without Python)."""

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const|let) (\w+))", re.MULTILINE)


@cache
def esm() -> str:
    """All of it as one ES module: exports `mount`, and `render` by default alone, as anywidget wants it."""
    names = f"const {{ render, mount }} = {_variable(ENTRY)};\nexport {{ mount }};\nexport default {{ render }};"
    return f"{_joined(ENTRY)}\n{names}\n"


@cache
def bundle(entry: str) -> str:
    """Any module, and all it leads to, as one ES module that exports what it does: `bundle("model/recording.js")`."""
    exported = ", ".join(_EXPORT.findall(_source(entry)))
    return f"{_joined(entry)}\nexport const {{ {exported} }} = {_variable(entry)};\n"


@cache
def css() -> str:
    """All style sheets, the base first."""
    sheets = sorted(_HERE.rglob("*.css"), key=lambda path: (path.name != "base.css", path.as_posix()))
    return "\n".join(path.read_text(encoding="utf-8") for path in sheets)


def _joined(entry: str) -> str:
    return "\n".join(_wrapped(name) for name in _in_order(entry))


def _in_order(entry: str) -> list[str]:
    """The entry and everything it leads to, each module after the ones it imports. CycleError for a circle."""
    graph: dict[str, set[str]] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name not in graph:
            graph[name] = {_target(name, path) for _, path in _IMPORT.findall(_source(name))}
            waiting.extend(graph[name])
    return list(TopologicalSorter(graph).static_order())


def _wrapped(name: str) -> str:
    """A module as a function's body, so that its own names stay its own."""
    source = _source(name)
    exported = ", ".join(_EXPORT.findall(source))
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: _destructured(name, *found.groups()), source))
    return f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"


def _destructured(name: str, names: str, path: str) -> str:
    return f"const {{{names.replace(' as ', ': ')}}} = {_variable(_target(name, path))};\n"


def _target(importer: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))


def _source(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
