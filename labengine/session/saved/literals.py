"""Plain values and names as Python writes them, such that nothing else comes of reading them."""

from __future__ import annotations

from math import isinf, isnan

from labengine.session.reasons.source_text import value_of


def literal(value: object) -> str | None:
    """Numbers, texts, bytes, truths, None, and lists, tuples, dicts and sets of them. None for anything else."""
    try:
        return checked_literal(_written(value))
    except (RecursionError, TypeError, ValueError):
        return None


def checked_literal(text: str) -> str:
    """A literal that somebody else has written, anew. ValueError for text that is none."""
    try:
        return _written(value_of(text))
    except (MemoryError, RecursionError, SyntaxError, TypeError) as error:
        raise ValueError(f"{text!r} is no plain value") from error


def quoted(text: str) -> str:
    """In double quotes where Python would not have to escape one."""
    return repr(text) if '"' in text else '"' + repr("'" + text)[2:]


def checked_name(text: object) -> str:
    """The name itself. ValueError for text that is none."""
    if not isinstance(text, str) or not text.isidentifier():
        raise ValueError(f"{text!r} is no name")
    return text


def _written(value: object) -> str:
    kind = type(value)
    if kind is dict:
        return f"{{{', '.join(f'{_written(k)}: {_written(v)}' for k, v in value.items())}}}"  # type: ignore[attr-defined]
    if kind is float:
        return _number(value)  # type: ignore[arg-type]
    if value is None or kind in (bool, int, complex, str, bytes):
        return repr(value)
    if kind not in (list, tuple, set) or value == set():
        raise TypeError(f"{value!r} is no plain value")
    inner = [_written(one) for one in value]  # type: ignore[attr-defined]
    if kind is tuple:
        return f"({', '.join(inner)}{',' * (len(inner) == 1)})"
    return f"[{', '.join(inner)}]" if kind is list else f"{{{', '.join(sorted(inner))}}}"


def _number(value: float) -> str:
    if isnan(value):
        raise ValueError("no literal stands for NaN")
    return repr(value).replace("inf", "1e999") if isinf(value) else repr(value)
