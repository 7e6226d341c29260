"""Python source as text: parsed by one thread at a time; and plain values and names written for scripts.

CPython shares one counter of the tree's depth between all threads: two that parse at once get a SystemError ("AST
constructor recursion depth mismatch", 3.11 and 3.12). `inspect` parses, too, to find a class.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from math import isinf, isnan
from symtable import SymbolTable, symtable
from textwrap import dedent
from threading import RLock
from types import FunctionType
from typing import Any, TypeVar

from labengine.record.hidden_text import hiding, with_escapes

T = TypeVar("T")

_one_at_a_time = RLock()
_MOST_TRIES = 20
"""A notebook's shell parses its cells without our lock."""


@lru_cache(maxsize=256)
def tree_of(text: str) -> ast.Module:
    """Return the tree of a source text, as ast.parse. Do not change the tree, which is shared."""
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

    Cached, because inspect parses the whole file for each class. Raises OSError if Python keeps no source.
    """
    return _alone(lambda: inspect.getsourcelines(owner))


def function_source(function: FunctionType) -> str | None:
    """Return the source of a function, moved to the left margin; None if Python keeps no source."""
    try:
        return dedent(_alone(lambda: inspect.getsource(function))).rstrip()
    except (OSError, TypeError):
        return None


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
    """Return numbers, strings, bytes, booleans, None, and containers of them as source. None for anything else."""
    try:
        return checked_literal(_written(value))
    except (RecursionError, TypeError, ValueError):
        return None


def checked_literal(text: str) -> str:
    """Return a literal from a file, rewritten. ValueError for any other text."""
    try:
        return _written(value_of(text))
    except (MemoryError, RecursionError, SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r} is not a plain value") from error


def quoted(text: str) -> str:
    """Return a string as a literal, in double quotes unless it contains one."""
    return with_escapes(repr(text) if '"' in text else '"' + repr("'" + text)[2:])


def checked_name(text: object) -> str:
    """Return an identifier unchanged. ValueError for anything else, and for one with invisible characters."""
    if not isinstance(text, str) or not text.isidentifier() or hiding(text):
        raise ValueError(f"{text!r} is not a name")
    return text


def checked_import(line: object) -> str:
    """Return a line that imports something, unchanged. ValueError for anything else."""
    if isinstance(line, str) and line.isprintable():
        with suppress(SyntaxError):
            statements = tree_of(line).body
            if len(statements) == 1 and isinstance(statements[0], ast.Import | ast.ImportFrom):
                return line
    raise ValueError(f"{line!r} is not an import")


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
    if value is None or type(value) in (bool, int, complex):
        return repr(value)
    if type(value) in (str, bytes):
        return with_escapes(repr(value))
    raise TypeError(f"{value!r} is not a plain value")


def _number(value: float) -> str:
    if isnan(value):
        raise ValueError("NaN has no literal")
    return repr(value).replace("inf", "1e999") if isinf(value) else repr(value)


# -- the names that a text uses, and the text at another depth ---------------------------------------------------------


FUTURE_ANNOTATIONS = "from __future__ import annotations"


def indented(text: str) -> str:
    """Return source indented by one level; multi-line strings keep their values, unless unused."""
    nodes = list(ast.walk(tree_of(text)))
    unused = {node.value for node in nodes if isinstance(node, ast.Expr)}
    kept = {line for node in nodes if node not in unused for line in _lines_inside(node)}
    lines = text.splitlines(keepends=True)
    return "".join(line if i in kept or not line.strip() else f"    {line}" for i, line in enumerate(lines, 1))


def _lines_inside(node: ast.AST) -> range:
    """Return the lines that begin inside a string literal; empty for any other node."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
        return range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    return range(0)


def outside_names(text: str) -> list[str]:
    """Return the names that a source text uses but does not define, builtins included, in order of appearance.

    Names in annotations are left out, because they need not exist.
    """
    table = symtable(f"{FUTURE_ANNOTATIONS}\n{text}", "text", "exec")
    own = {known.get_name() for known in table.get_symbols() if known.is_assigned() or known.is_imported()}
    return [name for name in dict.fromkeys(global_names(table)) if name not in own]


def global_names(table: SymbolTable) -> Iterator[str]:
    """Yield the names that are looked up in the module, except in annotations that stay strings."""
    if table.get_name() == "_annotation":
        return
    for symbol in table.get_symbols():
        is_from_outside = not symbol.is_assigned() if table.get_type() == "module" else symbol.is_global()
        if symbol.is_referenced() and is_from_outside:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from global_names(inner)
