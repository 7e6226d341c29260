"""vLLM's windows: hits end where hits on states can, and the asynchronous scheduler drops blocks a step later."""

from __future__ import annotations

from functools import cached_property

from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.vllm.partial_hits import hit_unit


class VllmSlidingWindowGroup(SlidingWindowGroup):
    """A window whose hits end where hits on states can."""

    @cached_property
    def hit_unit(self) -> int:
        """Hits end at multiples of this many tokens."""
        return hit_unit(self._config)


class AsyncSlidingWindowGroup(VllmSlidingWindowGroup):
    """A sliding window whose blocks are dropped one step later, when the step that reads them is booked."""

    num_steps_in_flight = 2
