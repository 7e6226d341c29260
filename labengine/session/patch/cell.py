"""A seam's method as the text of a cell: written out for editing, and compiled into classes.

The compiled text, which `inspect` finds, has the class's first line instead of the cell's magic, and the method
indented below it. So a line in a traceback is the line in the cell.
"""

from __future__ import annotations
import __future__ as future

import ast
import builtins
import linecache
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import count
from textwrap import dedent
from types import ModuleType
from typing import Any, TypeGuard

from labengine.config import ConfigError
from labengine.core.parts import Parts
from labengine.session.patch.override import patched_name, with_classes
from labengine.session.patch.seams import PartSeam
from labengine.session.source_text import indented, outside_names, parsed

_numbers = count(1)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
_SUPER = "super()"


# -- written out -------------------------------------------------------------------------------------------------------


def cell_text(seam: PartSeam) -> str:
    """Return the seam's source, ready to be edited in a cell, with explicit arguments for `super()`.

    The patch is a subclass of the class in use, where a copied `super()` would call the patched method itself.
    """
    text = seam.method.source
    if text.startswith("class "):  # an attribute, below the first line of its class
        return dedent("\n".join(text.splitlines()[1:]))
    if _SUPER not in text:
        return text
    calls = [node for node in ast.walk(parsed(text)) if _is_super(node)]
    lines = text.encode().splitlines(keepends=True)  # columns of the tree count bytes
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line, start = lines[call.lineno - 1], call.col_offset
        explicit = f"super({seam.owner.__name__}, {_first_parameter(text)})".encode()
        lines[call.lineno - 1] = line[:start] + explicit + line[start + len(_SUPER) :]
    return b"".join(lines).decode()


def _is_super(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Name) and node.func.id == "super"


def _first_parameter(text: str) -> str:
    function = parsed(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    return (*function.args.posonlyargs, *function.args.args)[0].arg


# -- read --------------------------------------------------------------------------------------------------------------


def parts_from_cell(seam: PartSeam, text: str, parts: Parts, known: Mapping[str, Any]) -> Parts:
    """Return the parts with a seam replaced by the definition in a cell.

    text: the method, at the margin, and the imports, helpers and constants that it needs. known: the notebook's names,
    for names that the seam's module lacks. Lines count from 2, because line 1 is the magic. Raises ConfigError, before
    anything changes, for a text without such a definition, for unknown names, and for a different signature.
    """
    source = f"\n{dedent(text)}"
    tree = _tree(source)
    definition = _definition(tree, seam)
    namespace = _namespace(seam)
    names = outside_names(source)
    _refuse_unknown_names(names, tree, seam, {*namespace, *known})
    namespace |= {name: known[name] for name in names if name in known and name not in namespace}
    above, method = _split(source, definition)
    made = {field: _made(getattr(parts, field), seam, above, method, namespace) for field in seam.fields}
    return with_classes(parts, seam.name, made)


def _tree(source: str) -> ast.Module:
    try:
        compile(source, "cell", "exec", dont_inherit=True)
        return parsed(source)
    except (SyntaxError, ValueError) as error:
        line, message = getattr(error, "lineno", None), getattr(error, "msg", str(error))
        text = (getattr(error, "text", None) or "").strip()
        raise ConfigError(f"line {line or 1}: {message}" + (f": {text}" if text else "")) from None


def _definition(tree: ast.Module, seam: PartSeam) -> _Definition:
    """Return the statement that defines the seam. ConfigError unless there is exactly one."""
    found = [node for node in tree.body if isinstance(node, _Definition) and seam.name in _defined(node)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"the cell defines {seam.name} {len(found)} times: keep only one")
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if classes:
        raise ConfigError(
            f"the cell defines class {classes[0]}: write only the method, or run the class in a separate cell and "
            f"call lab.rerun({classes[0]})"
        )
    others = [name for node in tree.body if isinstance(node, _Definition) for name in _defined(node)]
    has = f"it defines {', '.join(others)}" if others else "it defines nothing"
    raise ConfigError(f"the cell must define {seam.name} to replace {seam}: {has}")


def _defined(node: _Definition) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _namespace(seam: PartSeam) -> dict[str, Any]:
    """Return the names in the seam's module."""
    module = sys.modules.get(seam.owner.__module__)
    return {} if module is None else {name: value for name, value in vars(module).items() if not _is_dunder(name)}


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _refuse_unknown_names(names: Iterable[str], tree: ast.Module, seam: PartSeam, known: set[str]) -> None:
    for name in names:
        if name not in known and name not in (*vars(builtins), "__class__", "__name__"):
            used = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
            line = next((node.lineno for node in used if node.id == name), None)
            own = {node.id for node in used} | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
            near = get_close_matches(name, (known | own) - {name}, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"line {line}: neither {seam.owner.__module__} nor this notebook defines {name}{hint}")


def _split(source: str, definition: _Definition) -> tuple[str, str]:
    """Return the source without the definition, and the definition alone; each line keeps its number."""
    lines = source.splitlines(keepends=True)
    decorators = getattr(definition, "decorator_list", [])
    first, last = min(node.lineno for node in (definition, *decorators)), definition.end_lineno or 0
    inside = range(first - 1, last)
    above = "".join("\n" if i in inside else line for i, line in enumerate(lines))
    return above, "".join(line if i in inside else "\n" for i, line in enumerate(lines[:last]))


# -- made --------------------------------------------------------------------------------------------------------------


def _made(base: type, seam: PartSeam, above: str, method: str, namespace: Mapping[str, Any]) -> type:
    """Return a subclass of `base` with the method, in a new module."""
    number, name = next(_numbers), patched_name(base)
    filename = f"<patch {number} of {seam}>"
    module = ModuleType(f"labengine_patch_{number}", f"The cell that replaces {seam}.")
    module.__file__ = filename
    vars(module).update(namespace)
    vars(module)[base.__name__] = base
    text = f"class {name}({base.__name__}):{indented(method)}"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    for part in (above, text):
        code = compile(part, filename, "exec", flags=future.annotations.compiler_flag, dont_inherit=True)
        exec(code, vars(module))
    sys.modules[module.__name__] = module
    made = vars(module)[name]
    assert isinstance(made, type)
    return made
