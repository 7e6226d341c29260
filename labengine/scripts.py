"""Functions that scripts made by `lab.to_code()` and tests made by `to_test()` call."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.engine.step_report import Phase
from labengine.finder.repeats import fork as fork
from labengine.finder.repeats import rewind as rewind
from labengine.finder.tally import Cost
from labengine.isolation.alone import ending_of as ending_of
from labengine.isolation.limits import ends_soon as ends_soon
from labengine.lab import Lab
from labengine.session.history import broken_steps
from labengine.session.saved.observed import tally_of


def break_off(lab: Lab, reached: Phase, reason: str = "KeyboardInterrupt") -> None:
    """Take a step of a lab up to a phase, and roll it back; the slots it wrote to are invalid afterwards.

    reached: "schedule" (blocks may have been loaded), "forward" (the forward pass failed) or "sample" (it was done).
    reason: the name of the error that ends the step. Raises ConfigError for another phase and for an invalid name.
    """
    broken_steps.break_off(lab.session.stepper, reached, reason)


def break_off_at(lab: Lab, kind: str, number: int = 1, reason: str = "KeyboardInterrupt") -> None:
    """Take a step of a lab up to its `number`-th event of a kind, and roll it back.

    reason: "KeyboardInterrupt", or the name of an error, which counts as raised by a part. A step without such an event
    is taken completely. Raises ConfigError for a kind at which no step can end.
    """
    broken_steps.break_off_at(lab.session.stepper, kind, number, reason)


def decisions(lab: Lab) -> Sequence[str]:
    """Return a recorded lab's decisions in order (hits, tokens to compute, merges, ends), one sentence each."""
    return tally_of(lab).decisions


def cost(lab: Lab) -> Cost:
    """Return the cost of a recorded run: tokens found in the cache, tokens computed, and peak number of used blocks."""
    return tally_of(lab).cost(lab.stats().peak_used_blocks)
