"""Changes to priorities."""

from __future__ import annotations

from mutants.table.mutant import Mutant

QUEUE = "core/waiting_queue.py"

MUTANTS = (
    Mutant(
        "the most urgent request is preempted",
        "policy",
        QUEUE,
        "        return max(running, key=self.order)",
        "        return min(running, key=self.order)",
    ),
    Mutant(
        "the least urgent request is admitted first",
        "policy",
        QUEUE,
        "        return request.priority, request.arrival, request.request_id",
        "        return -request.priority, request.arrival, request.request_id",
    ),
    Mutant(
        "a preempted request is lost",
        "state",
        QUEUE,
        "        self.add_request(request)",
        "        self.priority(request)",
    ),
)
