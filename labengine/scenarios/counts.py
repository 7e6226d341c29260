"""Figures of a played lab that several scenarios count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from labengine.events import Event, PrefixHit, RequestFinished, StepStarted, TokenSampled
from labengine.lab import Lab
from labengine.record.figures import counted
from labengine.scenarios.scenario import symptom

E = TypeVar("E", bound=Event)


def events_of(lab: Lab, kind: type[E]) -> list[E]:
    """Return the recorded events of a kind, oldest first."""
    assert lab.timeline is not None
    return lab.timeline.of_kind(kind)


def num_misread_blocks(lab: Lab) -> int:
    """Return the number of table entries where a request attended to KV that is not its own."""
    return sum(violation.rule == "read" for violation in lab.violations)


def num_misread_requests(lab: Lab) -> int:
    """Return the number of requests that attended to KV that is not their own."""
    return len({i for violation in lab.violations if violation.rule == "read" for i in violation.request_ids})


def num_rules(lab: Lab) -> int:
    """Return the number of rules broken."""
    return len({violation.rule for violation in lab.violations})


def num_finished(lab: Lab) -> int:
    """Return the number of requests that finished by themselves; aborted ones do not count."""
    return sum(event.reason != "abort" for event in events_of(lab, RequestFinished))


def num_computed_tokens(lab: Lab) -> int:
    """Return the number of tokens computed in all steps, including those of preempted requests."""
    assert lab.timeline is not None
    return counted(lab.timeline.events()).num_computed


def num_hit_tokens(lab: Lab, request_id: int) -> int:
    """Return the number of tokens hit in the pool at a request's last admission."""
    return next(event.num_tokens for event in reversed(events_of(lab, PrefixHit)) if event.request_id == request_id)


def num_preemptions(lab: Lab) -> int:
    """Return the number of preemptions, over all requests."""
    assert lab.timeline is not None
    return counted(lab.timeline.events()).num_preemptions


def num_idle_steps(lab: Lab) -> int:
    """Return the number of steps after the last one that sampled a token: the engine makes no more progress."""
    assert lab.timeline is not None
    events = lab.timeline.events()
    last = max((number for number, event in enumerate(events) if isinstance(event, TokenSampled)), default=-1)
    return sum(isinstance(event, StepStarted) for event in events[last + 1 :])


def numbered_events(lab: Lab) -> Iterator[tuple[int, Event]]:
    """Yield (number, event) for each recorded event, oldest first."""
    assert lab.timeline is not None
    return enumerate(lab.timeline.events(), lab.timeline.num_dropped)


def try_step(lab: Lab) -> str:
    """Take a step; return its error as one line, or an empty text."""
    return symptom(lab.step)


def step_at_most(lab: Lab, num_steps: int) -> str:
    """Take num_steps steps, or fewer if one fails; return its error as one line, or an empty text."""
    return next((error for _ in range(num_steps) if (error := try_step(lab))), "")
