"""A gap: steps missing from a recording because events were lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """Steps first_step to last_step, which are not recorded; last_step < first_step if no step is missing entirely.

    num_events: number of lost events; None if unknown. why: the reason, in a few words.
    """

    first_step: int
    last_step: int
    num_events: int | None
    why: str

    @property
    def steps(self) -> str:
        """The steps as text: "step 4", "steps 4 to 9", or the two steps between which events are missing."""
        if self.last_step > self.first_step:
            return f"steps {self.first_step:,} to {self.last_step:,}"
        if self.last_step == self.first_step:
            return f"step {self.first_step:,}"
        return f"what happened between steps {self.last_step:,} and {self.last_step + 1:,}"

    @property
    def events(self) -> str:
        """The number of lost events, as text."""
        if self.num_events is None:
            return "an unknown number of events were lost there"
        if self.num_events == 1:
            return "1 event was lost there"
        return f"{self.num_events:,} events were lost there"

    def __str__(self) -> str:
        are = "are" if self.last_step > self.first_step else "is"
        return f"{self.steps} {are} not known; {self.events}: {self.why}"
