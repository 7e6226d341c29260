"""vLLM's waiting queue under the policy "priority"."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.request import Request
from labengine.core.waiting_queue import PriorityQueue


class VllmPriorityQueue(PriorityQueue):
    """A priority queue that compares ids as text, and chooses the victim without them."""

    def order(self, request: Request) -> tuple[int, int, int | str]:
        """Return priority, arrival, and the id as text: request 10 comes before request 9."""
        return request.priority, request.arrival, str(request.request_id)

    def least_urgent(self, running: Sequence[Request]) -> Request:
        """Return the running request of the highest priority and latest arrival; of several, the one admitted first."""
        return max(running, key=lambda request: (request.priority, request.arrival))
