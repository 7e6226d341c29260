"""An event, and the facts that each kind has beside its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar

Topic = Literal["step", "request", "block", "model", "external tier", "trouble"]
"""What an event is about: views filter and colour by it."""

KindPhase = Literal["schedule", "forward", "sample", "none", "any", ""]
"""The phase that an event begins. "none": it ends the step; "any": it comes wherever it is noticed; "": it belongs to
the phase under way, and to the update once the forward pass is done. See record/phases.py."""


class InVllm(NamedTuple):
    """A method of vLLM's, and what it decides, in labengine's words."""

    owner: Literal["scheduler", "manager", "pool", "group", "state", "waiting"]
    method: str
    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. The class attributes are facts about a kind; tables elsewhere are made from them.

    tools/event_types.py writes these facts for the browser and for the tap.
    """

    topic: ClassVar[Topic]
    phase: ClassVar[KindPhase] = ""
    """The phase of its step."""
    decided_by: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Per variant: labengine's method that usually decides, others that take part, and last the emitter. Empty for a
    kind that only a recording of another engine has."""
    in_vllm: ClassVar[Mapping[str, InVllm]] = {}
    """Per variant: what takes the decision in vLLM. Empty where the tap does not send the kind, or nobody decides."""

    @property
    def variant(self) -> str:
        """Its `reason`; "tail" or "fork" where BlockCached.is_full or BlockTouched.is_fork says so; "" for others."""
        return str(getattr(self, "reason", ""))


T = TypeVar("T")


def entry_of(table: Mapping[str, T], event: Event) -> T | None:
    """Return a table's entry for an event's variant ("BlockFreed:window"), else the one for its kind; None for none."""
    kind = type(event).__name__
    return table.get(f"{kind}:{event.variant}") or table.get(kind)


def methods(*lines: str) -> tuple[str, ...]:
    """Return the names that stand in lines, with spaces between: "Class.method Class.method"."""
    return tuple(" ".join(lines).split())
