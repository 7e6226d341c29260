"""The text of a class that somebody wrote, in a cell perhaps, with the imports that it needs to stand alone."""

from __future__ import annotations

import ast
import linecache
import sys
from importlib.util import find_spec
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

from labengine.session.reasons.source_text import source_lines, tree_of
from labengine.session.saved.global_names import ANNOTATIONS_LATER, leaves_annotations, used_globals
from labengine.session.saved.literals import literal

ClassText = dict[str, Any]
"""JSON-able. name: what to call it. imports: lines. constants: plain values that its text uses, by name, as Python
writes them. definitions: class texts, bases first; empty when it is imported. missing: names that its text uses, that
nobody can import and that stand for no plain value."""


def class_text(cls: type) -> ClassText:
    """How a script comes by a class: by importing it, or by its own text."""
    told: ClassText = {"name": cls.__name__, "imports": [], "constants": {}, "definitions": [], "missing": []}
    _tell(cls, told, set())
    return told


def _tell(cls: type, told: ClassText, seen: set[type]) -> None:
    if cls in seen:
        return
    seen.add(cls)
    if (line := _import_line(cls.__name__, cls)) is not None:
        _note(told["imports"], line)
        return
    text = _source(cls)
    if text is None:
        _note(told["missing"], cls.__name__)
        return
    if leaves_annotations(cls):
        _note(told["imports"], ANNOTATIONS_LATER)
    used = used_globals(cls, text)
    later = {name: value for name, value in used.items() if isinstance(value, type) and issubclass(value, cls)}
    for name in [name for name in used if name not in later]:
        _tell_global(name, used[name], told, seen)
    _note(told["definitions"], text)
    for name, value in later.items():
        _tell_global(name, value, told, seen)


def _tell_global(name: str, value: object, told: ClassText, seen: set[type]) -> None:
    """Something that a class's text uses: imported, defined, written as the value that it has now, or named."""
    if (line := _import_line(name, value)) is not None:
        _note(told["imports"], line)
    elif isinstance(value, type):
        _tell(value, told, seen)
    elif (written := literal(value)) is not None and told["constants"].setdefault(name, written) == written:
        return
    else:
        _note(told["missing"], name)


def _note(lines: list[str], line: str) -> None:
    if line not in lines:
        lines.append(line)


def _import_line(name: str, value: object) -> str | None:
    """The line that imports a value under a name. None for what lives in a notebook, a script or a function."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    module, own_name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module in (None, "__main__") or not _is_importable(module):
        return None
    if own_name is None or getattr(sys.modules.get(module), own_name, None) is not value:
        return None
    return f"from {module} import {own_name}" + ("" if own_name == name else f" as {name}")


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _source(cls: type) -> str | None:
    """The class's text. Python finds it in a file; in a notebook's cells it is found by way of a method."""
    try:
        return dedent("".join(source_lines(cls)[0])).rstrip()
    except (OSError, TypeError):
        return _source_around_a_method(cls)


def _source_around_a_method(cls: type) -> str | None:
    for method in vars(cls).values():
        if isinstance(method, FunctionType):
            lines = linecache.getlines(method.__code__.co_filename)
            return _class_around("".join(lines), cls.__name__, method.__code__.co_firstlineno)
    return None


def _class_around(text: str, name: str, line: int) -> str | None:
    try:
        nodes = list(ast.walk(tree_of(text)))
    except SyntaxError:  # a cell with magics in it
        return None
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name == name and node.lineno <= line <= (node.end_lineno or 0):
            return ast.get_source_segment(text, node)
    return None
