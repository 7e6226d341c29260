"""The phases of a step, and what one step has done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from labengine.record.violation import Violation

Phase = Literal["schedule", "forward", "sample", "update"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of one step; falsy when there was nothing to do. All keys are request ids."""

    step: int
    scheduled: dict[int, int] = field(default_factory=dict)
    """Tokens computed per request, in batch order."""
    preempted: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    sampled: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The tokens that each request got: one; with drafts those accepted and the one behind them; for a beam the one
    that its search has chosen, if it has in this step."""
    drafted: dict[int, int] = field(default_factory=dict)
    """Drafts judged per request that had any."""
    accepted: dict[int, int] = field(default_factory=dict)
    """Of these, those that `Drafts.num_accepted` accepts, also behind a token that ends the request."""
    peak_used_blocks: int = 0
    """Blocks in use while the step was computed: merging and finishing give blocks back only after that."""
    loading: tuple[int, ...] = ()
    """Requests that wait for KV from the external tier."""
    violations: tuple[Violation, ...] = field(default=(), repr=False)
    """Violations that the checks found in the step; empty without checks."""

    def __bool__(self) -> bool:
        return bool(self.scheduled or self.preempted or self.loading)
