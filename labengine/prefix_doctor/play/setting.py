"""What traffic runs on: an engine's settings, its clock, and the replicas that share the traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labengine.config import EngineConfig
from labengine.core.parts import Parts
from labengine.prefix_doctor.play.clock import Clock

Routing = Literal["recorded", "round_robin", "sticky", "prefix"]
"""Which replica serves a prompt: the recorded one, the next, its session's, or the one that caches most of it."""


@dataclass(frozen=True)
class Setting:
    """The settings of a run. clock: None lets every step take one second, so that times are counted in steps."""

    config: EngineConfig
    parts: Parts
    clock: Clock | None = None
    num_replicas: int = 1
    routing: Routing = "recorded"
