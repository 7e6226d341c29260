"""The base class of events, and the facts that each kind has besides its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar

Topic = Literal["step", "request", "block", "model", "external tier", "trouble"]
"""Topic of an event, by which views filter and colour."""

KindPhase = Literal["schedule", "forward", "sample", "none", "any", ""]
"""The phase that an event begins. "none": it ends the step. "any": it can happen in any phase. "": it belongs to the
phase under way, or to the update after the forward pass. See record/phases.py."""


class InVllm(NamedTuple):
    """A method of vLLM and its decision, in labengine's words."""

    owner: Literal["scheduler", "manager", "pool", "group", "state", "waiting"]
    method: str
    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. The class attributes are facts about a kind; other tables are derived from them.

    tools/event_types.py writes these facts for the browser and for the tap.
    """

    topic: ClassVar[Topic]
    phase: ClassVar[KindPhase] = ""
    """Its phase of the step."""
    decided_by: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Per variant: labengine's method that usually decides, others that take part, and finally the emitter. Empty for a
    kind that occurs only in recordings of other engines."""
    in_vllm: ClassVar[Mapping[str, InVllm]] = {}
    """Per variant: vLLM's method that decides. Empty if the tap does not send the kind, or there is no decision."""

    @property
    def variant(self) -> str:
        """Its `reason`; "tail" or "fork" according to BlockCached.is_full and BlockTouched.is_fork; "" for others."""
        return str(getattr(self, "reason", ""))


T = TypeVar("T")


def entry_of(table: Mapping[str, T], event: Event) -> T | None:
    """Return a table's entry for an event's variant ("BlockFreed:window"), or else for its kind, or None."""
    kind = type(event).__name__
    return table.get(f"{kind}:{event.variant}") or table.get(kind)


def methods(*lines: str) -> tuple[str, ...]:
    """Split lines of names separated by spaces: "Class.method Class.method"."""
    return tuple(" ".join(lines).split())
