"""What callers pass: keywords, prompts and names of requests, checked and made uniform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from re import compile as pattern
from typing import Any

from labengine.config import ConfigError, is_single_int, shown

_LETTERS = pattern("[A-Z]{1,4}|[a-z]{1,2}")
"""Names of requests as views print them; short ones in lower case, too. A longer word means something else."""


def refuse_unknown(call: str, keywords: Mapping[str, object], *known_by: Callable[..., object]) -> None:
    """Raise TypeError for the first keyword that is no parameter of any of `known_by`, naming the nearest match."""
    parameters = [p for owner in known_by for p in inspect.signature(owner).parameters.values()]
    known = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    for name in keywords:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(known) or 'none'}"
            raise TypeError(f"{call} has no keyword {name!r}{hint}")


def prompt_list(prompts: str | Iterable[Any]) -> list[Any]:
    """Return one prompt or several as a list of texts and rows of token ids. ConfigError for what holds no prompts."""
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, (bytes, Mapping)) or not hasattr(prompts, "__iter__"):
        raise ConfigError(f"prompts are texts or lists of token ids, one or several, got {shown(prompts)}")
    several = list(prompts)
    return [several] if several and is_single_int(several[0]) else several


def request_id_of(name: object) -> object:
    """Return the id that a name such as "A" or "AB" stands for; anything else unchanged, for the caller to check."""
    if not isinstance(name, str) or not _LETTERS.fullmatch(name):
        return name
    number = 0
    for letter in name.upper():
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
