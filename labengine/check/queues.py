"""The order in which requests wait and run: no event reports it, but a rollback has to restore it."""

from __future__ import annotations

from labengine.check.blame import Blamed, Suspects, override_words
from labengine.core.scheduler import Scheduler
from labengine.record.violation import Violation

_QUEUEING = {
    "waiting": tuple(
        f"WaitingQueue.{name}" for name in ("remove_request", "put_back_request", "prepend_request", "add_request")
    ),
    "running": ("Scheduler.schedule", "Scheduler.update"),
}
"""Methods that change each order or undo a change."""


class Queues:
    """The requests that wait and run when a step begins, in order."""

    def __init__(self, scheduler: Scheduler, suspects: Suspects) -> None:
        self._scheduler, self._suspects = scheduler, suspects
        self._before: dict[str, tuple[int, ...]] = {}

    def begin(self, number: int) -> list[Blamed]:
        """Note the orders at a step's start; nothing is reported yet."""
        self._before = {}  # an interrupt may come in between
        self._before = self._orders()
        return []

    def end(self, number: int) -> list[Blamed]:
        """Forget the orders of a step that has ended: nothing has to be restored."""
        self._before = {}
        return []

    def take_back(self, number: int) -> list[Blamed]:
        """Return violations of a rollback, whose event has this number."""
        now, orders, self._before = self._orders(), self._before, {}
        return [
            Blamed(Violation("journal", self._said(name, before, now[name]), self._changed(before, now[name])), number)
            for name, before in orders.items()
            if before != now[name]
        ]

    def _orders(self) -> dict[str, tuple[int, ...]]:
        waiting, running = self._scheduler.waiting, self._scheduler.running
        return {
            "waiting": tuple([one.request_id for one in waiting]),
            "running": tuple([one.request_id for one in running]),
        }

    def _said(self, name: str, before: tuple[int, ...], now: tuple[int, ...]) -> str:
        by = override_words(_QUEUEING[name], self._suspects)
        return f"the rollback should leave {_listed(before)} {name}, but it leaves {_listed(now)} {name}{by}"

    @staticmethod
    def _changed(before: tuple[int, ...], now: tuple[int, ...]) -> tuple[int, ...]:
        """Return the requests that are not where they were."""
        moved = [one for one, other in zip(before, now, strict=False) if one != other]
        return tuple(sorted({*moved, *(set(before) ^ set(now))}))


def _listed(request_ids: tuple[int, ...]) -> str:
    if not request_ids:
        return "no request"
    return f"request{'s' * (len(request_ids) > 1)} {', '.join(map(str, request_ids))}"
