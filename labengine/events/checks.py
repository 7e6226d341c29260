"""What the checks have found."""

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
    """Number of the event after which the rule no longer held. None when it is not recorded."""
    misnamed: tuple[tuple[NamedBlock, GroupNumber, bytes, bytes], ...] = ()
    """Blocks whose KV is not what their hash stands for: (block_id, group, block hash, hash of what the KV is).

    The last one is empty where the KV is that of no complete block of a request.
    """
    fact: tuple[str, ...] = ()
    """Of the rule "said": what differs (one of check.contradictions.ABOUT), what the events say, and what is."""

    topic = "trouble"
    phase = "any"
    decided_by = {"": ("Watch._report",)}


@dataclass(frozen=True, slots=True)
class DecisionDiffered(Event):
    """An override decided otherwise than the method that it replaces, which was asked on the same state.

    Emitted for the first disagreement of each override, right after the decision; for a look-up once more per request
    that finds less. Nothing changes by it.
    """

    method: str
    """Class and method of the override: "Mine.choose_victim"."""
    replaces: str
    """Class and method that were asked beside it: "TokenBudgetScheduler.choose_victim"."""
    decided: str
    instead_of: str
    """What the two have returned, in short: "request 0"; or that the second one has raised an error."""
    request_id: OrNone
    """The request that was decided about; -1 for none."""

    topic = "trouble"
    decided_by = {"": ("Watch.note_difference",)}
