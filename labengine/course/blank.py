"""Detection of blank answers: a function or a class that the reader has not written yet."""

from __future__ import annotations

import ast
import dis
import inspect
from textwrap import dedent
from types import CodeType, FunctionType

_SILENT = {"RESUME", "NOP", "COPY_FREE_VARS", "RETURN_VALUE", "NOT_TAKEN"}
"""Instructions that compute nothing."""
NO_RETURN = "It always returns None: is a `return` with a value missing?"
_LOADS = {"LOAD_CONST", "RETURN_CONST", "LOAD_COMMON_CONSTANT"}


def is_blank(answer: object) -> bool:
    """Return True for None, a function whose body is `...`, and a class without any other method."""
    if answer is None or answer is ...:
        return True
    if isinstance(answer, FunctionType):
        return _is_blank_code(answer.__code__) and not _says_return(answer)
    if isinstance(answer, type):
        own = [value for name, value in vars(answer).items() if not _is_of_every_class(name)]
        return all(isinstance(value, FunctionType) and is_blank(value) for value in own)
    return False


def lacks_return(answer: object, asked: object) -> bool:
    """Return True if a function, or a method of a class, always returns None where the solution (`asked`) does not."""
    if isinstance(answer, FunctionType) and isinstance(asked, FunctionType):
        return _returns_only_none(answer.__code__) and not _returns_only_none(asked.__code__)
    if isinstance(answer, type) and isinstance(asked, type):
        return any(lacks_return(value, vars(asked).get(name)) for name, value in vars(answer).items())
    return False


def _returns_only_none(code: CodeType) -> bool:
    instructions = [*dis.get_instructions(code)]
    pairs = zip([None, *instructions], instructions, strict=False)
    found = [one if one.opname == "RETURN_CONST" else last for last, one in pairs if one.opname.startswith("RETURN_")]
    return bool(found) and all(one is not None and one.opname in _LOADS and one.argval is None for one in found)


def _says_return(function: FunctionType) -> bool:
    """Return True if a function's source has a `return` statement."""
    try:
        [definition] = ast.parse(dedent(inspect.getsource(function))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return False
    return any(isinstance(node, ast.Return) for node in ast.walk(definition))


def _is_blank_code(code: CodeType) -> bool:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS and instruction.argval in (None, ...):
            continue
        if instruction.opname not in _SILENT:
            return False
    return True


def _is_of_every_class(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
