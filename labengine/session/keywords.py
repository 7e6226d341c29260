"""Refusing a keyword that nobody knows, by name and with the nearest match."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches


def refuse_unknown(call: str, given: dict[str, object], *known_by: Callable[..., object]) -> None:
    """TypeError for the first of the given keywords that is no parameter of any of `known_by`."""
    parameters = [p for owner in known_by for p in inspect.signature(owner).parameters.values()]
    known = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(known) or 'none'}"
            raise TypeError(f"{call} has no keyword {name!r}{hint}")
