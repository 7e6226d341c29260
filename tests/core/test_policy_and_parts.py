"""The waiting queue of a policy beside parts: both are honoured, or refused in words."""

from __future__ import annotations

import pytest

import labengine
from labengine.config import ConfigError
from labengine.core.editions import VLLM, VLLM_ASYNC
from labengine.core.free_queue import FreeQueue
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.core.waiting_queue import WaitingQueue

WORKLOAD = {
    "num_blocks": 8,
    "block_size": 4,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 16,
    "policy": "priority",
    "requests": [
        {"step": 0, "prompt": [1], "max_tokens": 1, "priority": 1},
        {"step": 0, "prompt": [2], "max_tokens": 1, "priority": 0},
    ],
}


class OwnQueue(FreeQueue):
    """Changes another part."""


class OwnOrder(WaitingQueue):
    """Knows priorities without being a PriorityQueue."""

    def priority(self, request: Request) -> int:
        return request.priority

    def add_request(self, request: Request) -> None:
        self._requests.append(request)
        self._requests = type(self._requests)(sorted(self._requests, key=self.priority))


def first_to_finish(parts: Parts) -> int:
    snapshot = labengine.simulate(WORKLOAD, parts)[0]
    return next(i for i, request in snapshot.requests.items() if request.status == "finished")


def test_a_complete_edition_with_a_queue_without_priorities_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy='priority' .* WaitingQueue: name"):
        labengine.simulate(WORKLOAD, VLLM)
    with pytest.raises(ConfigError, match="name the edition"):
        labengine.Lab("simulated", num_blocks=8, policy="priority", parts=VLLM)


@pytest.mark.parametrize(
    "parts",
    [
        Parts(free_queue=OwnQueue),
        Parts(waiting_queue=OwnOrder),
        Parts(waiting_queue=VllmPriorityQueue).overriding(VLLM),
    ],
    ids=["another part", "another queue with priorities", "a complete edition with priorities"],
)
def test_parts_that_leave_or_know_priorities_are_honoured_with_the_policy(parts: Parts) -> None:
    assert first_to_finish(parts) == 1
    with labengine.Lab("simulated", num_blocks=8, block_size=4, max_num_seqs=1, policy="priority", parts=parts) as lab:
        for priority in (1, 0):
            lab.add(token_ids=[1], max_tokens=1, priority=priority)
        assert list(lab.step().scheduled) == [1]


def test_the_asynchronous_edition_is_refused_as_parts() -> None:
    with pytest.raises(ConfigError, match="vllm-async is only for recordings"):
        labengine.simulate(WORKLOAD | {"policy": "fcfs"}, VLLM_ASYNC)
