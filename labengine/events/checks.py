"""Findings of the checks."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.events.event import Event
from labengine.events.fields import AnyBlock, Exact, GroupNumber, NamedBlock, OrNone


@dataclass(frozen=True, slots=True)
class ViolationFound(Event):
    """A rule does not hold. Emitted once per rule, request and block, when the violation is first seen."""

    rule: str
    message: str
    request_ids: tuple[Exact, ...]
    block_ids: tuple[AnyBlock, ...]
    step: int
    first_event: Exact | None
    """Number of the event after which the rule no longer held; None if it is not recorded."""
    misnamed: tuple[tuple[NamedBlock, GroupNumber, bytes, bytes], ...] = ()
    """Blocks whose KV does not match their hash: (block_id, group, block hash, hash of the actual KV).

    The last hash is empty if the KV is not a complete block of any request.
    """
    fact: tuple[str, ...] = ()
    """For the rule "said": the difference (one of check.contradictions.ABOUT), the events' value, the actual value."""

    topic = "trouble"
    phase = "any"
    decided_by = {"": ("Watch._report",)}


@dataclass(frozen=True, slots=True)
class DecisionDiffered(Event):
    """An override decided differently from the method it replaces, which was asked on the same state.

    Emitted for each override's first disagreement, right after the decision; for a look-up, again for each request that
    finds less. It changes nothing.
    """

    method: str
    """Class and method of the override: "Mine.choose_victim"."""
    replaces: str
    """Class and method that were asked beside it: "TokenBudgetScheduler.choose_victim"."""
    decided: str
    instead_of: str
    """The two returned values in short, such as "request 0"; or the second one's error."""
    request_id: OrNone
    """The request that the decision was about; -1 for none."""

    topic = "trouble"
    decided_by = {"": ("Watch.note_difference",)}
