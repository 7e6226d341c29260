"""Production's decisions, asked beside a user's: the first disagreement is recorded, and asking changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from check.watched import FULL, Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.check.production import Production
from labengine.core.block_pool import BlockPool
from labengine.core.editions import EDITIONS, LABENGINE
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup, NotGrantedError
from labengine.core.nano_vllm.kv_cache_manager import EarlyHashManager
from labengine.core.parts import Parts, parts_of
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.token_budget import TokenBudgetScheduler

# -- the moment --------------------------------------------------------------------------------------------------------


class Oldest(TokenBudgetScheduler):
    """vLLM 49097: the victim is the request that runs first."""

    def choose_victim(self, request: Request) -> Request:
        return self.running[0]


def crowded(parts: Parts) -> Watched:
    setup = watched(6, FULL, parts)
    for number in range(2):
        setup.add(*range(100 * number, 100 * number + 8), max_tokens=9)
    setup.run()
    return setup


def test_another_victim_is_recorded_at_the_moment_of_the_choice() -> None:
    setup = crowded(Parts(scheduler=Oldest).overriding(LABENGINE))
    [found] = setup.differences()
    assert found == ev.DecisionDiffered(
        "Oldest.choose_victim", "TokenBudgetScheduler.choose_victim", "request 0", "request 1", found.request_id
    )
    events = setup.timeline.events()
    following = events[events.index(found) + 1]
    assert isinstance(following, ev.BlockFreed) and following.reason == "preempted" and following.request_id == 0


X, Y, Z = range(100, 104), range(200, 204), range(300, 304)


class FreeHitsAreFree(FullAttentionGroup):
    """ROCm ATOM 902: a hit on a free block is not charged."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        return max(num_blocks - len(hit), 0)


class CreditsTheLastBlock(FullAttentionGroup):
    """TensorRT-LLM 12404: a prompt's last block counts as reusable, and has to be computed."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        return super().num_blocks_to_admit(hit, num_computed_tokens, num_blocks) - bool(hit)


def atom_902(setup: Watched) -> None:
    setup.add(*X, *Y)
    setup.run()
    setup.add(1, 2, 3, max_tokens=9)
    setup.steps(1)
    setup.add(*X, *Y, *Z, 7, 8, 9, 10)
    setup.run()


def tensorrt_llm_12404(setup: Watched) -> None:
    setup.add(*X, *Y, max_tokens=6)
    setup.steps(1)
    setup.add(1, 2, max_tokens=3)
    setup.steps(2)
    setup.add(*X, *Y)
    setup.run()


@pytest.mark.parametrize(
    ("group", "play", "decided", "instead_of"),
    [(FreeHitsAreFree, atom_902, "2", "4"), (CreditsTheLastBlock, tensorrt_llm_12404, "0", "1")],
)
def test_an_admission_that_charges_too_little_is_named_before_it_fails(
    group: type[FullAttentionGroup], play: Callable[[Watched], None], decided: str, instead_of: str
) -> None:
    setup = watched(4, FULL, Parts(full_attention_group=group).overriding(EDITIONS["nano-vllm"]))
    with pytest.raises(NotGrantedError):
        play(setup)
    [found] = setup.differences()
    assert found.method == f"{group.__name__}.num_blocks_to_admit"
    assert found.replaces == "KVCacheGroup.num_blocks_to_admit"
    assert (found.decided, found.instead_of) == (decided, instead_of)
    fine = watched(4, FULL, "nano-vllm")
    play(fine)
    assert fine.engine.requests[2].finish_reason == "length"


# -- the rule `longest` ------------------------------------------------------------------------------------------------


class Shortened(FullAttentionGroup):
    """Leaves the last block of each hit unused."""

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        return [hit[:-1] for hit in super().find_hit(request, max_tokens, siblings)]


class Declared(Shortened):
    """The same, as a policy."""

    finds_longest = False


def three_times(group: type[FullAttentionGroup], edition: str = "labengine") -> Watched:
    setup = watched(16, FULL, Parts(full_attention_group=group).overriding(as_parts(edition)))
    for _ in range(3):
        setup.add(*range(1, 14))
        setup.run()
    return setup


@pytest.mark.parametrize("edition", ["labengine", "vllm", "nano-vllm"])
def test_a_look_up_that_finds_less_breaks_a_rule_at_its_event(edition: str) -> None:
    setup = three_times(Shortened, edition)
    assert setup.broken_rules() == {"longest"}
    assert [violation.request_ids for violation in setup.watch.violations] == [(1,), (2,)], "once for each request"
    first = setup.watch.violations[0]
    assert first.message.startswith("Shortened.find_hit finds 8 tokens for request 1, but FullAttentionGroup.find_hit")
    event = setup.first_event("longest")
    assert isinstance(event, ev.DecisionDiffered) and event.request_id == 1
    blocks = "[[1, 2]]", "[[1, 2, 3]]"
    assert (event.decided, event.instead_of) == (blocks if edition == "vllm" else ("[[0, 1]]", "[[0, 1, 2]]"))


def test_a_declared_policy_differs_and_breaks_no_rule() -> None:
    setup = three_times(Declared)
    assert setup.watch.violations == []
    assert [one.method for one in setup.differences()] == ["Shortened.find_hit"], "the first disagreement, once"


def test_an_edition_with_another_cap_is_no_shorter_look_up() -> None:
    class Caps(EarlyHashManager):
        def find_prefix(self, request: Request) -> Hit:
            self.extend_hashes(request, request.num_tokens)
            return self.longest_hit(request, request.num_tokens - 1)

    setup = watched(16, FULL, Parts(kv_cache_manager=Caps).overriding(EDITIONS["nano-vllm-2025-07"]))
    for _ in range(2):
        setup.add(*range(1, 9))
        setup.run()
    assert [one.decided for one in setup.differences()] == ["a hit of 4 tokens in blocks [[0]]"]
    assert setup.watch.violations == []


# -- asking is contained -----------------------------------------------------------------------------------------------


class Fragile(deque[Request]):
    """Waiting requests that are asked for from one end only."""

    def __getitem__(self, index: Any) -> Any:
        raise LookupError("not from here")


class OwnQueue(TokenBudgetScheduler):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waiting._requests = Fragile()

    def next_waiting(self) -> Request:
        return next(iter(self.waiting))


def test_what_productions_method_raises_is_its_answer() -> None:
    setup = watched(8, FULL, Parts(scheduler=OwnQueue).overriding(LABENGINE))
    setup.add(1, 2, 3)
    setup.run()
    [found] = setup.differences()
    assert (found.decided, found.instead_of) == ("request 0", "an error (LookupError: not from here)")
    assert setup.engine.requests[0].finish_reason == "length" and setup.watch.violations == []


class Endless(deque[Request]):
    """Waiting requests that never come to an end when they are asked for by place."""

    def __getitem__(self, index: Any) -> Any:
        raise KeyboardInterrupt  # instead of the Ctrl-C that ends a loop


class LoopsInProduction(OwnQueue):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waiting._requests = Endless()


def test_an_end_from_outside_passes_and_the_step_is_rolled_back() -> None:
    setup = watched(8, FULL, Parts(scheduler=LoopsInProduction).overriding(LABENGINE))
    setup.add(1, 2, 3)
    before = setup.engine.snapshot()
    with pytest.raises(KeyboardInterrupt):
        setup.engine.step()
    assert setup.engine.snapshot() == before and setup.watch.violations == []
    assert [type(one) for one in setup.timeline.events()[-2:]] == [ev.StepStarted, ev.StepRolledBack]


class SameHits(EarlyHashManager):
    """Production's method changes the chain of its request, and the journal, when it is asked."""

    def find_prefix(self, request: Request) -> Hit:
        return super().find_prefix(request)

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        super().extend_hashes(request, num_tokens)


def play_twice(parts: Parts) -> Watched:
    setup = watched(7, FULL, parts)
    for number in range(4):
        setup.add(*range(1, 9 + number % 2), max_tokens=5)
        setup.steps(2)
    setup.run()
    return setup


def test_asking_leaves_state_journal_and_events_alone() -> None:
    edition = EDITIONS["nano-vllm-2025-07"]
    mine, own = play_twice(Parts(kv_cache_manager=SameHits).overriding(edition)), play_twice(edition)
    assert mine.timeline.events()[1:] == own.timeline.events()[1:]
    assert mine.engine.snapshot() == own.engine.snapshot()
    assert mine.watch.overrides == {"SameHits.find_prefix": False, "SameHits.extend_hashes": False}


def test_even_a_question_that_changes_the_core_is_undone() -> None:
    """What production's methods journal is rolled back, what they memoize is dropped, and what they set is theirs."""
    setup = watched(8, FULL, Parts(block_pool=HeadFirst, full_attention_group=Shortened).overriding(LABENGINE))
    request_id = setup.add(*range(1, 10))
    engine, before, num_events = setup.engine, setup.engine.snapshot(), setup.timeline.end
    manager, request = engine.scheduler.manager, engine.requests[request_id]
    production = Production(parts_of(engine.scheduler), engine.hooks, engine.journal)
    assert production.ask(manager, "find_prefix", (request,), {}).num_tokens == 0
    assert production.ask(manager.pool, "take", (3,), {}) == [0, 1, 2]
    assert production.ask(manager.groups[0], "extend", (), {"request": request, "num_tokens": 9}) is None
    with pytest.raises(RuntimeError, match="block 0 is freed twice"):
        production.ask(manager.pool, "release", ([0],), {})
    assert production.value(manager.pool, "num_losses") == 0, "what was set is forgotten"
    assert engine.snapshot() == before and setup.timeline.end == num_events
    assert not engine.journal and request.block_hashes == [] and manager.pool.num_losses == 0


class Counts(FullAttentionGroup):
    """Counts how often it is asked, and every third time forgets what it has found."""

    num_asked = 0

    def cached_run(self, request: Request, num_blocks: int) -> list[int]:
        self.num_asked += 1
        return [] if self.num_asked % 3 == 0 else super().cached_run(request, num_blocks)

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        return super().find_hit(request, max_tokens, siblings)


def test_overrides_are_asked_as_often_as_without_the_checks() -> None:
    setup = three_times(Counts)
    [group] = setup.engine.scheduler.manager.groups
    assert isinstance(group, Counts) and group.num_asked == 3
    found = setup.differences()
    assert [one.method for one in found] == ["Counts.cached_run", "Counts.find_hit"], "the innermost comes first"


class HeadFirst(BlockPool):
    """Decides otherwise between a change of the core and its event, and then fails."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        return [-1]


def test_a_step_that_fails_right_after_the_decision_contradicts_no_event() -> None:
    setup = watched(8, FULL, Parts(block_pool=HeadFirst).overriding(LABENGINE))
    setup.add(1, 2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"HeadFirst\.reused_first must return a list of some of the given blocks"):
        setup.run()
    assert [one.method for one in setup.differences()] == ["HeadFirst.reused_first"]
    assert setup.watch.violations == []


# -- who is watched ----------------------------------------------------------------------------------------------------


def attributes(scheduler: Scheduler) -> list[set[str]]:
    return [set(getattr(part, "__dict__", ())) for part in parts_of(scheduler)]


@pytest.mark.parametrize("edition", EDITIONS)
def test_parts_without_overrides_are_left_as_they_are(edition: str) -> None:
    scheduler = watched(edition=edition).engine.scheduler
    assert attributes(scheduler) == attributes(
        EDITIONS[edition].assemble(watched().engine.config, watched().engine.hooks, watched().engine.journal)
    )


def test_only_the_overridden_method_is_hidden_and_only_while_it_is_watched() -> None:
    setup = watched(edition=Parts(full_attention_group=Shortened).overriding(LABENGINE))
    [group] = setup.engine.scheduler.manager.groups
    assert {name for name in vars(group) if callable(vars(group)[name]) and hasattr(KVCacheGroup, name)} == {"find_hit"}
    setup.watch.close()
    assert "find_hit" not in vars(group)


def test_a_method_that_nothing_calls_is_said_to_be_never_called() -> None:
    class Worth(FullAttentionGroup):
        def is_worth_caching(self, request: Request, index: int) -> bool:
            return False

    setup = three_times(Worth)
    assert setup.watch.overrides == {"Worth.is_worth_caching": None}


def test_an_error_of_the_shadow_stops_the_watch_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError("lost")

    monkeypatch.setattr("labengine.check.shadow.request_of", fails)
    setup = three_times(Shortened)
    [violation] = setup.watch.violations
    assert violation.rule == "watch" and "ArithmeticError('lost')" in violation.message


def test_a_new_engine_is_followed_from_scratch() -> None:
    """Decisions that were reported once are reported again in the new recording."""
    setup = three_times(Declared)
    setup.watch.follow(setup.engine)
    setup.add(*range(1, 14))
    setup.run()
    assert len(setup.differences()) == 2
