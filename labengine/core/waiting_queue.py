"""The waiting queue: the order in which requests are admitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from labengine.core.request import Request


class WaitingQueue:
    """Requests that wait, the next to be admitted first: new ones at the back, preempted ones at the front.

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
        """Queue a request that was admitted before at the front: it came before all that wait."""
        self._requests.appendleft(request)

    def remove_request(self, request: Request) -> int:
        """Remove a request from any place; return the place, which `put_back_request` needs to undo this."""
        place = self._requests.index(request)
        del self._requests[place]
        return place

    def put_back_request(self, request: Request, place: int) -> None:
        """Undo a `remove_request` that returned this place."""
        self._requests.insert(place, request)
