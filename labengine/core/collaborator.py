"""Collaborators: a scheduler's capabilities beside scheduling, one class each."""

from __future__ import annotations

from labengine.core.request_queues import RequestQueues


class Collaborator:
    """One capability of a scheduler. It moves the scheduler's requests and records each move in the journal."""

    def __init__(self, scheduler: RequestQueues) -> None:
        self.scheduler = scheduler
        self.config = scheduler.config
        self.manager = scheduler.manager
        self._hooks = scheduler._hooks
        self._journal = scheduler._journal

    def _set(self, owner: object, name: str, value: object) -> None:
        self.scheduler._set(owner, name, value)


class Absent:
    """In Parts, marks a capability that an edition lacks."""
