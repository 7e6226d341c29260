"""Scheduling ahead is not to be seen: an engine that does, beside one that does not, through the same disturbances.

They run the same workload side by side on memories that check each read. Tokens, block ids, events, reports and states
are equal after every operation. Between most of them nobody looks at the engine that is ahead, for that ends it.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from random import Random

import pytest

from disturbing import (
    Countdown,
    Disturbance,
    Point,
    SignalPoints,
    core_calls,
    core_returns,
    forgetting,
    overwritten_victims,
    press_ctrl_c,
    raise_disturbance,
)
from driving import (
    Drive,
    assert_drained,
    assert_sound,
    difference,
    queues,
    recorded,
    small_engine,
    tokens_of,
)
from fake_tier import FakeTier
from grounds import ALL_GROUNDS, Ground
from labengine.config import ConfigError, EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.parts import Parts
from labengine.core.request import FinishReason, Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.unsampled import UNSAMPLED
from labengine.engine.ahead import LOOKED_TOO_EARLY, OverlappedEngine, overlap_refusal
from labengine.engine.engine import Engine
from labengine.engine.overlap import choose_engine
from labengine.engine.simulated import SimulatedRunner
from labengine.events import (
    BlockFreed,
    Event,
    RequestFinished,
    RequestScheduled,
    StepEnded,
    StepStarted,
    TokenSampled,
)
from labengine.fold import fold
from labengine.hooks import Hooks
from labengine.snapshot import Snapshot
from workloads import Workload

GROUNDS = tuple(
    g for g in ALL_GROUNDS if g.tier == "none" and overlap_refusal(EDITIONS[g.edition], has_external=False) is None
)
NUM_SEEDS = 60
BUSY_SEED = 22
"""Its third step preempts somebody."""


class CountingEngine(OverlappedEngine):
    """Counts what became of what was anticipated."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.met: Counter[str] = Counter()

    def _came_true(self, plan: StepPlan, token_ids: list[int]) -> bool:
        was_anticipated, came_true = self._ahead is not None, super()._came_true(plan, token_ids)
        self.met["came true" if came_true else "did not come true" if was_anticipated else "not anticipated"] += 1
        return came_true

    def _enter_ahead(self) -> StepPlan | None:
        plan = super()._enter_ahead()
        self.met["used" if plan is not None else "not used"] += 1
        self.met["preempted ahead"] += plan is not None and bool(plan.preempted)
        return plan


class Twins:
    """The same workload twice: by an engine that waits for its tokens, and by one that is ahead."""

    def __init__(self, workload: Workload, parts: Parts, *, is_recorded: bool = True) -> None:
        hooks = Hooks(strict=True), Hooks(strict=True)
        self.events: list[list[Event]] = [recorded(h) if is_recorded else [] for h in hooks]
        self.plain = Drive(workload, parts, hooks[0])
        self.ahead = Drive(workload, parts, hooks[1], engine_class=CountingEngine)
        self.drives = (self.plain, self.ahead)

    @property
    def met(self) -> Counter[str]:
        assert isinstance(self.ahead.engine, CountingEngine)
        return self.ahead.engine.met

    def both(self, call: Callable[[Drive], object]) -> None:
        """The same to both, with the same outcome."""
        plain, ahead = (outcome(lambda drive=drive: call(drive)) for drive in self.drives)  # type: ignore[misc]
        assert plain == ahead
        self.compare()

    def compare(self) -> None:
        """Without a look."""
        plain, ahead = self.plain.engine, self.ahead.engine
        assert plain.report == ahead.report
        assert plain.step_number == ahead.step_number
        assert plain.num_used_blocks == ahead.num_used_blocks
        assert self.plain.runner.plan == self.ahead.runner.plan
        assert (ahead._journal._next is None) is (self.ahead.engine._ahead is None)  # type: ignore[attr-defined]
        assert self.events[0] == self.events[1], first_difference(*self.events)

    def look(self) -> None:
        """The whole states; what was anticipated is gone then."""
        states = [drive.engine.snapshot() for drive in self.drives]
        assert difference(*states) is None
        assert queues(self.plain.engine) == queues(self.ahead.engine)
        if self.events[1]:
            assert difference(fold(self.events[1]), states[1]) is None
        assert_sound(states[1], self.ahead.engine.parts.name)

    def run(self, rng: Random, disturbances: float) -> None:
        """To the end. disturbances: how likely each of them is, before a step and in it."""
        while not self.plain.is_done:
            self.both(lambda drive: list(drive.arrive()))
            for disturb in DISTURBANCES:
                if rng.random() < disturbances:
                    seed = rng.random()
                    self.both(lambda drive: disturb(drive, Random(seed)))  # noqa: B023
            if rng.random() < disturbances:
                self.look()
            if rng.random() < disturbances:
                self.fail(rng)
            for _ in range(rng.randint(1, 3)):
                self.both(lambda drive: drive.engine.step_freely())
        assert self.ahead.is_done
        self.look()
        assert_drained(self.ahead.engine)

    def fail(self, rng: Random) -> None:
        """A step that fails in the forward pass, in sampling, or in a listener."""
        kind, n = rng.choice(("forward", "sample", "listener")), rng.choice((0, 1, 3, 10, 30))
        for drive in self.drives:
            if kind == "forward":
                drive.runner.fail_in_forward, drive.runner.num_writes_before = ValueError(), n
            elif kind == "sample":
                drive.runner.fail_in_sample = ValueError()
        subscriptions = [raise_at(drive.engine.hooks, n) for drive in self.drives] if kind == "listener" else []
        self.both(lambda drive: drive.engine.step_freely())
        for drive in self.drives:
            drive.runner.fail_in_forward = drive.runner.fail_in_sample = None
        for close in subscriptions:
            close()


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or what kind of error it raises."""
    try:
        return call()
    except (ValueError, RuntimeError) as error:
        return type(error)


def raise_at(hooks: Hooks, n: int) -> Callable[[], None]:
    """Subscribe a listener that raises at the n-th event from now on; what ends that."""
    left = n

    def listen(event: Event) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError

    return hooks.subscribe(listen).close


def first_difference(one: list[Event], other: list[Event]) -> str:
    n = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"event {n}: {one[n : n + 3]} / {other[n : n + 3]}"


# -- what may happen between two steps ---------------------------------------------------------------------------------


def abort(drive: Drive, rng: Random) -> object:
    return drive.engine.abort(rng.choice(list(drive.engine.requests))) if drive.engine.requests else None


def reset(drive: Drive, rng: Random) -> object:
    return drive.engine.reset_prefix_cache()


def step_by_hand(drive: Drive, rng: Random) -> object:
    return drive.engine.step()


def abandon(drive: Drive, rng: Random) -> object:
    phases = drive.engine.phases()
    seen = [phase for phase, _ in zip(phases, range(rng.randint(1, 3)), strict=False)]
    phases.close()  # type: ignore[attr-defined]
    return seen


def subscribe(drive: Drive, rng: Random) -> object:
    """A listener comes, hears a step, and goes."""
    heard: list[Event] = []
    with drive.engine.hooks.subscribe(heard.append, *rng.sample((StepStarted, TokenSampled, StepEnded), 2)):
        drive.engine.step_freely()
    return heard


def refuse(drive: Drive, rng: Random) -> object:
    return outcome(lambda: drive.engine.add([], SamplingParams()))


DISTURBANCES = (abort, reset, step_by_hand, abandon, subscribe, refuse)


def workload_with_eos(ground: Ground, seed: int) -> Workload:
    """Half of the workloads have a token that ends a request, at which most of its tokens may be missing."""
    workload, rng = ground.workload(seed), Random(seed)
    if rng.random() < 0.5:
        return workload
    wanted = rng.choice(workload.requests)
    position = len(wanted.prompt) + rng.randrange(wanted.max_tokens)
    eos = workload.next_token(workload.requests.index(wanted), position)
    return replace(workload, settings={**workload.settings, "eos_token_ids": frozenset({eos})})


# -- the same, whatever happens ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "silent"])
@pytest.mark.parametrize("disturbances", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("ground", GROUNDS, ids=str)
def test_nobody_can_tell(ground: Ground, disturbances: float, is_recorded: bool) -> None:
    met: Counter[str] = Counter()
    for seed in ground.seeds(NUM_SEEDS):
        twins = Twins(workload_with_eos(ground, seed), EDITIONS[ground.edition], is_recorded=is_recorded)
        twins.run(Random(seed), disturbances)
        met += twins.met
    assert met["used"] > 100
    assert met["did not come true"] > 5
    assert met["preempted ahead"] > 5
    assert met["not anticipated"] == 0
    if not disturbances:
        assert met["used"] > 3 * met["not used"]


def free_steps(ground: Ground, seed: int) -> tuple[Drive, list[Event]]:
    """A drive that is ahead, and its events: their fold is the state as one may know it without looking."""
    hooks = Hooks()
    events = recorded(hooks)
    return Drive(ground.workload(seed), ground.edition, hooks, engine_class=CountingEngine), events


def fail_free_step(drive: Drive, events: list[Event], run: Callable[[Callable[[], object]], object]) -> bool:
    """A step that is disturbed: it happened, or left no trace but in memory. True when it was taken back."""
    before, engine = fold(events), drive.engine
    engine._written = StepPlan(())
    with suppress(Disturbance, KeyboardInterrupt):
        run(engine.step_freely)
    after = fold(events)
    if after.step > before.step:
        return False
    plan = engine._written
    if not overwritten_victims(before, plan):
        assert difference(after, before) is None or difference(after, forgetting(before, plan)) is None
    return True


@pytest.mark.parametrize(
    ("point", "num_points", "act"),
    [
        (core_calls, 150, raise_disturbance),
        (core_returns, 150, raise_disturbance),
        (SignalPoints(), 500, press_ctrl_c),
    ],
    ids=["calls", "returns", "ctrl-c"],
)
@pytest.mark.parametrize("ground", GROUNDS, ids=str)
@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_a_free_step_happens_whole_or_not_at_all(
    ground: Ground, point: Point, num_points: int, act: Callable[[], None]
) -> None:
    """Every other disturbed step is followed by no look, so that what is left is what the next step builds on."""
    num_taken_back, met = 0, Counter[str]()
    for seed in ground.busy_seeds(16):
        rng = Random(seed)
        drive, events = free_steps(ground, seed)
        while not drive.is_done:
            list(drive.arrive())
            drive.engine.step_freely()
            countdown = Countdown(point, rng.randrange(num_points), act)
            num_taken_back += fail_free_step(drive, events, countdown.run)
            if rng.random() < 0.5:
                assert difference(fold(events), drive.engine.snapshot()) is None
                assert_sound(drive.engine.snapshot(), ground.edition)
            drive.engine.step_freely()
        assert tokens_of(drive.engine.snapshot()) == ground.undisturbed(seed)
        assert_drained(drive.engine)
        assert isinstance(drive.engine, CountingEngine)
        met += drive.engine.met
    assert num_taken_back > 40
    assert met["used"] > 100


@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_ctrl_c_at_every_moment_of_one_free_step() -> None:
    """The third step, which uses what the second has scheduled, and schedules the fourth."""
    scout = Countdown(SignalPoints())
    drive, _ = third_step()
    assert scout.run(drive.engine.step_freely)
    assert drive.engine.met["used"] == 2  # type: ignore[attr-defined]
    outcomes: Counter[bool] = Counter()
    for n in range(scout.num_passed):
        drive, events = third_step()
        outcomes[fail_free_step(drive, events, Countdown(SignalPoints(), n, press_ctrl_c).run)] += 1
        while not drive.is_done:
            list(drive.arrive())
            drive.engine.step_freely()
        assert tokens_of(drive.engine.snapshot()) == GROUNDS[0].undisturbed(BUSY_SEED), f"at {n} of {scout.num_passed}"
        assert difference(fold(events), drive.engine.snapshot()) is None
        assert_drained(drive.engine)
    assert outcomes[True] > 0.9 * scout.num_passed


def third_step() -> tuple[Drive, list[Event]]:
    drive, events = free_steps(GROUNDS[0], BUSY_SEED)
    for _ in range(2):
        list(drive.arrive())
        drive.engine.step_freely()
    return drive, events


@pytest.fixture
def python_handles_ctrl_c() -> Iterator[None]:
    """Whatever ran before: Python's own handler, and it stands again afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", [StepStarted, TokenSampled, BlockFreed, RequestScheduled, StepEnded])
def test_a_listener_that_looks_sees_nothing_that_is_ahead(kind: type[Event]) -> None:
    """At a step's ends just what it would see otherwise, and in its middle no token and no block too early."""
    for seed in range(20):
        seen: list[list[object]] = []
        for engine_class in (Engine, OverlappedEngine):
            drive = Drive(GROUNDS[0].workload(seed), "labengine", engine_class=engine_class)
            snapshots: list[object] = []
            seen.append(snapshots)

            def look(event: Event, engine: Engine = drive.engine, snapshots: list[object] = snapshots) -> None:
                state = engine.snapshot()
                if isinstance(event, (StepStarted, StepEnded)):
                    snapshots.append(state)
                assert all(UNSAMPLED is not token for r in state.requests.values() for token in r.token_ids)

            drive.engine.hooks.subscribe(look, kind)
            while not drive.is_done:
                list(drive.arrive())
                drive.engine.step_freely()
            assert_drained(drive.engine)
        assert seen[0] == seen[1]


def test_a_runner_that_looks_while_it_samples_sees_the_step_as_it_stands() -> None:
    seen = []
    for engine_class in (Engine, OverlappedEngine):
        engine = ahead_engine(engine_class)
        seen.append(states_while_sampling(engine))
    assert seen[0] == seen[1]
    assert len(seen[0]) > 5


def states_while_sampling(engine: Engine) -> list[Snapshot]:
    states, sample = [], engine.runner.sample

    def look(plan: StepPlan, logits: object) -> list[int]:
        states.append(engine.snapshot())
        return sample(plan, logits)

    engine.runner.sample = look  # type: ignore[method-assign]
    while engine.step_freely():
        pass
    return states


def ahead_engine(engine_class: type[Engine] = OverlappedEngine, parts: Parts = EDITIONS["labengine"]) -> Engine:
    """Three requests of ten tokens, in blocks of 4."""
    config = EngineConfig(32, (GroupSpec(4),))
    engine = engine_class(config, SimulatedRunner(), parts, Hooks(strict=True))
    for prompt in ([1, 2, 3], [4, 5, 6], [8, 9, 10, 11, 12]):
        engine.add(prompt, SamplingParams(max_tokens=10))
    return engine


def test_the_used_blocks_are_those_of_now() -> None:
    """Nobody has to look for that: any thread may ask."""
    engine = ahead_engine()
    other = ahead_engine(Engine)
    while engine.step_freely():
        other.step()
        ahead = engine._ahead  # type: ignore[attr-defined]
        assert engine.num_used_blocks == other.num_used_blocks
        assert engine._ahead is ahead  # type: ignore[attr-defined]


def test_the_next_step_is_scheduled_before_the_tokens_are_sampled() -> None:
    """The point of it all: when sample() is asked, nothing is left to do but to fill in."""
    engine = ahead_engine()
    order: list[str] = []
    for owner, name in ((engine.scheduler, "schedule"), (engine.scheduler, "update"), (engine.runner, "forward")):
        noting(owner, name, order)
    noting(engine.runner, "sample", order)
    engine.step_freely()
    engine.step_freely()
    assert order == ["schedule", *("forward", "update", "schedule", "sample") * 2]


def noting(owner: object, name: str, order: list[str]) -> None:
    method = getattr(owner, name)

    def noted(*arguments: object) -> object:
        order.append(name)
        return method(*arguments)

    setattr(owner, name, noted)


def test_an_eos_takes_back_what_was_anticipated() -> None:
    """At position 5 request 0 samples the eos: it has ended there, and in no later step."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(eos=frozenset({7}), next_token=lambda i, position: 7 if (i, position) == (0, 5) else 1)
    engine = OverlappedEngine(engine.config, engine.runner, EDITIONS["labengine"], hooks)
    engine.add([1, 2, 3], SamplingParams(max_tokens=10))
    engine.add([1, 2, 3], SamplingParams(max_tokens=10))
    while engine.step_freely():
        pass
    assert engine.requests[0].token_ids == [1, 2, 3, 1, 1, 7]
    assert engine.requests[1].num_generated_tokens == 10
    assert [e for e in events if isinstance(e, RequestFinished)] == [
        RequestFinished(0, "stop"),
        RequestFinished(1, "length"),
    ]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3, 4]])
def test_too_few_or_too_many_tokens_are_an_error(tokens: list[int]) -> None:
    engine = ahead_engine()
    before = engine.snapshot()
    engine.runner.sample = lambda plan, logits: tokens  # type: ignore[method-assign]
    with pytest.raises((RuntimeError, ValueError)):
        engine.step_freely()
    assert difference(engine.snapshot(), before) is None


# -- where it cannot be ------------------------------------------------------------------------------------------------


class RegistersEarly(KVCacheManager):
    """As somebody may write it, who does not know that tokens come late."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        return num_tokens


class EndsAtThree(TokenBudgetScheduler):
    """A stop rule of its own."""

    def _finish_reason(self, request: Request) -> FinishReason | None:
        return "stop" if request.token_ids[-1] % 3 == 0 else super()._finish_reason(request)


@pytest.mark.parametrize(
    "parts", [Parts(kv_cache_manager=RegistersEarly), Parts(scheduler=EndsAtThree)], ids=["manager", "scheduler"]
)
def test_a_part_that_asks_for_a_token_too_early_ends_it(parts: Parts) -> None:
    parts = parts.over(EDITIONS["labengine"])
    for seed in range(10):
        twins = Twins(GROUNDS[0].workload(seed), parts)
        twins.run(Random(seed), 0.0)
        if twins.met["did not come true"] or twins.met["not anticipated"]:
            assert twins.ahead.engine.gave_up == "a decision asked for a token that is not sampled yet"  # type: ignore[attr-defined]
            return
    raise AssertionError("no workload had it asked")


def looking(method: str, keep_going: Callable[[], AbstractContextManager[object]]) -> type[TokenBudgetScheduler]:
    """A scheduler that looks at its engine before each decision of one kind, and treats an error in its own way."""

    class Looks(TokenBudgetScheduler):
        look: Callable[[], object] = list

    def look_and_decide(self: Looks, *arguments: object) -> object:
        if method != "_finish_reason" or self.running[-1].token_ids[-1] is not UNSAMPLED:
            with keep_going():
                self.look()
        return getattr(super(Looks, self), method)(*arguments)

    setattr(Looks, method, look_and_decide)
    return Looks


@contextmanager
def failing_otherwise() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ValueError from error


@pytest.mark.parametrize("keep_going", [nullcontext, lambda: suppress(Exception), failing_otherwise])
@pytest.mark.parametrize("method", ["update", "_append_token", "_finish", "_finish_reason", "schedule", "_preempt"])
@pytest.mark.parametrize("disturbances", [0.0, 0.05])
def test_a_part_that_looks_in_the_middle_ends_it(
    method: str, keep_going: Callable[[], AbstractContextManager[object]], disturbances: float
) -> None:
    """It sees what it would see otherwise; before a finish reason it only looks where the token is there."""
    parts = Parts(scheduler=looking(method, keep_going)).over(EDITIONS["labengine"])
    num_looks = 0
    for seed in (BUSY_SEED, *range(5)):
        twins = Twins(GROUNDS[0].workload(seed), parts)
        seen: tuple[list[Snapshot], list[Snapshot]] = [], []
        for drive, states in zip(twins.drives, seen, strict=True):
            drive.engine.scheduler.look = lambda drive=drive, states=states: states.append(drive.engine.snapshot())  # type: ignore[attr-defined]
        twins.run(Random(seed), disturbances)
        assert seen[0] == seen[1]
        assert all(UNSAMPLED is not token for s in seen[1] for r in s.requests.values() for token in r.token_ids)
        num_looks += len(seen[1])
        if disturbances == 0.0 and seen[1]:
            assert twins.ahead.engine.gave_up == LOOKED_TOO_EARLY  # type: ignore[attr-defined]
    assert num_looks > 5


def test_a_part_that_fails_ahead_of_time_fails_in_its_time() -> None:
    class FailsInStepThree(TokenBudgetScheduler):
        num_scheduled = 0

        def schedule(self) -> StepPlan:
            if self.running and self.running[0].num_generated_tokens == 2:
                raise ZeroDivisionError
            return super().schedule()

    engine = ahead_engine(parts=Parts(scheduler=FailsInStepThree).over(EDITIONS["labengine"]))
    assert engine.step_freely().step == 1
    assert engine.step_freely().step == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            engine.step_freely()
        assert engine.step_number == 2


@pytest.mark.parametrize("edition", ["vllm", "nano-vllm-2025-07"])
def test_editions_that_hash_at_allocation_are_refused(edition: str) -> None:
    with pytest.raises(ConfigError, match="hashes tokens when it allocates"):
        ahead_engine(parts=EDITIONS[edition])


def test_an_external_tier_is_refused() -> None:
    with pytest.raises(ConfigError, match="external tier"):
        OverlappedEngine(
            EngineConfig(8, (GroupSpec(4),)), SimulatedRunner(), EDITIONS["labengine"], Hooks(), FakeTier()
        )


class Device(SimulatedRunner):
    is_asynchronous = True


@pytest.mark.parametrize(
    ("overlap", "edition", "runner", "is_watched", "line"),
    [
        (None, "labengine", Device(), False, "overlapped with the forward"),
        (True, "nano-vllm", SimulatedRunner(), False, "overlapped with the forward"),
        (None, "labengine", SimulatedRunner(), False, "synchronous (the forward pass keeps the host busy)"),
        (False, "labengine", Device(), False, "synchronous (asked for)"),
        (None, "vllm", Device(), False, "synchronous (edition vllm hashes tokens"),
        (None, "labengine", Device(), True, "synchronous (the checks look at the core"),
    ],
)
def test_which_engine(overlap: bool | None, edition: str, runner: SimulatedRunner, is_watched: bool, line: str) -> None:
    chosen, why = choose_engine(overlap, EDITIONS[edition], runner, has_external=False, is_watched=is_watched)
    assert why.startswith(line)
    assert (chosen is OverlappedEngine) is line.startswith("overlapped")


@pytest.mark.parametrize(("edition", "is_watched"), [("vllm", False), ("labengine", True)])
def test_what_is_asked_for_and_cannot_be_is_an_error(edition: str, is_watched: bool) -> None:
    with pytest.raises(ConfigError, match="overlap=True is not possible"):
        choose_engine(True, EDITIONS[edition], Device(), has_external=False, is_watched=is_watched)
    with pytest.raises(ConfigError, match="must be True, False or None"):
        choose_engine("yes", EDITIONS[edition], Device(), has_external=False, is_watched=False)  # type: ignore[arg-type]
