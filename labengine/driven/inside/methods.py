"""Methods of the engine's classes: their source, and replacements by a text."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from types import TracebackType
from typing import Any

PACKAGES = ("vllm", "nanovllm", "minisgl", "sglang")
"""The engines' packages."""


def find(name: str) -> tuple[type, str]:
    """Return the class that defines a method, and the method's name. name: Class.method. Raises LookupError."""
    owner, _, method = name.rpartition(".")
    if not owner:
        raise LookupError(f"{name!r} is no method: name one as Class.method, because no function can be replaced")
    found = {one for one in _classes() if one.__name__ == owner and hasattr(one, method)}
    if len(found) != 1:
        hint = _near(name) or f"; the classes of these modules are known: {', '.join(PACKAGES)}"
        raise LookupError(f"the engine has {len(found) or 'no'} {'classes' if found else 'method'} {name!r}{hint}")
    return next(one for one in found.pop().__mro__ if method in vars(one)), method


def _near(name: str) -> str:
    """Return a clause with the methods that have a similar name; empty without one."""
    keys = ((one.__name__, key) for one in _classes() for key in vars(one))
    known = {f"{owner}.{key}" for owner, key in keys if key == "__init__" or not key.startswith("__")}
    near = get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def described(name: str) -> dict[str, Any]:
    """Return a method's class, module, file, first line and text; only a `refusal` if there is none."""
    try:
        owner, method = find(name)
        function = inspect.unwrap(getattr(owner, method))
        lines, line = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function)
    except (LookupError, OSError, TypeError) as error:
        return {"refusal": str(error)}
    place = {"class": owner.__name__, "module": owner.__module__, "file": file, "line": line}
    return {**place, "method": f"{owner.__name__}.{method}", "text": inspect.cleandoc("\n" + "".join(lines))}


def replace(method: str, text: str, file: str) -> None:
    """Replace a method by the function of its name in a text, which knows the names of the method's module.

    file: the text's name in tracebacks; its first line there is the line before the text.
    """
    owner, name = find(method)
    module = sys.modules[owner.__module__]
    linecache.cache[file] = (len(text), None, ["\n", *text.splitlines(keepends=True)], file)
    made: dict[str, Any] = {}
    exec(compile(_in_class(text, name), file, "exec"), vars(module), made)
    setattr(owner, name, _named(made["_made"](owner), f"{owner.__name__}.{name}"))


def _named(function: Any, name: str) -> Any:
    """Give a function its name in tracebacks."""
    code = getattr(function, "__code__", None)
    if code is not None and hasattr(code, "co_qualname"):
        function.__code__ = code.replace(co_qualname=name)
        function.__qualname__ = name
    return function


def _in_class(text: str, name: str) -> ast.Module:
    """Return a function of a class, in which `super()` works, that returns the text's function of this name."""
    body = ast.parse(text).body
    if not any(isinstance(one, ast.FunctionDef) and one.name == name for one in body):
        raise LookupError(f"the text defines no function {name}")
    made = ast.parse(f"def _made(__class__):\n    return {name}")
    function = made.body[0]
    assert isinstance(function, ast.FunctionDef)
    for one in body:
        ast.increment_lineno(one)
    function.body[:0] = body
    return made


def raising(error: BaseException) -> str:
    """Return the innermost method of the engine, or of a replacement, that an exception came from."""
    names = [_name(one.f_code) for one in _frames(error.__traceback__) if _package(one) in PACKAGES]
    return next((name for name in reversed(names) if "<" not in name), "the driver")


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _name(code: Any) -> str:
    return str(getattr(code, "co_qualname", code.co_name)).removeprefix("_made.<locals>.")


def _frames(trace: TracebackType | None) -> Iterator[Any]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _classes() -> Iterator[type]:
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in PACKAGES:
            for one in list(vars(module).values()):
                if isinstance(one, type) and one.__module__ == module_name:
                    yield one
