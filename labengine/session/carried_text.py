"""The Python text that gives a script a class or a function: its import, or its source and all names it uses."""

from __future__ import annotations
import __future__ as future

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from symtable import symtable
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

from labengine.session.source_text import (
    FUTURE_ANNOTATIONS,
    function_source,
    global_names,
    indented,
    literal,
    outside_names,
    source_lines,
    tree_of,
)

ClassText = dict[str, Any]
"""JSON types. name: the class's or the function's. imports: lines. constants: plain values that the source uses, by
name, as literals. definitions: sources of classes and functions, in the order of their dependencies; empty if imported.
missing: names in the source that can neither be imported nor defined by a source or a plain value."""


def class_text(cls: type) -> ClassText:
    """Return the text that gives a script a class: its import, or its source."""
    return _Carried(cls.__name__).with_value(cls.__name__, cls)


def function_text(function: FunctionType) -> ClassText:
    """Return the text that gives a script a function: its import, or its source; `missing` names it without either."""
    return _Carried(function.__name__).with_value(function.__name__, function)


def lambda_text(function: FunctionType) -> tuple[str, ClassText]:
    """Return a lambda's source, and the text of the names in it. No source if its statement has several lambdas."""
    carried, found = _Carried("lambda"), [*_lambdas(function_source(function) or "")]
    if len(found) != 1:
        return "", carried.found
    carried.add_used(found[0], function)
    return found[0], carried.found


def _lambdas(text: str) -> Iterator[str]:
    with suppress(SyntaxError, ValueError):
        yield from (ast.unparse(node) for node in ast.walk(tree_of(text)) if isinstance(node, ast.Lambda))


class _Carried:
    """Collects what a script needs, each thing once."""

    def __init__(self, name: str) -> None:
        self.found: ClassText = {"name": name, "imports": [], "constants": {}, "definitions": [], "missing": []}
        self._seen: set[int] = set()

    def with_value(self, name: str, value: Any) -> ClassText:
        """Add a value under a name: its import, definition or literal, or else the name to `missing`."""
        if (line := _import_line(name, value)) is not None:
            self._note("imports", line)
        elif isinstance(value, type):
            self._add_class(value)
            self._add_alias(name, value.__name__)
        elif isinstance(function := inspect.unwrap(value) if callable(value) else None, FunctionType):
            self._add_function(name, function)
        elif (written := literal(value)) is not None:
            if self.found["constants"].setdefault(name, written) != written:
                self._note("missing", name)
        elif (line := _holding_line(name, value)) is not None:
            self._note("imports", line)
        else:
            self._note("missing", name)
        return self.found

    def _add_class(self, cls: type) -> None:
        if id(cls) in self._seen:
            return
        self._seen.add(id(cls))
        text = _source(cls)
        if text is None:
            self._note("missing", cls.__name__)
            return
        if leaves_annotations(cls):
            self._note("imports", FUTURE_ANNOTATIONS)
        used = used_globals(cls, text)
        subclasses = {name: value for name, value in used.items() if isinstance(value, type) and issubclass(value, cls)}
        for name in [name for name in used if name not in subclasses]:
            self.with_value(name, used[name])
        self._note("definitions", text)
        for name, value in subclasses.items():
            self.with_value(name, value)

    def _add_function(self, name: str, function: FunctionType) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        text = _function_text(name, function)
        if text is None:
            self._note("missing", name)
            return
        if function.__code__.co_flags & future.annotations.compiler_flag:
            self._note("imports", FUTURE_ANNOTATIONS)
        self.add_used(text, function)
        self._note("definitions", text)
        if text.startswith(("def ", "async def ", "@")):
            self._add_alias(name, function.__name__)

    def add_used(self, text: str, function: FunctionType) -> None:
        """Add the names that a function's text uses from its module, its notebook, or its enclosing function."""
        known = {**function.__globals__, **_enclosed(function)}
        for used in outside_names(text):
            if used in known:
                self.with_value(used, known[used])

    def _add_alias(self, name: str, own_name: str) -> None:
        if name != own_name:
            self._note("definitions", f"{name} = {own_name}")

    def _note(self, where: str, line: str) -> None:
        if line not in self.found[where]:
            self.found[where].append(line)


def _import_line(name: str, value: object) -> str | None:
    """Return the line that imports a value under a name. None for a value from a notebook, a script or a function."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
    module, own_name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module in (None, "__main__") or not _is_importable(module):
        return None
    if own_name is None or getattr(sys.modules.get(module), own_name, None) is not value:
        return None
    return f"from {module} import {own_name}" + ("" if own_name == name else f" as {name}")


def _holding_line(name: str, value: object) -> str | None:
    """Return the line that imports a value from the module that assigns it, such as the edition VLLM."""
    for module in [*sys.modules.values()]:
        held = [own for own, one in [*getattr(module, "__dict__", {}).items()] if one is value]
        for own in held:
            if _is_importable(module.__name__) and own in _assigned_names(module):
                return f"from {module.__name__} import {own}" + ("" if own == name else f" as {name}")
    return None


def _assigned_names(module: ModuleType) -> set[str]:
    """Return the names that a module's text assigns; imported names belong to another module."""
    with suppress(OSError, TypeError, SyntaxError, ValueError):
        statements = tree_of(inspect.getsource(module)).body
        nodes = [node for one in statements if isinstance(one, (ast.Assign, ast.AnnAssign)) for node in ast.walk(one)]
        return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return set()


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _function_text(name: str, function: FunctionType) -> str | None:
    """Return the source of a function: a `def`, or a lambda and a line that assigns it to the name."""
    text = function_source(function)
    if text is None:
        return None
    try:
        [statement] = tree_of(text).body
    except (SyntaxError, ValueError):
        return None
    match statement:
        case ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own) if own == function.__name__:
            return text
        case ast.Assign(targets=[ast.Name(id=bound)], value=ast.Lambda()) if bound == name:
            return text
    return None


def _source(cls: type) -> str | None:
    """Return the class's source. Python finds it in a file; in a notebook's cells it is found through a method."""
    try:
        return dedent("".join(source_lines(cls)[0])).rstrip()
    except (OSError, TypeError):
        return _source_by_method(cls)


def _source_by_method(cls: type) -> str | None:
    methods = [method for method in vars(cls).values() if isinstance(method, FunctionType)]
    for method in methods:
        text = "".join(linecache.getlines(method.__code__.co_filename))
        for node in _classes_of(text, cls.__name__):
            if node.lineno <= method.__code__.co_firstlineno <= (node.end_lineno or 0):
                return _segment(text, node)
    found = (_written_class(cls, method) for method in methods)
    return next(filter(None, found), None) or _source_by_names(cls)


def _source_by_names(cls: type) -> str | None:
    """Return the text of a class without methods, from the newest cell with a class of that name and attributes."""
    own = {name for name in vars(cls) if not name.startswith("__")}
    for entry in reversed([*linecache.cache.values()]):
        match entry:
            case (_, None, lines, _):
                for node in _classes_of(text := "".join(lines), cls.__name__):
                    if own <= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}:
                        return _segment(text, node)
    return None


def _written_class(cls: type, function: FunctionType) -> str | None:
    """Return the text of a class that was generated around a function with a source; None for any other class."""
    if [name for name in vars(cls) if not name.startswith("__")] != [function.__name__]:
        return None
    text = function_source(function)
    if text is None:
        return None
    bases = ", ".join(base.__name__ for base in cls.__bases__)
    return f"class {cls.__name__}({bases}):\n{indented(text)}".rstrip()


def _classes_of(text: str, name: str) -> list[ast.ClassDef]:
    if f"class {name}" not in text:
        return []
    with suppress(SyntaxError):  # a cell with magics in it
        nodes = ast.walk(tree_of(text))
        return [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
    return []


def _segment(text: str, node: ast.ClassDef) -> str:
    """Return the text of a class with its decorators, moved to the left margin."""
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno])).rstrip()


# -- the global names that a class's text uses -------------------------------------------------------------------------


def used_globals(cls: type, text: str) -> dict[str, Any]:
    """Return the global names in a class's source, with the values that its methods find."""
    known = {base.__name__: base for base in cls.__bases__}
    known |= dict(vars(sys.modules[cls.__module__])) if cls.__module__ in sys.modules else {}
    for function in _functions(cls):
        known |= function.__globals__ | _enclosed(function)
    future = f"{FUTURE_ANNOTATIONS}\n" if leaves_annotations(cls) else ""
    used = dict.fromkeys(global_names(symtable(future + text, cls.__name__, "exec")))
    return {name: known[name] for name in used if name in known}


def leaves_annotations(cls: type) -> bool:
    """True if annotations are not evaluated, so that the names in them need not exist."""
    return any(function.__code__.co_flags & future.annotations.compiler_flag for function in _functions(cls))


def _functions(cls: type) -> Iterator[FunctionType]:
    for value in vars(cls).values():
        for function in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
            if isinstance(function, FunctionType) and function.__module__ == cls.__module__:
                yield function


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """Return the values of a function's closure, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
