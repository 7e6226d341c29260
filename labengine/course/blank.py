"""Blank answers: a function or a class that the reader has not written yet."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType

_SILENT = {"RESUME", "NOP", "COPY_FREE_VARS", "RETURN_VALUE", "NOT_TAKEN"}
"""Instructions that compute nothing."""
_LOADS = {"LOAD_CONST", "RETURN_CONST", "LOAD_COMMON_CONSTANT"}


def is_blank(answer: object) -> bool:
    """Return True for no answer, a function that returns None or ... at once, and a class without another method."""
    if answer is None or answer is ...:
        return True
    if isinstance(answer, FunctionType):
        return _is_blank_code(answer.__code__)
    if isinstance(answer, type):
        own = [value for name, value in vars(answer).items() if not _is_of_every_class(name)]
        return all(isinstance(value, FunctionType) and is_blank(value) for value in own)
    return False


def _is_blank_code(code: CodeType) -> bool:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS and instruction.argval in (None, ...):
            continue
        if instruction.opname not in _SILENT:
            return False
    return True


def _is_of_every_class(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
