"""Public seams decided wrongly: the kernel lives, and the violation names event, class and method."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from check.mutations import FreesWithoutRepointing
from labengine import Lab, Parts
from labengine.core.block_pool import BlockPool
from labengine.core.free_queue import FreeQueue
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.core.seams import decider
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.record.violation import Violation


class HandsOutTwice(FreeQueue):
    """Names the next blocks, and leaves them queued."""

    def take(self, num_blocks: int) -> list[int]:
        return list(self)[:num_blocks]


class KeepsHits(FreeQueue):
    """Does not let a hit leave the queue."""

    def remove(self, block_id: int) -> int:
        return self._prev[block_id]


class ForgetsTheLastEntry(FullAttentionGroup):
    """Leaves one entry out of the order of freeing."""

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        return range(num_entries - 1, 0, -1)


class TouchesHalf(BlockPool):
    """Counts a hit, and leaves its block in the queue."""

    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1


WRONG = {
    "take": Parts(free_queue=HandsOutTwice),
    "remove": Parts(free_queue=KeepsHits),
    "merge": Parts(full_attention_group=FreesWithoutRepointing),
    "freeing_order": Parts(full_attention_group=ForgetsTheLastEntry),
    "touch": Parts(block_pool=TouchesHalf),
}


def crowd(lab: Lab) -> None:
    """Equal prompts at once and one after the other, so that blocks are merged, hit while free, and evicted."""
    for _ in range(2):
        for copies in (2, 1):
            for _ in range(copies):
                lab.add(token_ids=range(1, 10), max_tokens=4)
            lab.run()
        lab.add(token_ids=range(50, 66), max_tokens=5)
        lab.run()


@pytest.mark.parametrize("method", WRONG)
def test_a_wrong_decision_is_reported_with_event_class_and_method(method: str) -> None:
    parts = WRONG[method]
    (name,) = (cls.__name__ for cls in vars(parts).values() if isinstance(cls, type))
    with Lab("simulated", num_blocks=10, block_size=4, parts=parts) as lab:
        with suppress(Exception):
            crowd(lab)
        assert lab.violations, "nothing was found"
        first = min(lab.violations, key=lambda violation: violation.first_event or 0)
        assert f"({name}.{method})" in first.message or decided_by(lab, first) == f"{name}.{method}"
        assert str(lab) and lab.snapshot()  # looking at it comes back


def decided_by(lab: Lab, violation: Violation) -> str:
    """Who decided the event after which the rule was broken."""
    assert lab.timeline is not None and violation.first_event is not None
    (event,) = lab.timeline.events(violation.first_event, violation.first_event + 1)
    return str(decider(lab.parts, event))


class KeepsNoRequest(TokenBudgetScheduler):
    """Queues a request that it does not keep."""

    def add(self, request: Request) -> None:
        self.waiting.add_request(request)


@pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")
def test_a_request_that_is_not_kept_is_reported_with_the_method_before_the_step_fails() -> None:
    with Lab("simulated", num_blocks=8, block_size=4, parts=Parts(scheduler=KeepsNoRequest)) as lab:
        lab.add(token_ids=range(9), max_tokens=2)
        with suppress(KeyError):
            lab.step()
        first = lab.violations[0]
        assert first.rule == "said" and "KeepsNoRequest.add" in first.message and first.first_event == 2
        assert "watch" not in {violation.rule for violation in lab.violations}, "the checks go on"


def test_a_victim_without_blocks_ends_the_step_and_not_the_kernel() -> None:
    class TakesFromTheWaiting(TokenBudgetScheduler):
        """Asks requests that hold nothing."""

        def choose_victim(self, request: Request) -> Request:
            return self.waiting[-1]

    with Lab("simulated", num_blocks=8, block_size=4, parts=Parts(scheduler=TakesFromTheWaiting)) as lab:
        for number in range(4):
            lab.add(token_ids=range(20 * number, 20 * number + 9), max_tokens=12)
        with pytest.raises(RuntimeError, match=r"request \d holds no blocks"):
            lab.run()
        assert not lab.violations
        assert lab.snapshot().num_used_blocks > 0


class KeepsItsBlocks(TokenBudgetScheduler):
    """Preempts without giving anything back."""

    def take_blocks(self, victim: Request) -> None:
        pass


class LoadsAndWaits(TokenBudgetScheduler):
    """Has a request loaded that stays where it is."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> int | None:
        request.is_loading = True
        return 0


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (KeepsItsBlocks, r"request \d still holds its \d+ block table entries"),
        (LoadsAndWaits, r"request \d .* waiting queue"),
    ],
)
def test_a_loop_that_gets_nowhere_ends_the_step(scheduler: type[TokenBudgetScheduler], message: str) -> None:
    with Lab("simulated", num_blocks=8, block_size=4, parts=Parts(scheduler=scheduler)) as lab:
        for number in range(4):
            lab.add(token_ids=range(20 * number, 20 * number + 9), max_tokens=12)
        with pytest.raises(RuntimeError, match=message):
            lab.run()
