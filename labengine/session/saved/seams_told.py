"""What a saved session says of the methods that decided, checked before a view reads it field by field."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from labengine.trace.errors import TraceError

_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("seam", "class", "module", "reason", "source"), (str,)),
    "line": (int, NoneType),
    "base": (dict, NoneType),
    "is_custom": (bool,),
}
_BASE = ("class", "source", "reason")


def seams_told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts["code"], as `seams_of` made it; empty where a file has none. TraceError for anything else."""
    code = facts.get("code", {})
    try:
        for seam in _typed(code, dict).values():
            _check(seam)
            for method in _typed(seam.get("methods", []), list):
                _check(method)
    except (LookupError, TypeError) as error:
        raise TraceError(f"the trace does not tell what decided its events ({error}): get it again") from None
    return dict(code)


def _check(method: Any) -> None:
    for name, types in _TYPES.items():
        _typed(_typed(method, dict)[name], *types)
    for name in _BASE if method["base"] is not None else ():
        _typed(method["base"][name], str)


def _typed(value: Any, *types: type) -> Any:
    if type(value) not in types:
        raise TypeError(f"{str(value)[:40]!r} is no {' or '.join(t.__name__ for t in types)}")
    return value
