"""A step that is begun and undone, in the middle of a run: an engine goes on as if it had never been begun."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from labengine.core.parts import Parts
from labengine.course.trial import LabMaker, played
from labengine.finder.repeats import RepeatError, refuse_difference
from labengine.lab import Lab
from labengine.scripts import break_off

Interrupt = Callable[[Lab], object]
"""Begins a step of a lab, and has an interrupt end it after its schedule."""
UndoneWorkload = Callable[[Lab, Interrupt], object]
"""A workload that calls interrupt(lab) where a step is begun and undone."""


def _interrupt(lab: Lab) -> None:
    break_off(lab, "schedule")


def _nothing(lab: Lab) -> None:
    """Begin no step."""


def trace_of_an_undone_step(
    maker: LabMaker, parts: Parts, workload: UndoneWorkload, score: Callable[[Lab], float], score_name: str
) -> tuple[str, ...]:
    """Play a workload with a step that is undone, and without it; return sentences on what differs, empty if nothing.

    The journal takes back all that the step has changed. What a class keeps in a set or a dict of its own, and does not
    record in the journal, stays, and leads to other decisions later.
    """
    found = []
    for interrupt in (_nothing, _interrupt):
        with played(maker, parts, partial(_play, workload=workload, interrupt=interrupt)) as trial:
            if trial.problem:
                when = "A step is begun and undone, and" if interrupt is _interrupt else "Before any step is undone,"
                return f"{when} a run goes wrong.", trial.problem
            found.append((score(trial.lab), trial.lab.snapshot()))
    (without, before), (with_it, after) = found
    try:
        refuse_difference(before, after, "a run with a step that was undone")
    except RepeatError:
        return (
            f"In the middle of a run a step is begun and undone, and its request is taken away: {score_name} "
            f"{with_it:g}, and {without:g} if that step is never begun. It should make no difference.",
            "So your class remembers something from a step that never happened: a set, a dict or a number that it "
            "changed in that step, without a way back in the journal. Before each such change, record what undoes it: "
            "`self._journal.record((function, argument))`.",
        )
    return ()


def _play(lab: Lab, workload: UndoneWorkload, interrupt: Interrupt) -> None:
    workload(lab, interrupt)
