"""Python source as text: read by one thread at a time, and written for scripts: plain values and users' classes.

CPython counts the depth of the tree that it builds in one place for all threads: two that parse at once get a
SystemError ("AST constructor recursion depth mismatch", 3.11 and 3.12). `inspect` parses, too, to find a class.
"""

from __future__ import annotations
import __future__ as future

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from math import isinf, isnan
from symtable import SymbolTable, symtable
from textwrap import dedent
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from labengine.record.wording import hidden_character

T = TypeVar("T")

_one_at_a_time = RLock()
_MOST_TRIES = 20
"""A notebook's shell parses its cells without our lock."""


@lru_cache(maxsize=256)
def tree_of(text: str) -> ast.Module:
    """Return the tree of a source text, as ast.parse. The tree is shared: do not change it."""
    return _alone(lambda: ast.parse(text))


def parsed(text: str) -> ast.Module:
    """Return the tree of a source text, as ast.parse; the caller may change it."""
    return _alone(lambda: ast.parse(text))


def value_of(text: str) -> Any:
    """Return the value of a literal, as ast.literal_eval."""
    return _alone(lambda: ast.literal_eval(text))


@lru_cache(maxsize=256)
def source_lines(owner: type) -> tuple[list[str], int]:
    """Return the lines of a class's text and its first line's number, as inspect.getsourcelines.

    Kept, because inspect parses the whole file for each class. Raises OSError where Python keeps no text.
    """
    return _alone(lambda: inspect.getsourcelines(owner))


def _alone(call: Callable[[], T]) -> T:
    with _one_at_a_time:
        for _ in range(_MOST_TRIES - 1):
            try:
                return call()
            except SystemError:
                continue
        return call()


# -- plain values and names: evaluating the text gives the value and does nothing else ---------------------------------


def literal(value: object) -> str | None:
    """Return numbers, texts, bytes, booleans, None, and containers of them as source. None for anything else."""
    try:
        return checked_literal(_written(value))
    except (RecursionError, TypeError, ValueError):
        return None


def checked_literal(text: str) -> str:
    """Return a literal from a file, rewritten. ValueError for text that is no literal."""
    try:
        return _written(value_of(text))
    except (MemoryError, RecursionError, SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r} is no plain value") from error


def quoted(text: str) -> str:
    """Return a text as a literal, in double quotes unless it holds one."""
    return repr(text) if '"' in text else '"' + repr("'" + text)[2:]


def checked_name(text: object) -> str:
    """Return an identifier unchanged. ValueError for anything else, and for one that is not seen as it is."""
    if not isinstance(text, str) or not text.isidentifier() or hidden_character(text):
        raise ValueError(f"{text!r} is no name")
    return text


def checked_import(line: object) -> str:
    """Return a line that imports something, unchanged. ValueError for anything else."""
    if isinstance(line, str) and line.isprintable():
        with suppress(SyntaxError):
            statements = tree_of(line).body
            if len(statements) == 1 and isinstance(statements[0], ast.Import | ast.ImportFrom):
                return line
    raise ValueError(f"{line!r} is no import")


def _written(value: object) -> str:
    if type(value) is dict:
        return f"{{{', '.join(f'{_written(k)}: {_written(v)}' for k, v in value.items())}}}"
    if type(value) is float:
        return _number(value)
    if type(value) is list:
        return f"[{', '.join(map(_written, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    if type(value) is set and value:
        return f"{{{', '.join(sorted(map(_written, value)))}}}"
    if value is None or type(value) in (bool, int, complex, str, bytes):
        return repr(value)
    raise TypeError(f"{value!r} is no plain value")


def _number(value: float) -> str:
    if isnan(value):
        raise ValueError("no literal stands for NaN")
    return repr(value).replace("inf", "1e999") if isinf(value) else repr(value)


# -- the source of a class, with the imports and values that it needs --------------------------------------------------


FUTURE_ANNOTATIONS = "from __future__ import annotations"

ClassText = dict[str, Any]
"""JSON types. name: the class's. imports: lines. constants: plain values that its source uses, by name, as literals.
definitions: sources of classes, bases first; empty when it is imported. missing: names that its source uses, that
cannot be imported and that are no plain values."""


def class_text(cls: type) -> ClassText:
    """Return the text by which a script gets a class: its import, or its source."""
    found: ClassText = {"name": cls.__name__, "imports": [], "constants": {}, "definitions": [], "missing": []}
    _add_class(cls, found, set())
    return found


def function_text(function: FunctionType) -> ClassText:
    """Return the text by which a script gets a function: its import, or its source; it is in `missing` without one."""
    name = function.__name__
    found: ClassText = {"name": name, "imports": [], "constants": {}, "definitions": [], "missing": []}
    if (line := _import_line(name, function)) is not None:
        found["imports"].append(line)
        return found
    try:
        text = dedent(_alone(lambda: inspect.getsource(function))).rstrip()
    except (OSError, TypeError):
        text = ""
    if not name.isidentifier() or not text.startswith("def "):
        found["missing"].append(name)
        return found
    known = {**function.__globals__, **_enclosed(function)}
    for used in outside_names(text):
        if used in known:
            _add_global(used, known[used], found, set())
    found["definitions"].append(text)
    return found


def _add_class(cls: type, found: ClassText, seen: set[type]) -> None:
    if cls in seen:
        return
    seen.add(cls)
    if (line := _import_line(cls.__name__, cls)) is not None:
        _note(found["imports"], line)
        return
    text = _source(cls)
    if text is None:
        _note(found["missing"], cls.__name__)
        return
    if leaves_annotations(cls):
        _note(found["imports"], FUTURE_ANNOTATIONS)
    used = used_globals(cls, text)
    subclasses = {name: value for name, value in used.items() if isinstance(value, type) and issubclass(value, cls)}
    for name in [name for name in used if name not in subclasses]:
        _add_global(name, used[name], found, seen)
    _note(found["definitions"], text)
    for name, value in subclasses.items():
        _add_global(name, value, found, seen)


def _add_global(name: str, value: object, found: ClassText, seen: set[type]) -> None:
    """Add something that a class's source uses: its import, its definition, its present value, or its name."""
    if (line := _import_line(name, value)) is not None:
        _note(found["imports"], line)
    elif isinstance(value, type):
        _add_class(value, found, seen)
    elif (written := literal(value)) is not None and found["constants"].setdefault(name, written) == written:
        return
    else:
        _note(found["missing"], name)


def _note(lines: list[str], line: str) -> None:
    if line not in lines:
        lines.append(line)


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


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _source(cls: type) -> str | None:
    """Return the class's source. Python finds it in a file; in a notebook's cells a method leads to it."""
    try:
        return dedent("".join(source_lines(cls)[0])).rstrip()
    except (OSError, TypeError):
        return _source_by_method(cls)


def _source_by_method(cls: type) -> str | None:
    for method in vars(cls).values():
        if isinstance(method, FunctionType):
            lines = linecache.getlines(method.__code__.co_filename)
            text = _enclosing_class("".join(lines), cls.__name__, method.__code__.co_firstlineno)
            return _written_class(cls, method) if text is None else text
    return None


def _written_class(cls: type, function: FunctionType) -> str | None:
    """Return the text of a class that was made around a function, which has a text of its own; None for another one."""
    if [name for name in vars(cls) if not name.startswith("__")] != [function.__name__]:
        return None
    try:
        text = dedent(_alone(lambda: inspect.getsource(function)))
    except (OSError, TypeError):
        return None
    bases = ", ".join(base.__name__ for base in cls.__bases__)
    return f"class {cls.__name__}({bases}):\n{indented(text)}".rstrip()


def indented(text: str) -> str:
    """Return source moved right by one level; a text of several lines in it keeps its value, unless it is unused."""
    nodes = list(ast.walk(tree_of(text)))
    unused = {node.value for node in nodes if isinstance(node, ast.Expr)}
    kept = {line for node in nodes if node not in unused for line in _lines_inside(node)}
    lines = text.splitlines(keepends=True)
    return "".join(line if i in kept or not line.strip() else f"    {line}" for i, line in enumerate(lines, 1))


def _lines_inside(node: ast.AST) -> range:
    """Return the lines that begin inside a literal text; none for any other node."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
        return range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _enclosing_class(text: str, name: str, line: int) -> str | None:
    try:
        nodes = list(ast.walk(tree_of(text)))
    except SyntaxError:  # a cell with magics in it
        return None
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name == name and node.lineno <= line <= (node.end_lineno or 0):
            return ast.get_source_segment(text, node)
    return None


# -- the global names that a class's text uses -------------------------------------------------------------------------


def used_globals(cls: type, text: str) -> dict[str, Any]:
    """Return the global names in a class's source, with their values in its module or in the function around it."""
    known = {base.__name__: base for base in cls.__bases__}
    known |= dict(vars(sys.modules[cls.__module__])) if cls.__module__ in sys.modules else {}
    for function in _functions(cls):
        known |= _enclosed(function)
    future = f"{FUTURE_ANNOTATIONS}\n" if leaves_annotations(cls) else ""
    return {name: known[name] for name in dict.fromkeys(_names(symtable(future + text, cls.__name__, "exec")))
            if name in known}  # fmt: skip


def leaves_annotations(cls: type) -> bool:
    """True where annotations are not evaluated, so that the names in them need not exist."""
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


def outside_names(text: str) -> list[str]:
    """Return the names that a source text uses and does not define, builtins among them, in order of appearance.

    Those in annotations are left out: they need not exist.
    """
    table = symtable(f"{FUTURE_ANNOTATIONS}\n{text}", "text", "exec")
    own = {known.get_name() for known in table.get_symbols() if known.is_assigned() or known.is_imported()}
    return [name for name in dict.fromkeys(_names(table)) if name not in own]


def _names(table: SymbolTable) -> Iterator[str]:
    """Yield the names that are looked up among the module's; not those in annotations that stay text."""
    if table.get_name() == "_annotation":
        return
    for symbol in table.get_symbols():
        is_from_outside = not symbol.is_assigned() if table.get_type() == "module" else symbol.is_global()
        if symbol.is_referenced() and is_from_outside:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _names(inner)
