"""Random workloads for vLLM's policy "priority": those of the scheduler, with priorities and arrivals beside them.

A seed names a workload. Many ask for the same priority and arrive together, so that ties are met.
"""

from __future__ import annotations

from random import Random
from typing import Any

from vllm_scheduler_workloads import scheduler_workload


def priority_workload(seed: int) -> dict[str, Any]:
    """Return a workload of the scheduler with priorities; one in three has more than ten requests (ids as texts)."""
    rng = Random(f"priority {seed}")
    workload = scheduler_workload(seed)
    requests = [dict(request) for request in workload["requests"]]
    if rng.random() < 1 / 3:
        last = requests[-1]["step"]
        requests += [request | {"step": last + rng.randint(0, 3)} for request in rng.choices(requests, k=5)]
    priorities = rng.choice(((0, 1), (-1, 0, 0, 2), tuple(range(-3, 4))))
    num_arrivals = rng.choice((1, 3, len(requests)))
    for number, request in enumerate(requests):
        request["priority"] = rng.choice(priorities)
        if num_arrivals < len(requests):
            request["arrival"] = number * num_arrivals // len(requests)
        elif rng.random() < 0.2:
            request["arrival"] = rng.randint(0, len(requests))
    return workload | {"policy": "priority", "requests": requests}
