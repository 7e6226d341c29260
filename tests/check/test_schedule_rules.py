"""What a schedule owes its requests: the rules idle, granted and progress, and the steps that they excuse."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from check.watched import FULL, HYBRID, Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.core.block_pool import FreedTwiceError
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import FinishReason, Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import FreeReason


def three_decoding(parts: Parts, num_blocks: int = 16, **settings: int) -> Watched:
    """Three requests that decode, after one step."""
    setup = watched(num_blocks, FULL, parts, **settings)  # type: ignore[arg-type]
    for number in range(3):
        setup.add(*range(10 * number, 10 * number + 3), max_tokens=6)
    setup.steps(1)
    return setup


def with_scheduler(scheduler: type, edition: str = "labengine") -> Parts:
    return Parts(scheduler=scheduler).overriding(as_parts(edition))


# -- held, where the step fails ----------------------------------------------------------------------------------------


def test_a_request_whose_first_step_is_undone_at_its_end_is_not_taken_for_a_running_one() -> None:
    """The step had ended for the checks, when a listener after them raised."""
    setup = watched(16, FULL, "nano-vllm")
    setup.add(1, 2, 3, max_tokens=6)
    setup.steps(1)
    setup.add(4, 5, 6, max_tokens=6)

    def fail(event: ev.StepEnded) -> None:
        raise KeyError

    subscription = setup.engine.hooks.subscribe(fail, ev.StepEnded)
    with pytest.raises(KeyError):
        setup.engine.step()
    subscription.close()
    setup.run()
    setup.assert_clean()


class FreesAgain(TokenBudgetScheduler):
    """Frees the blocks of the request that finished last once more (as SGLang 18694 reports of a preemption)."""

    held: tuple[int, ...] = ()
    steps_between = 0

    def finish(self, request: Request, reason: FinishReason) -> None:
        type(self).held = (*request.block_tables[0],)
        super().finish(request, reason)

    def schedule(self) -> StepPlan:
        if self.held and not self.steps_between:
            self.manager.pool.release(self.held)
        self.steps_between -= bool(self.held)
        return super().schedule()


@pytest.mark.parametrize("steps_between", [0, 3])
def test_a_request_that_finished_and_is_freed_again_is_named(
    steps_between: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FreesAgain, "held", ())
    monkeypatch.setattr(FreesAgain, "steps_between", steps_between)
    setup = watched(16, FULL, with_scheduler(FreesAgain))
    setup.add(1, 2, 3, max_tokens=8)
    setup.add(*range(10, 15))
    with pytest.raises(FreedTwiceError):
        setup.run()
    [found] = setup.watch.violations
    assert (found.rule, found.request_ids, found.block_ids) == ("held", (1,), (1,))
    assert found.block_ids == (1,) and "request 1 has finished" in found.message
    assert "(overridden: FreesAgain." in found.message


class KeepsTheTable(FullAttentionGroup):
    """Frees a request's blocks, and leaves its table as it is."""

    def free(self, request: Request, reason: FreeReason) -> None:
        table = request.block_tables[self.index]
        self.release(request, table, range(len(table)), reason)


def test_a_finished_request_that_keeps_its_table_breaks_no_rule_on_what_it_computes() -> None:
    setup = watched(8, FULL, Parts(KeepsTheTable).overriding(as_parts("labengine")))
    setup.add(1, 2, 3)
    setup.run()
    assert setup.broken_rules() >= {"held", "said"} and "progress" not in setup.broken_rules()


# -- idle --------------------------------------------------------------------------------------------------------------


class LeavesOneOut(TokenBudgetScheduler):
    """Passes request 1 over."""

    def num_plannable(self, request: Request) -> int:
        return 0 if request.request_id == 1 and request.num_generated_tokens else super().num_plannable(request)


class LeavesAllOut(TokenBudgetScheduler):
    """Computes nothing in the second step."""

    def num_plannable(self, request: Request) -> int:
        return 0 if request.num_generated_tokens else super().num_plannable(request)


class LosesARequest(TokenBudgetScheduler):
    """Takes the neighbour off the running requests when one ends."""

    def _remove_running(self, request: Request) -> None:
        super()._remove_running(request)
        if self.running:
            super()._remove_running(self.running[-1])


class DecodesHalf(PrefillFirstScheduler):
    """Decodes the first two running requests only."""

    def _schedule_decode(self) -> StepPlan:
        left_out = self.running[2:]
        del self.running[2:]
        plan = super()._schedule_decode()
        self.running += left_out
        return plan


def test_a_running_request_that_is_passed_over_is_found_with_the_one_that_overtakes_it() -> None:
    setup = three_decoding(with_scheduler(LeavesOneOut))
    setup.steps(1)
    (found,) = setup.watch.violations
    assert (found.rule, found.request_ids, found.step) == ("idle", (1,), 2)
    assert "998 tokens" in found.message and found.message.endswith("(LeavesOneOut.num_plannable)")
    event = setup.first_event("idle")
    assert isinstance(event, ev.RequestScheduled) and event.request_id == 2


def test_the_message_says_which_blocks_are_needed() -> None:
    setup = three_decoding(with_scheduler(LeavesOneOut))
    setup.engine.requests[1].token_ids.extend([7])  # two tokens without KV, the second in a new block
    setup.engine.requests[1].num_computed_tokens += 1
    setup.steps(1)
    found = next(violation for violation in setup.watch.violations if violation.rule == "idle")
    assert "1 block of 13 free" in found.message


def test_a_step_that_computes_nothing_is_judged_too() -> None:
    setup = three_decoding(with_scheduler(LeavesAllOut))
    setup.steps(1)
    assert [(one.rule, one.request_ids) for one in setup.watch.violations] == [("idle", (i,)) for i in range(3)]
    assert "(LeavesAllOut.num_plannable)" in setup.watch.violations[0].message


def test_a_request_that_is_lost_from_the_running_ones_is_found() -> None:
    setup = watched(16, FULL, with_scheduler(LosesARequest))
    setup.add(1, 2, 3, max_tokens=1)
    setup.add(4, 5, 6, max_tokens=9)
    setup.add(7, 8, 9, max_tokens=9)
    setup.steps(2)
    assert ("idle", (2,)) in [(one.rule, one.request_ids) for one in setup.watch.violations]


def test_a_decode_step_of_nano_vllm_takes_all_that_it_has_places_for() -> None:
    setup = three_decoding(with_scheduler(DecodesHalf, "nano-vllm"))
    setup.steps(1)
    assert [(one.rule, one.request_ids) for one in setup.watch.violations] == [("idle", (2,))]
    excused = three_decoding(with_scheduler(DecodesHalf, "nano-vllm"), max_num_seqs=2)
    excused.run()
    assert excused.watch.violations == []


def test_a_prefill_step_of_nano_vllm_computes_no_decode() -> None:
    setup = three_decoding(as_parts("nano-vllm"))
    for prompt in (range(50, 58), range(50, 58)):  # the second one finds all but its last token
        setup.add(*prompt, max_tokens=2)
        setup.steps(1)
    assert setup.watch.violations == []


def test_a_budget_that_is_spent_excuses_the_requests_behind() -> None:
    setup = three_decoding(as_parts("labengine"), budget=2)
    setup.run()
    assert setup.watch.violations == []


class PreemptsItself(TokenBudgetScheduler):
    """Takes the blocks of the request that lacks one."""

    def choose_victim(self, request: Request) -> Request:
        return request


def test_a_request_that_preempts_itself_ends_the_step() -> None:
    setup = watched(4, FULL, with_scheduler(PreemptsItself))
    setup.add(1, 2, 3, 4, max_tokens=9)
    setup.add(5, 6, 7, 8, max_tokens=9)
    setup.add(9, max_tokens=9)
    setup.steps(12)
    assert setup.timeline.events() and any(isinstance(one, ev.RequestPreempted) for one in setup.timeline.events())
    assert setup.watch.violations == []


# -- granted -----------------------------------------------------------------------------------------------------------


class AllocatesNothing(KVCacheManager):
    """Says that the blocks are there."""

    def allocate(self, request: Request, num_tokens: int) -> bool:
        return True


class AdmitsAnything(as_parts("nano-vllm").kv_cache_manager):  # type: ignore[misc]
    """Lets every request in."""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        return True


class GrantsTooMuch(KVCacheManager):
    """Counts no block that is missing."""

    def has_room(self, hit: Hit, num_external: int, num_blocks: Sequence[int], num_spare: int) -> bool:
        return True


def test_a_running_request_without_its_block_is_found_where_it_is_scheduled() -> None:
    setup = three_decoding(Parts(kv_cache_manager=AllocatesNothing).overriding(as_parts("labengine")))
    setup.steps(1)
    with pytest.raises(NotGrantedError, match=r"request 0 .* token 5, .* hold only 4"):
        setup.steps(1)
    (found,) = setup.watch.violations
    assert (found.rule, found.request_ids) == ("granted", (0,))
    assert found.message.endswith("(AllocatesNothing.allocate)")
    event = setup.first_event("granted")
    assert isinstance(event, ev.RequestScheduled) and (event.request_id, event.start) == (0, 4)


def test_an_edition_that_writes_into_the_last_block_is_found_too() -> None:
    """nano-vLLM's decode slot is in the table's last block: nothing raises."""

    class NanoAllocatesNothing(as_parts("nano-vllm").kv_cache_manager):  # type: ignore[misc]
        def allocate(self, request: Request, num_tokens: int) -> bool:
            return True

    setup = three_decoding(Parts(kv_cache_manager=NanoAllocatesNothing).overriding(as_parts("nano-vllm")))
    setup.steps(2)
    granted = [one for one in setup.watch.violations if one.rule == "granted"]
    assert [one.request_ids for one in granted] == [(0,), (1,), (2,)]
    assert all("(NanoAllocatesNothing.allocate)" in one.message for one in granted)


def test_prefill_first_names_the_look_ahead_that_let_a_request_in() -> None:
    setup = watched(4, FULL, Parts(kv_cache_manager=AdmitsAnything).overriding(as_parts("nano-vllm")))
    setup.add(*range(12), max_tokens=2)
    setup.add(*range(20, 29), max_tokens=2)
    with pytest.raises(NotGrantedError, match=r"AdmitsAnything.can_admit .* request 1, .* KVCacheManager.admit"):
        setup.steps(1)
    (found,) = setup.watch.violations
    assert found.rule == "granted" and found.message.endswith("(AdmitsAnything.can_admit)")


@pytest.mark.parametrize("groups", [FULL, HYBRID])
def test_a_grant_of_blocks_that_are_not_free_names_who_promised(groups: Sequence[object]) -> None:
    parts = Parts(kv_cache_manager=GrantsTooMuch).overriding(as_parts("labengine"))
    setup = watched(4 * len(groups), groups, parts)  # type: ignore[arg-type]
    setup.add(*range(12), max_tokens=2)
    setup.add(*range(20, 29), max_tokens=2)
    with pytest.raises(NotGrantedError, match=r"request 1 needs \d blocks?"):
        setup.steps(1)
    (found,) = setup.watch.violations
    assert found.rule == "granted" and "(GrantsTooMuch.has_room)" in found.message
    event = setup.first_event("granted")
    assert isinstance(event, ev.PrefixHit) and event.request_id == 1


# -- progress ----------------------------------------------------------------------------------------------------------


def test_a_step_whose_tokens_are_not_counted_makes_no_progress() -> None:
    class CountsOneLess(TokenBudgetScheduler):
        def book_computed(self, request: Request, num_tokens: int) -> None:
            super().book_computed(request, num_tokens - (request.request_id == 1))

    setup = three_decoding(with_scheduler(CountsOneLess))
    (found,) = setup.watch.violations
    assert (found.rule, found.request_ids) == ("progress", (1,))
    assert "up to token 3" in found.message and "counts 2 as computed (" in found.message
    assert found.message.endswith("CountsOneLess.book_computed)")


# -- sampled -----------------------------------------------------------------------------------------------------------


class MixesTokens(TokenBudgetScheduler):
    """Gives each request the token of the last one that was not served."""

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        return super().update(plan, sampled[::-1])


class KeepsATokenBack(TokenBudgetScheduler):
    """Appends no token to request 1."""

    def append_token(self, request: Request, token_id: int) -> None:
        if request.request_id != 1:
            super().append_token(request, token_id)


@pytest.mark.parametrize(
    ("scheduler", "method"), [(MixesTokens, "MixesTokens.update"), (KeepsATokenBack, "KeepsATokenBack.append_token")]
)
def test_a_token_of_another_request_or_none_breaks_sampled(scheduler: type, method: str) -> None:
    setup = three_decoding(with_scheduler(scheduler))
    found = [violation for violation in setup.watch.violations if violation.rule == "sampled"]
    assert found and found[0].message.endswith(f"({method})")
    assert isinstance(setup.first_event("sampled"), (ev.TokenSampled, ev.TokensComputed))


@pytest.mark.parametrize("edition", ["labengine", "vllm", "nano-vllm"])
def test_rows_of_answers_and_searches_are_told_apart(edition: str) -> None:
    setup = watched(32, FULL, edition)
    leader = setup.add(1, 2, 3, 4, 5, max_tokens=4)
    if edition != "nano-vllm":
        setup.add(1, 2, 3, 4, 5, max_tokens=4, leader_id=leader)
    if edition == "labengine":
        setup.search(1, 2, 3, beams=3, max_tokens=4)
    setup.run()
    assert setup.watch.violations == []
