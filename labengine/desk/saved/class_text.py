"""The text of a class that somebody wrote, in a cell perhaps, with the imports that it needs to stand alone."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from importlib.util import find_spec
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

ClassText = dict[str, Any]
"""JSON-able. name: what to call it. imports: lines. definitions: class texts, bases first; empty when it is imported.
missing: names that its text uses and that nobody can import."""


def class_text(cls: type) -> ClassText:
    """How a script comes by a class: by importing it, or by its own text."""
    told: ClassText = {"name": cls.__name__, "imports": [], "definitions": [], "missing": []}
    _tell(cls, told)
    return told


def _tell(cls: type, told: ClassText) -> None:
    if (line := _import_line(cls.__name__, cls)) is not None:
        _note(told["imports"], line)
        return
    text = _source(cls)
    if text is None:
        _note(told["missing"], cls.__name__)
        return
    for name, value in _used(cls, text).items():
        if isinstance(value, type) and _import_line(name, value) is None and value is not cls:
            _tell(value, told)
        elif (line := _import_line(name, value)) is not None:
            _note(told["imports"], line)
        elif value is not cls:
            _note(told["missing"], name)
    _note(told["definitions"], text)


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


def _used(cls: type, text: str) -> dict[str, Any]:
    """The names of its module that a class's text mentions, and what they stand for."""
    known = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    names = dict.fromkeys(node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    return {name: known[name] for name in names if name in known}


def _source(cls: type) -> str | None:
    """The class's text. Python finds it in a file; in a notebook's cells it is found by way of a method."""
    try:
        return dedent(inspect.getsource(cls)).rstrip()
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
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # a cell with magics in it
        return None
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name == name and node.lineno <= line <= (node.end_lineno or 0):
            return ast.get_source_segment(text, node)
    return None
