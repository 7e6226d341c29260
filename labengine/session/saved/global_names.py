"""Which names of its module a class's text needs, and what they stand for where it was written."""

from __future__ import annotations
import __future__ as future

import sys
from collections.abc import Iterator
from symtable import SymbolTable, symtable
from types import FunctionType
from typing import Any

ANNOTATIONS_LATER = "from __future__ import annotations"


def used_globals(cls: type, text: str) -> dict[str, Any]:
    """The global names in a class's text, as far as its module or the function around it gives them a meaning."""
    known = dict(vars(sys.modules[cls.__module__])) if cls.__module__ in sys.modules else {}
    for function in _functions(cls):
        known |= _enclosed(function)
    later = f"{ANNOTATIONS_LATER}\n" if leaves_annotations(cls) else ""
    return {name: known[name] for name in dict.fromkeys(_names(symtable(later + text, cls.__name__, "exec")))
            if name in known}  # fmt: skip


def leaves_annotations(cls: type) -> bool:
    """True where annotations are not looked at, so that what they name need not be there."""
    return any(function.__code__.co_flags & future.annotations.compiler_flag for function in _functions(cls))


def _functions(cls: type) -> Iterator[FunctionType]:
    for value in vars(cls).values():
        for function in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
            if isinstance(function, FunctionType) and function.__module__ == cls.__module__:
                yield function


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """What the function around it has given it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _names(table: SymbolTable) -> Iterator[str]:
    """Names that are looked up where the module's names are; annotations that stay text are not."""
    if table.get_name() == "_annotation":
        return
    for symbol in table.get_symbols():
        is_from_outside = not symbol.is_assigned() if table.get_type() == "module" else symbol.is_global()
        if symbol.is_referenced() and is_from_outside:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _names(inner)
