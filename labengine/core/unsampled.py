"""UNSAMPLED: a placeholder for a token that is still to be sampled. Reading its value raises UnsampledError."""

from __future__ import annotations

from typing import Any, NoReturn, cast


class UnsampledError(Exception):
    """A decision needed the value of a token before it was sampled, or looked where such a token may be."""

    def __init__(self, why: str = "a decision asked for a token that is not sampled yet") -> None:
        super().__init__(why)


class _Unsampled:
    """A token that can be stored, copied and counted, and nothing else: no decision can depend on it unnoticed."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> NoReturn:
        raise UnsampledError

    __index__ = __int__ = __float__ = __hash__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __bool__ = _refuse

    def __repr__(self) -> str:
        return "UNSAMPLED"


UNSAMPLED = cast(int, _Unsampled())
"""The one placeholder; compare with `is`."""
