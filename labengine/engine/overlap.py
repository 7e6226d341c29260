"""The choice of the engine: one that schedules the next step while the device computes, or one that waits; and why."""

from __future__ import annotations

from labengine.config import ConfigError
from labengine.core.parts import Parts
from labengine.engine.ahead import OverlappedEngine, overlap_refusal
from labengine.engine.engine import Engine
from labengine.engine.runner import Runner, is_asynchronous


def choose_engine(
    overlap: bool | None, parts: Parts, runner: Runner, *, has_external: bool, is_watched: bool
) -> tuple[type[Engine], str]:
    """Return the engine's class, and a line for status(). overlap None: where it is possible and gains something.

    ConfigError when it is asked for and not possible.
    """
    if not isinstance(overlap, bool | None):
        raise ConfigError(f"overlap must be True, False or None, got {overlap!r}")
    refusal = overlap_refusal(parts, has_external=has_external)
    if refusal is None and is_watched:
        refusal = "the checks look at the core as each step leaves it; check=False lets the next one begin before"
    if overlap and refusal is not None:
        raise ConfigError(f"overlap=True is not possible: {refusal}")
    if overlap is False:
        refusal = "asked for"
    elif refusal is None and not overlap and not is_asynchronous(runner):
        refusal = "the forward pass keeps the host busy"
    if refusal is not None:
        return Engine, f"synchronous ({refusal})"
    return OverlappedEngine, "overlapped with the forward"


def scheduling_line(engine: Engine, chosen: str) -> str:
    """Return how steps of a run are scheduled now: as chosen, unless the engine has met a part that prevents it."""
    gave_up = isinstance(engine, OverlappedEngine) and engine.gave_up
    return f"synchronous ({gave_up})" if gave_up else chosen
