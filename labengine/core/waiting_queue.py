"""The waiting queue: the order in which requests are admitted, and in which running ones give way."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence

from labengine.core.request import Request


class WaitingQueue:
    """Waiting requests, the next to be admitted first: new ones at the back, preempted ones at the front.

    Method names follow vLLM's RequestQueue.
    """

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def __getitem__(self, place: int) -> Request:
        return self._requests[place]

    def add_request(self, request: Request) -> None:
        """Queue a new request at the back: first come, first served."""
        self._requests.append(request)

    def prepend_request(self, request: Request) -> None:
        """Queue a formerly admitted request at the front: it came before all that wait."""
        self._requests.appendleft(request)

    def remove_request(self, request: Request) -> int:
        """Remove a request from any place; return the place, which `put_back_request` needs for the undo."""
        place = self._requests.index(request)
        del self._requests[place]
        return place

    def put_back_request(self, request: Request, place: int) -> None:
        """Undo a `remove_request` that returned this place."""
        self._requests.insert(place, request)

    def priority(self, request: Request) -> int:
        """Return the priority of a new request, smaller is more urgent: here always 0."""
        return 0

    def least_urgent(self, running: Sequence[Request]) -> Request:
        """Return the running request to preempt first: the youngest.

        So the oldest always advance, and every request ends.
        """
        return running[-1]


class PriorityQueue(WaitingQueue):
    """Waiting requests, the most urgent first; priority also decides the place of preempted ones.

    Running requests are not ordered: a request that is admitted late comes last in a step, however urgent it is.
    Source: vLLM's PriorityRequestQueue, and the victim that its scheduler takes under the policy "priority".
    """

    def priority(self, request: Request) -> int:
        """Return the priority that the request was added with."""
        return request.priority

    def order(self, request: Request) -> tuple[int, int, int | str]:
        """Return the sort key of a request: the priority, smaller first, then the arrival, then the id."""
        return request.priority, request.arrival, request.request_id

    def add_request(self, request: Request) -> None:
        """Queue a request behind all that are at least as urgent."""
        insort(self._requests, request, key=self.order)

    def prepend_request(self, request: Request) -> None:
        """Queue a formerly admitted request at the place of its priority: more urgent ones overtake it."""
        self.add_request(request)

    def least_urgent(self, running: Sequence[Request]) -> Request:
        """Return the running request that would be admitted last: the most urgent always advance."""
        return max(running, key=self.order)
