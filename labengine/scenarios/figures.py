"""Figures that several scenarios count in a played lab."""

from __future__ import annotations

from labengine.events import ForwardRan, RequestFinished, RequestPreempted, StepStarted, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import symptom


def num_misread_blocks(lab: Lab) -> int:
    """Return the number of table entries in which a request attended to KV that is not its own."""
    return sum(violation.rule == "read" for violation in lab.violations)


def num_finished(lab: Lab) -> int:
    """Return the number of requests that ended by themselves; aborted ones do not count."""
    assert lab.timeline is not None
    return sum(event.reason != "abort" for event in lab.timeline.of_kind(RequestFinished))


def num_computed_tokens(lab: Lab) -> int:
    """Return the number of tokens computed over all steps, those of preempted requests included."""
    assert lab.timeline is not None
    return sum(event.num_tokens for event in lab.timeline.of_kind(ForwardRan))


def num_preemptions(lab: Lab) -> int:
    """Return the number of preemptions, over all requests."""
    assert lab.timeline is not None
    return len(lab.timeline.of_kind(RequestPreempted))


def num_idle_steps(lab: Lab) -> int:
    """Return the number of steps after the last one that sampled a token: the engine no longer moves."""
    assert lab.timeline is not None
    events = lab.timeline.events()
    last = max((number for number, event in enumerate(events) if isinstance(event, TokenSampled)), default=-1)
    return sum(isinstance(event, StepStarted) for event in events[last + 1 :])


def step_at_most(lab: Lab, num_steps: int) -> str:
    """Take num_steps steps, or fewer if one fails; return that step's error as one line, empty for none."""
    return next((error for _ in range(num_steps) if (error := symptom(lab.step))), "")
