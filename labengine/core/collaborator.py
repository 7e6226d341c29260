"""Collaborators: what a scheduler can do beside scheduling, one class for each capability."""

from __future__ import annotations

from labengine.core.request_queues import RequestQueues


class Collaborator:
    """One capability of a scheduler. It moves the scheduler's requests, each move in the journal."""

    def __init__(self, scheduler: RequestQueues) -> None:
        self.scheduler = scheduler
        self.config = scheduler.config
        self.manager = scheduler.manager
        self._hooks = scheduler._hooks
        self._journal = scheduler._journal

    def _set(self, owner: object, name: str, value: object) -> None:
        self.scheduler._set(owner, name, value)


class Absent:
    """Stands in Parts for a capability that an edition does not have."""
