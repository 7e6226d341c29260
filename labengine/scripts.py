"""Functions that scripts made by `lab.to_code()` call."""

from __future__ import annotations

from labengine.engine.engine import Phase
from labengine.lab import Lab
from labengine.session.history import rerun


def break_off(lab: Lab, reached: Phase, reason: str = "KeyboardInterrupt") -> None:
    """Take a step of a lab up to a phase, and take it back; the content of the slots it wrote to is invalid afterwards.

    reached: "schedule" (blocks may have been loaded), "forward" (the forward pass failed) or "sample" (it was done).
    reason: the name of the error that ends the step. ConfigError for another phase, and for what is no name.
    """
    rerun.break_off(lab.session.stepper, reached, reason)
