"""The phase of a step that an event belongs to, derived from its kind (`Event.phase`) and the phase before it."""

from __future__ import annotations

from labengine.events import Event


def phase_after(event: Event, phase: str | None) -> str | None:
    """Return an event's phase, given the phase before it; None outside a step and at its end."""
    own = event.phase
    if own == "schedule":
        return own
    if phase is None or own == "none":
        return None
    if own == "any":
        return phase
    if own == "forward" or (own == "sample" and phase == "forward"):
        return own
    return "update" if phase in ("forward", "sample") else phase
