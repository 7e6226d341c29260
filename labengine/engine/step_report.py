"""The phases of a step, and the report on one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from labengine.record.violation import Violation

Phase = Literal["schedule", "forward", "sample", "update"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of one step; falsy if there was nothing to do. All keys are request ids."""

    step: int
    scheduled: dict[int, int] = field(default_factory=dict)
    """Tokens computed per request, in batch order."""
    preempted: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    sampled: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Each request's new tokens: one; with drafts the accepted ones and the next; for a beam the one that its search
    has chosen, if it has chosen one in this step."""
    drafted: dict[int, int] = field(default_factory=dict)
    """Number of judged drafts, per request that had any."""
    accepted: dict[int, int] = field(default_factory=dict)
    """Number of these that `Drafts.num_accepted` accepts, also after a token that ends the request."""
    peak_used_blocks: int = 0
    """Number of blocks in use during the computation; merging and finishing free blocks only after it."""
    loading: tuple[int, ...] = ()
    """Requests that wait for KV from the external tier."""
    violations: tuple[Violation, ...] = field(default=(), repr=False)
    """Violations that the checks found in the step; empty without checks."""

    def __bool__(self) -> bool:
        return bool(self.scheduled or self.preempted or self.loading)
