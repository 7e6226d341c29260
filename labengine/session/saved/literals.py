"""Plain values and names as Python source: evaluating it gives the value and does nothing else."""

from __future__ import annotations

from math import isinf, isnan

from labengine.session.reasons.source_text import value_of


def literal(value: object) -> str | None:
    """Return numbers, texts, bytes, booleans, None, and containers of them as source. None for anything else."""
    try:
        return checked_literal(_written(value))
    except (RecursionError, TypeError, ValueError):
        return None


def checked_literal(text: str) -> str:
    """Return a literal from a file, written anew. ValueError for text that is no literal."""
    try:
        return _written(value_of(text))
    except (MemoryError, RecursionError, SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r} is no plain value") from error


def quoted(text: str) -> str:
    """Return a text as a literal, in double quotes unless it holds one."""
    return repr(text) if '"' in text else '"' + repr("'" + text)[2:]


def checked_name(text: object) -> str:
    """Return an identifier unchanged. ValueError for anything else."""
    if not isinstance(text, str) or not text.isidentifier():
        raise ValueError(f"{text!r} is no name")
    return text


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
