"""A lab's run repeated by a rewind or a fork, which must reach the same state, as it depends on its inputs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labengine.finder.limits import NUM_STEPS
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot


class RepeatError(AssertionError):
    """Raised if a repeated run reaches a different state, because the parts keep state outside of the engine."""


def rewind(lab: Lab, step: int) -> None:
    """Rewind a recorded lab. Raises RepeatError if its state is not the one before step `step + 1`."""
    assert lab.timeline is not None, "rewind() needs a recording: Lab(record=True)"
    before = lab.timeline.state(lab.timeline.step_moments(step + 1)[0]).snapshot()
    lab.rewind(step)
    refuse_difference(before, lab.snapshot(), f"a rewind to step {step}")


def fork(lab: Lab) -> None:
    """Fork a lab, take the fork's steps to its end, and close it.

    Raises RepeatError if the fork begins in a different state, breaks a rule, or has changed the lab.
    """
    before = lab.snapshot()
    with lab.fork() as twin:
        refuse_difference(before, twin.snapshot(), "a fork")
        for _ in range(NUM_STEPS):
            if not twin.step():
                break
        for violation in twin.violations[:1]:
            raise RepeatError(f"a fork breaks a rule: {violation.message}")
    refuse_difference(before, lab.snapshot(), "the lab of a fork")


def refuse_difference(before: Snapshot, after: Snapshot, what: str) -> None:
    """Raise RepeatError, naming the first difference, if two states differ."""
    if before == after:
        return
    one, other = before.to_dict(), after.to_dict()
    name = next(name for name in one if one[name] != other[name])
    place = name.replace("_", " ")
    if name in ("requests", "blocks"):
        place = _first_place(one[name], other[name], place.removesuffix("s"))
    raise RepeatError(f"{what} reaches a different state: {place} differs; the parts keep state outside the engine")


def _first_place(one: Sequence[object] | Mapping[str, object], other: Any, noun: str) -> str:
    names = range(max(len(one), len(other))) if isinstance(one, Sequence) else {**one, **other}
    return f"{noun} {next(name for name in names if _at(one, name) != _at(other, name))}"


def _at(place: Any, name: Any) -> object:
    try:
        return place[name]
    except LookupError:
        return None
