"""One prompt or several, as texts or as token ids in any kind of row: told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from labengine.config import ConfigError, is_single_int, shown


def prompt_list(prompts: str | Iterable[Any]) -> list[Any]:
    """Every prompt: a text, or a row of token ids. ConfigError for what holds no prompts."""
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, (bytes, Mapping)) or not hasattr(prompts, "__iter__"):
        raise ConfigError(f"prompts are texts or lists of token ids, one or several, got {shown(prompts)}")
    several = list(prompts)
    return [several] if several and is_single_int(several[0]) else several
