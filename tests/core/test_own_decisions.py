"""A user's own decisions and queues: other policies run soundly, and a wrong queue is reported by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

from driving import LiveFold, assert_drained, assert_sound, difference
from grounds import Ground
from labengine import Lab, Parts
from labengine.core.editions import EDITIONS
from labengine.core.external_loads import ExternalLoads
from labengine.core.free_queue import FreeQueue
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.prefix_lookup import Hit, PrefixLookup
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.waiting_queue import PriorityQueue, WaitingQueue
from labengine.events import ExternalHit
from labengine.record.hooks import Hooks

# -- other policies ----------------------------------------------------------------------------------------------------


class OldestGivesWay(Scheduler):
    """Preempts the request that runs longest; it may have its place in the step already."""

    def choose_victim(self, request: Request) -> Request:
        return self.running[0]


class LongestGivesWay(Scheduler):
    """As some engines do: the request with the most tokens."""

    def choose_victim(self, request: Request) -> Request:
        return max(self.running, key=lambda running: running.num_tokens)


class ShortestFirst(Scheduler):
    """Admits the request with the fewest tokens."""

    def next_waiting(self) -> Request:
        return min(self.waiting, key=lambda waiting: waiting.num_tokens)


class HeadFirst(FullAttentionGroup):
    """Frees a chain's head first."""

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        return range(num_entries)


class NewestFirst(FreeQueue):
    """A stack: takes the block that was freed last."""

    def take(self, num_blocks: int) -> list[int]:
        if num_blocks > len(self):
            raise IndexError(f"{num_blocks} blocks asked for, {len(self)} are free")
        taken = list(self)[::-1][:num_blocks]
        for block_id in taken:
            self.remove(block_id)
        return taken

    def put_back(self, block_ids: Sequence[int]) -> None:
        self.append(block_ids[::-1])


class FewestTokensFirst(WaitingQueue):
    """Keeps the requests in order of their tokens, preempted ones too."""

    def add_request(self, request: Request) -> None:
        place = next((i for i, other in enumerate(self) if other.num_tokens > request.num_tokens), len(self))
        self.put_back_request(request, place)

    prepend_request = add_request


class ByLength(PriorityQueue):
    """A priority that the queue sets: prompts of the same length, less a multiple of three, are equally urgent."""

    def priority(self, request: Request) -> int:
        return request.num_prompt_tokens % 3 - 1


class FindsHalf(PrefixLookup):
    """Accepts half of each hit, as a cache does that wants fresh blocks."""

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        return super().longest_hit(request, super().longest_hit(request, max_tokens).num_tokens // 2)


class ListQueue:
    """A queue that does not derive from FreeQueue: one Python list."""

    def __init__(self, num_blocks: int) -> None:
        self.ids = list(range(num_blocks))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self.ids

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    def fault(self) -> str | None:
        """None: a list has no links to tear."""
        return None

    def take(self, num_blocks: int) -> list[int]:
        """From the head."""
        taken, self.ids = self.ids[:num_blocks], self.ids[num_blocks:]
        return taken

    def append(self, block_ids: Sequence[int]) -> None:
        """At the tail."""
        self.ids.extend(block_ids)

    def prepend(self, block_ids: Sequence[int]) -> None:
        """At the head."""
        self.ids[:0] = block_ids

    put_back = prepend

    def remove(self, block_id: int) -> int:
        """Its place is the note for `insert_after`."""
        place = self.ids.index(block_id)
        del self.ids[place]
        return place

    def insert_after(self, before: int, block_id: int) -> None:
        """Back to its place."""
        self.ids.insert(before, block_id)


def scheduling(policy: type[Scheduler], base: type[Scheduler]) -> dict[str, Any]:
    return {"scheduler": type(policy.__name__, (policy, base), {})}


POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    f"{name} on {edition}": (edition, overrides)
    for edition, base in (
        ("labengine", TokenBudgetScheduler),
        ("vllm", TokenBudgetScheduler),
        ("nano-vllm", PrefillFirstScheduler),
    )
    for name, overrides in {
        "oldest gives way": scheduling(OldestGivesWay, base),
        "longest gives way": scheduling(LongestGivesWay, base),
        "shortest first": scheduling(ShortestFirst, base),
        "head freed first": {"full_attention_group": HeadFirst},
        "newest block first": {"free_queue": NewestFirst},
        "a list": {"free_queue": ListQueue},
        "fewest tokens wait first": {"waiting_queue": FewestTokensFirst},
        "some lengths first": {"waiting_queue": ByLength},
        "half of each hit": {"prefix_lookup": FindsHalf},
    }.items()
}


@pytest.mark.parametrize("name", POLICIES)
def test_another_policy_is_sound_and_taken_back_exactly(name: str) -> None:
    """With aborts, resets and abandoned steps; every read is checked, and the fold follows."""
    edition, overrides = POLICIES[name]
    parts = Parts(**overrides).overriding(EDITIONS[edition])
    for seed in range(2):
        rng, hooks = Random(seed), Hooks(strict=True)
        live = LiveFold(hooks)
        drive = Ground(edition).drive(seed, hooks, parts=parts)
        for operation in drive.operations(rng):
            assert difference(live.state.snapshot(), drive.engine.snapshot()) is None, operation
        assert_sound(drive.engine.snapshot(), edition)
        assert_drained(drive.engine)


class LosesABlock(FreeQueue):
    """Forgets the first of several blocks that are freed together."""

    def append(self, block_ids: Sequence[int]) -> None:
        super().append(block_ids[1:])


class InTheMiddle(FreeQueue):
    """Queues a freed block behind the one that is next."""

    def append(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.insert_after(next(iter(self)), block_id)


class AlwaysAtTheTail(FreeQueue):
    """Queues at the tail what the pool puts at the head."""

    def prepend(self, block_ids: Sequence[int]) -> None:
        self.append(block_ids)


@pytest.mark.parametrize(
    ("queue", "method", "end"),
    [(LosesABlock, "append", "tail"), (InTheMiddle, "append", "tail"), (AlwaysAtTheTail, "prepend", "head")],
)
def test_blocks_that_are_queued_where_no_event_says_are_refused(queue: type[FreeQueue], method: str, end: str) -> None:
    told = rf"{queue.__name__}\.{method} must queue the given blocks \(\[.*\]\) at the {end}, in the order"
    with Lab("simulated", num_blocks=10, block_size=4, parts=Parts(free_queue=queue), check=False) as lab:
        lab.add(token_ids=range(9), max_tokens=2)
        lab.step()
        before = lab.snapshot()
        with pytest.raises(ValueError, match=told):
            lab.step()
        assert lab.snapshot().free_queue == before.free_queue, "the step is taken back"


def test_the_policies_decide_otherwise() -> None:
    """Each of them leads to other block ids, preemptions or order in some workload, but for the list."""
    for name, (edition, overrides) in POLICIES.items():
        parts = Parts(**overrides).overriding(EDITIONS[edition])
        differs = any(events_of(edition, seed, parts) != usual_events(edition, seed) for seed in range(8))
        assert differs == (not name.startswith("a list")), name


def test_what_is_asked_of_the_tier_can_be_replaced() -> None:
    class AsksForNothing(ExternalLoads):
        """Finds nothing in the tier."""

        def match(self, request: Request, hit: Hit) -> int:
            return 0

    found = []
    for parts in (Parts(), Parts(external_loads=AsksForNothing)):
        with Lab("simulated", num_blocks=12, block_size=4, external="host", parts=parts) as lab:
            for _ in range(2):
                lab.generate([range(9)], max_tokens=1)
                lab.reset_prefix_cache()
            assert not lab.check() and lab.timeline is not None
            found.append([event.num_tokens for event in lab.timeline.events() if isinstance(event, ExternalHit)])
    assert found == [[8], []]


@cache
def usual_events(edition: str, seed: int) -> list[object]:
    return events_of(edition, seed)


def events_of(edition: str, seed: int, parts: Parts | None = None) -> list[object]:
    events: list[object] = []
    hooks = Hooks(strict=True)
    drive = Ground(edition).drive(seed, hooks, parts=parts)
    hooks.subscribe(events.append)
    drive.run()
    return events
