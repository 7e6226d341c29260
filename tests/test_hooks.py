"""Which listeners get which events, in which order, and what happens to one that misbehaves."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from driving import num_reserved_blocks, recorded, small_engine
from grounds import ALL_GROUNDS, Ground
from labengine.config import SamplingParams
from labengine.core.collaborator import Absent
from labengine.core.editions import EDITIONS
from labengine.events import (
    EVENT_KINDS,
    BeamReplaced,
    BlockCopied,
    BlockMerged,
    BlockMoved,
    BlockPinned,
    BlocksLoaded,
    BlocksSaved,
    BlocksSkipped,
    BlockUnpinned,
    DecisionDiffered,
    DraftsJudged,
    Event,
    ExternalHit,
    ForwardRan,
    FreeDeferred,
    HashesMoved,
    LoadFailed,
    NodeEvicted,
    NodeInserted,
    NodeLocked,
    NodeSplit,
    NodesTouched,
    NodeUnlocked,
    PrefixCacheReset,
    RequestAdded,
    RequestForked,
    RequestHandedOver,
    RequestPreempted,
    RequestReceived,
    RequestReleased,
    SharedPrefixFound,
    StateAdvanced,
    StateCopied,
    StepEnded,
    StepFailed,
    StepStarted,
    TierChanged,
    TokensDrafted,
    ViolationFound,
)
from labengine.record.hooks import Hooks

ONE, TWO, THREE = StepStarted(1), StepEnded(1), ForwardRan(1, 1)


def test_listeners_hear_in_subscription_order() -> None:
    hooks, heard = Hooks(strict=True), []
    for name in "abc":
        hooks.subscribe(lambda event, name=name: heard.append((name, event)), StepStarted)
    hooks.emit(ONE)
    assert heard == [("a", ONE), ("b", ONE), ("c", ONE)]


def test_a_listener_hears_only_the_kinds_it_named() -> None:
    hooks, heard = Hooks(strict=True), []
    hooks.subscribe(heard.append, StepEnded, ForwardRan)
    for event in (ONE, TWO, THREE):
        hooks.emit(event)
    assert heard == [TWO, THREE]


def test_naming_no_kind_means_every_kind() -> None:
    hooks = Hooks(strict=True)
    assert not any(kind in hooks for kind in EVENT_KINDS)
    hooks.subscribe(print)
    assert all(kind in hooks for kind in EVENT_KINDS)


def test_what_is_no_event_kind_is_refused() -> None:
    hooks = Hooks()
    for kind in (Event, int, ONE):
        with pytest.raises(TypeError, match="event kind"):
            hooks.subscribe(print, kind)  # type: ignore[arg-type]
    assert not hooks


def test_events_emitted_by_a_listener_wait_for_everybody() -> None:
    hooks, heard = Hooks(strict=True), []

    def nest(event: Event) -> None:
        if event is ONE:
            hooks.emit(TWO)
            hooks.emit(THREE)

    hooks.subscribe(nest)
    hooks.subscribe(heard.append)
    hooks.emit(ONE)
    assert heard == [ONE, TWO, THREE]


def test_a_failing_listener_is_dropped_and_kept_with_its_event() -> None:
    hooks, heard = Hooks(), []

    def fail(event: Event) -> None:
        raise ZeroDivisionError("mine")

    hooks.subscribe(fail)
    hooks.subscribe(heard.append)
    hooks.emit(ONE)
    hooks.emit(TWO)
    assert heard == [ONE, TWO]
    (failure,) = hooks.failures
    assert (failure.listener, failure.event, str(failure.error)) == (fail, ONE, "mine")


def test_strict_hooks_raise_and_recover() -> None:
    hooks, heard = Hooks(strict=True), []

    def fail(event: Event) -> None:
        hooks.emit(THREE)
        raise ZeroDivisionError

    hooks.subscribe(fail)
    hooks.subscribe(heard.append)
    with pytest.raises(ZeroDivisionError):
        hooks.emit(ONE)
    assert not hooks.is_emitting
    hooks.emit(TWO)
    assert heard == [TWO]
    assert len(hooks.failures) == 1


def test_an_interrupt_in_a_listener_passes_through_and_nobody_is_dropped() -> None:
    hooks, heard = Hooks(), []
    pressed = [KeyboardInterrupt()]

    def interrupted(event: Event) -> None:
        heard.append(event)
        if pressed:
            raise pressed.pop()

    hooks.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        hooks.emit(ONE)
    hooks.emit(TWO)
    assert heard == [ONE, TWO]
    assert hooks.failures == []


def test_closing_ends_it_and_twice_is_harmless() -> None:
    hooks, heard = Hooks(strict=True), []
    with hooks.subscribe(heard.append) as subscription:
        hooks.emit(ONE)
    subscription.close()
    hooks.emit(TWO)
    assert heard == [ONE]
    assert not hooks


def test_the_same_listener_may_subscribe_twice_and_leave_once() -> None:
    hooks, heard = Hooks(strict=True), []
    first = hooks.subscribe(heard.append, StepStarted)
    hooks.subscribe(heard.append, StepStarted)
    hooks.emit(ONE)
    first.close()
    hooks.emit(ONE)
    assert heard == [ONE] * 3


def test_a_listener_may_leave_inside_itself() -> None:
    hooks, heard = Hooks(strict=True), []

    def once(event: Event) -> None:
        heard.append(("once", event))
        subscription.close()

    subscription = hooks.subscribe(once)
    hooks.subscribe(lambda event: heard.append(("always", event)))
    hooks.emit(ONE)
    hooks.emit(TWO)
    assert heard == [("once", ONE), ("always", ONE), ("always", TWO)]


def test_a_listener_that_joins_inside_another_hears_from_the_next_event_on() -> None:
    hooks, heard = Hooks(strict=True), []
    joined = []

    def invite(event: Event) -> None:
        if not joined:
            joined.append(hooks.subscribe(heard.append))

    hooks.subscribe(invite)
    hooks.emit(ONE)
    hooks.emit(TWO)
    assert heard == [TWO]


@pytest.mark.parametrize("call", ["step", "phases", "add", "abort"])
def test_a_listener_that_steers_raises_and_is_dropped(call: str) -> None:
    hooks = Hooks()
    engine = small_engine(hooks=hooks)
    calls: dict[str, Any] = {
        "step": engine.step,
        "phases": lambda: next(iter(engine.phases())),
        "add": lambda: engine.add([1], SamplingParams(max_tokens=1)),
        "abort": lambda: engine.abort(0),
    }
    hooks.subscribe(lambda event: calls[call](), ForwardRan)
    engine.add([1, 2], SamplingParams(max_tokens=2))
    assert engine.step()
    (failure,) = hooks.failures
    assert isinstance(failure.error, RuntimeError)
    assert "inside a hook listener" in str(failure.error)
    assert engine.step().finished == (0,)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_a_site_that_nobody_listens_to_builds_no_event(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a run with everything in it: adds, aborts, preemptions, merges, windows, an external tier, closed phases."""

    def refuse(self: Event, *args: object, **named: object) -> None:
        raise AssertionError(f"{type(self).__name__} was built")

    for kind in EVENT_KINDS:
        monkeypatch.setattr(kind, "__init__", refuse)
    for seed in range(5):
        for _ in ground.drive(seed, Hooks(strict=True), keep_finished=2).operations(Random(seed)):
            pass


def unmet_by(ground: Ground) -> set[type[Event]]:
    """Events that cannot happen there: no check runs, no part fails, the cache is not reset, and the tier has room."""
    unmet: set[type[Event]] = {ViolationFound, DecisionDiffered, PrefixCacheReset, LoadFailed, StepFailed, TierChanged}
    unmet |= {FreeDeferred, BlockPinned, BlockUnpinned, HashesMoved}  # of vLLM alone
    unmet |= {RequestHandedOver, RequestReceived, RequestReleased}  # of two engines
    unmet |= {TokensDrafted, DraftsJudged}  # without a proposer
    unmet |= {
        StateCopied,
        StateAdvanced,
        BlockMoved,
        SharedPrefixFound,
    }  # of states, and where retention leaves blocks out
    if not ground.has_forks or ground.edition == "vllm":
        unmet |= {RequestForked, BlockCopied, BeamReplaced}
    if ground.edition not in ("labengine", "labengine-radix", "nano-vllm+243", "mini-sglang+142", "sglang"):
        unmet.add(BlockMerged)
    if EDITIONS[ground.edition].prefix_tree is Absent:
        unmet |= {NodeInserted, NodeSplit, NodesTouched, NodeLocked, NodeUnlocked, NodeEvicted}
    if num_reserved_blocks(EDITIONS[ground.edition]):  # such editions keep blocks free beside a request
        unmet.add(RequestPreempted)
    if not ground.is_hybrid:
        unmet.add(BlocksSkipped)
    if ground.tier == "none":
        unmet |= {ExternalHit, BlocksLoaded, BlocksSaved}
    return unmet


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_a_site_builds_only_the_events_that_somebody_hears(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: with a listener on every other kind each of those is built, and no other."""
    unmet = unmet_by(ground)
    built, plain = set(), {kind: kind.__init__ for kind in EVENT_KINDS}

    def note(self: Event, *args: object, **named: object) -> None:
        built.add(type(self))
        plain[type(self)](self, *args, **named)  # type: ignore[misc]

    for kind in EVENT_KINDS:
        monkeypatch.setattr(kind, "__init__", note)
    for heard in (EVENT_KINDS[::2], EVENT_KINDS[1::2]):
        built.clear()
        for seed in range(10):
            hooks = Hooks(strict=True)
            hooks.subscribe(lambda event: None, *heard)
            for _ in ground.drive(seed, hooks, keep_finished=2).operations(Random(seed)):
                pass
        assert built <= set(heard)
        assert set(heard) - built <= unmet


def test_every_event_names_the_request_it_concerns() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    small_engine(hooks=hooks).add([5, 6], SamplingParams(max_tokens=3))
    assert events[-1] == RequestAdded(0, (5, 6), 3)


def test_what_is_held_back_reaches_nobody_until_it_is_emitted() -> None:
    hooks = Hooks(strict=True)
    heard = recorded(hooks)
    with hooks.held() as held:
        hooks.emit(ONE)
        hooks.emit(TWO)
    hooks.emit(THREE)
    assert (heard, held) == ([THREE], [ONE, TWO])
    hooks.emit_all(held)
    assert heard == [THREE, ONE, TWO]


def test_what_was_held_when_something_failed_is_gone() -> None:
    hooks = Hooks(strict=True)
    heard = recorded(hooks)
    with pytest.raises(ZeroDivisionError), hooks.held() as held:
        hooks.emit(ONE)
        raise ZeroDivisionError
    hooks.emit(TWO)
    assert (heard, held) == ([TWO], [])


def test_emitting_all_is_emitting_one_by_one() -> None:
    """A listener's own event comes right after the one it heard, and a failing listener misses the rest."""
    delivered = []
    for is_one_by_one in (True, False):
        hooks = Hooks()
        hooks.subscribe(lambda event, hooks=hooks: hooks.emit(THREE), StepStarted)
        hooks.subscribe(lambda event: 1 / 0, StepEnded)
        heard = recorded(hooks)
        for event in (ONE, TWO, ONE) if is_one_by_one else ():
            hooks.emit(event)
        if not is_one_by_one:
            hooks.emit_all([ONE, TWO, ONE])
        delivered.append((heard, [failure.event for failure in hooks.failures]))
    assert delivered[0] == delivered[1] == ([ONE, THREE, TWO, ONE, THREE], [TWO])


def test_subscriptions_are_counted() -> None:
    hooks = Hooks()
    before = hooks.num_subscribed
    hooks.subscribe(print, StepEnded).close()
    assert hooks.num_subscribed == before + 1
