"""What it takes to run a recording's requests again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labengine.config import EngineConfig
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The scheduler's settings. longest: tokens at which it ends each request; None for no such limit. places: of
    requests in the order of arrival, where that is another one than their numbers'.
    """

    config: EngineConfig
    parts: Parts
    salts: Mapping[int, ExtraKeys] = field(default_factory=dict)
    longest: int | None = None
    places: Mapping[int, int] = field(default_factory=dict)
