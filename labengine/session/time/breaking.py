"""Breaking a step off on purpose, as an interrupt would: for scripts that go the way of a session again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labengine.config import ConfigError
from labengine.session.time.inputs import BrokenStep
from labengine.session.time.rerun import do

if TYPE_CHECKING:
    from labengine.engine.engine import Phase
    from labengine.session.assembled import Assembled

_REACHED = ("schedule", "forward", "sample")


def break_off(lab: Assembled, reached: Phase, reason: str = "KeyboardInterrupt") -> None:
    """Take a step up to a phase, and take it back: what it wrote to is trusted no more.

    reached: "schedule" (blocks may have been loaded), "forward" (it failed in there) or "sample" (it was done).
    reason: the name of the error that ends it. ConfigError for what is no such phase, and no name.
    """
    if reached not in _REACHED or not reason.isidentifier():
        raise ConfigError(f"a step is broken off after one of {', '.join(_REACHED)} by a named error: got {reached!r}")
    with lab._stepper.between_steps():
        engine = lab._stepper.engine
        do(engine, BrokenStep(engine.num_finished_steps, reached, reason))
