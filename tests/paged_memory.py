"""A runner with a memory: what a slot holds is the token prefix whose KV was written there, and every read is checked.

It needs no weights and settles silent corruption: a block overwritten under a live request, a hit on stale content, or
a merge of unequal blocks raises CorruptRead in the forward pass that would have read it.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.simulated import NextToken, SimulatedRunner


class CorruptRead(AssertionError):
    """A request was about to attend to KV that is not its own."""


class PagedMemoryRunner(SimulatedRunner):
    """Samples next_token, as the simulated runner does. One KV-cache group.

    fail_in_forward: raised by the next forward pass, once it has written `num_writes_before` of its tokens' KV.
    fail_in_sample: raised whenever tokens are sampled.
    """

    def __init__(self, next_token: NextToken, block_size: int) -> None:
        super().__init__(next_token)
        self.slots: dict[int, int] = {}
        """Hash of the token prefix whose KV a slot holds."""
        self.fail_in_forward: BaseException | None = None
        self.num_writes_before = 0
        self.fail_in_sample: BaseException | None = None
        self.plan = StepPlan(())
        """The plan of the newest forward pass."""
        self._block_size = block_size
        self.requests: Mapping[int, Request] = {}
        """The engine's own: set it once the engine is made."""

    def forward(self, plan: StepPlan) -> None:
        """Write, then read, request by request."""
        self.plan = plan
        failure, self.fail_in_forward = self.fail_in_forward, None
        num_left = self.num_writes_before
        for request in plan.scheduled:
            prefixes = self._prefixes(request)
            for position, slot in zip(range(request.start, request.end), self._written_slots(request), strict=True):
                if failure is not None and num_left == 0:
                    raise failure
                self.slots[slot] = prefixes[position]
                num_left -= 1
        if failure is not None:
            raise failure
        for request in plan.scheduled:
            self._read(request)

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """next_token, or the failure that was asked for."""
        if self.fail_in_sample is not None:
            raise self.fail_in_sample
        return super().sample(plan, logits)

    def _prefixes(self, request: ScheduledRequest) -> list[int]:
        """For each position up to the request's end: a hash of all its tokens so far."""
        prefix, prefixes = 0, []
        for token_id in self.requests[request.request_id].token_ids[: request.end]:
            prefix = hash((prefix, token_id))
            prefixes.append(prefix)
        return prefixes

    def _written_slots(self, request: ScheduledRequest) -> list[int]:
        (runs,) = request.slot_runs
        return [block_id * self._block_size + offset + i for block_id, offset, length in runs for i in range(length)]

    def _read(self, request: ScheduledRequest) -> None:
        (table,) = request.block_tables
        for position, prefix in enumerate(self._prefixes(request)):
            slot = table[position // self._block_size] * self._block_size + position % self._block_size
            if self.slots.get(slot) != prefix:
                raise CorruptRead(f"request {request.request_id}, position {position}, slot {slot}")
