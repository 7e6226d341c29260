"""The core against its events: each contradiction is reported with event, class and method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from check.watched import HYBRID, Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.check.blame import NumberedEvent, last_about
from labengine.check.contradictions import Contradiction
from labengine.core.block_pool import BlockPool
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.record.violation import Violation

EQUAL = range(1, 10)


def said(setup: Watched) -> list[Violation]:
    """The violations of the rule `said`."""
    return [violation for violation in setup.watch.violations if violation.rule == "said"]


def story(**parts: Any) -> Watched:
    """A prompt is computed; then it comes again beside another one, and both go on for a while."""
    setup = watched(8, edition=Parts(**parts).overriding(as_parts("labengine")))
    setup.add(*EQUAL)
    setup.steps(1)
    setup.add(*EQUAL, max_tokens=6)
    setup.add(*range(50, 62), max_tokens=6)
    return setup


class WrongTouch(BlockPool):
    """Leaves a touched block in the free queue."""

    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1


def test_an_event_that_says_what_its_method_did_not_do() -> None:
    setup = story(block_pool=WrongTouch)
    setup.steps(1)
    first = said(setup)[0]
    (event,) = setup.timeline.events(first.first_event, first.first_event + 1)  # type: ignore[operator]
    assert isinstance(event, ev.BlockTouched) and first.block_ids == (event.block_id,)
    number, block = first.first_event, event.block_id
    assert first.message.startswith(f"event {number} (BlockTouched) says that block {block} left the free queue; it is")
    assert "still in it, at place" in first.message and first.message.endswith("(WrongTouch.touch)")
    assert setup.watch.violations[0] is first, "the cause is told before what follows from it"


def test_a_map_entry_is_blamed_on_the_registration_of_its_key() -> None:
    cached, other = (ev.BlockCached(3, 0, 0, 0, block_hash, (3,)) for block_hash in (b"a", b"b"))
    one = Contradiction("map", "it is there", "it is not", block_id=3, key=(0, b"a"))
    recent = [NumberedEvent(7, cached), NumberedEvent(8, other)]
    assert last_about(one, recent) == NumberedEvent(7, cached)


class WrongTouchAndMore(WrongTouch):
    """The same, and a method that no table of deciding methods has."""

    def _untouch(self, *arguments: Any) -> None:
        super()._untouch(*arguments)


def test_beside_an_override_that_no_table_has_all_overrides_are_named() -> None:
    class Deep(TokenBudgetScheduler):
        def _schedule_running(self, chunk: int, preempted: list[int]) -> Any:
            return super()._schedule_running(chunk, preempted)

        def longest_chunk(self) -> int:
            return super().longest_chunk()

    setup = story(block_pool=WrongTouchAndMore, scheduler=Deep)
    setup.steps(1)
    names = "Deep._schedule_running, Deep.longest_chunk, WrongTouchAndMore._untouch, WrongTouch.touch"
    assert said(setup)[0].message.endswith(f"(overridden: {names})")


class SilentPool(BlockPool):
    """Frees one block more than it says."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        head, tail = super().release(block_ids)
        return head, tail[:-1]


def test_an_event_that_is_missing() -> None:
    setup = story(block_pool=SilentPool)
    setup.run()
    assert said(setup) and all(v.first_event is not None for v in setup.watch.violations)


class SecretTable(FullAttentionGroup):
    """Lets a table name its first block twice, without an event."""

    def extend(self, request: Request, num_tokens: int) -> None:
        super().extend(request, num_tokens)
        if len(request.block_tables[0]) == 3:
            self._extend_table(request.block_tables[0], request.block_tables[0][:1])


def test_a_change_without_an_event_names_the_overrides() -> None:
    setup = watched(8, edition=Parts(full_attention_group=SecretTable).overriding(as_parts("labengine")))
    setup.add(*range(8), max_tokens=4)
    setup.steps(2)
    texts = [violation.message for violation in said(setup)]
    assert any("and no event says so (overridden: SecretTable.extend)" in text for text in texts), texts


class ForgetsTheJournal(BlockPool):
    """Touches as it should, and notes no way back."""

    def touch(self, block_ids: Sequence[int]) -> None:
        super().touch(block_ids)
        del self._journal[-len(block_ids) :]


def test_a_change_that_was_not_taken_back() -> None:
    setup = story(block_pool=ForgetsTheJournal)
    phases = setup.engine.phases()
    next(phases)
    phases.close()  # type: ignore[attr-defined]
    found = said(setup)
    assert found and all("rollback" in violation.message for violation in found)
    assert any("(ForgetsTheJournal.touch)" in violation.message for violation in found)
    assert {type(setup.timeline.events()[v.first_event]) for v in found} == {ev.StepRolledBack}  # type: ignore[index]


class LiesAndFails(WrongTouch):
    """Leaves touched blocks in the queue, and raises in the same step."""

    def take(self, num_blocks: int) -> list[int]:
        if any(block.ref_count and block.block_id in self.free_queue for block in self.blocks):
            raise RuntimeError("a used block is free")
        return super().take(num_blocks)


def test_the_lie_of_a_step_that_fails_is_seen_before_it_is_taken_back() -> None:
    setup = story(block_pool=LiesAndFails)
    with pytest.raises(RuntimeError):
        setup.steps(1)
    kinds = [type(event) for event in setup.timeline.events()]
    failed, rolled_back = kinds.index(ev.StepFailed), kinds.index(ev.StepRolledBack)
    assert ev.ViolationFound in kinds[failed:rolled_back]
    assert "left the free queue; it is still in it" in said(setup)[0].message


class FailsHalfWay(BlockPool):
    """Emits true events, and raises when the queue has changed and its event is not emitted."""

    def take(self, num_blocks: int) -> list[int]:
        taken = super().take(num_blocks)
        if self.num_used > 4:
            raise RuntimeError("half-way")
        return taken


def test_a_part_that_raises_in_the_middle_of_a_change_is_not_accused_of_lying() -> None:
    setup = story(block_pool=FailsHalfWay)
    with pytest.raises(RuntimeError):
        setup.steps(1)
    assert setup.watch.violations == []


class AdmitsForNothing(TokenBudgetScheduler):
    """Gives a request its blocks, and leaves it out of the plan."""

    def schedule(self) -> Any:
        plan = super().schedule()
        return type(plan)(plan.scheduled[:-1], plan.preempted, plan.loads, plan.saves)


class HitsAll(as_parts("labengine").kv_cache_manager):  # type: ignore[misc]
    """Lets a hit cover the last token too: nothing is left to compute (vLLM issue 17999, nano-vLLM issue 114)."""

    def find_prefix(self, request: Request) -> Any:
        self.extend_hashes(request, request.num_tokens)
        return self._prefix_lookup.longest_hit(request, request.num_tokens)


@pytest.mark.parametrize("part", [{"scheduler": AdmitsForNothing}, {"kv_cache_manager": HitsAll}])
def test_a_step_that_schedules_nothing_for_a_request_it_admits(part: dict[str, type]) -> None:
    setup = watched(8, edition=Parts(**part).overriding(as_parts("labengine")))  # type: ignore[arg-type]
    for _ in range(2):
        setup.add(*range(8), max_tokens=2)
        setup.engine.step()
    progress = [violation for violation in setup.watch.violations if violation.rule == "progress"]
    assert progress and progress[0].request_ids and progress[0].first_event is not None


def test_a_steps_report_lists_what_was_found_in_it() -> None:
    setup = story(block_pool=WrongTouch)
    report = setup.engine.step()
    assert report.violations == tuple(setup.watch.violations) != ()
    assert setup.engine.step().violations == ()


def test_a_pool_too_large_for_every_step_is_compared_completely_now_and_then() -> None:
    """A change without an event, in a block that no event names."""
    setup = watched(6000, HYBRID)
    setup.add(*range(9), max_tokens=30)
    setup.steps(2)
    setup.engine.scheduler.manager.pool.blocks[5000].ref_count += 1
    setup.steps(12)
    (violation,) = said(setup)
    assert violation.block_ids == (5000,) and "no event says so" in violation.message
