"""An engine that is ahead beside one that waits for its tokens: the same workload, compared after every operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from disturbing import raise_at_event
from driving import Drive, assert_drained, assert_sound, difference, queues, recorded
from engine.between_steps import DISTURBANCES, outcome
from grounds import ALL_GROUNDS
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.core.step_plan import StepPlan
from labengine.engine.ahead import OverlappedEngine, overlap_refusal
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.events import Event
from labengine.record.fold import fold
from labengine.record.hooks import Hooks
from workloads import Workload

GROUNDS = tuple(
    g for g in ALL_GROUNDS if g.tier == "none" and overlap_refusal(EDITIONS[g.edition], has_external=False) is None
)
BUSY_SEED = 22
"""Its third step preempts somebody."""


class CountingEngine(OverlappedEngine):
    """Counts what became of what was anticipated."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.met: Counter[str] = Counter()

    def _commit_ahead(self, plan: StepPlan, token_ids: list[int]) -> bool:
        was_anticipated, came_true = self._ahead is not None, super()._commit_ahead(plan, token_ids)
        cannot = "with beams" if plan.beams else "without tokens" if not plan.scheduled else "not anticipated"
        unlike = "did not come true" if was_anticipated else cannot
        self.met["came true" if came_true else unlike] += 1
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
        assert (ahead.journal._next is None) is (self.ahead.engine._ahead is None)  # type: ignore[attr-defined]
        assert self.events[0] == self.events[1], first_difference(*self.events)

    def look(self) -> None:
        """The complete states; reading them ends what was anticipated."""
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
                self.both(lambda drive: drive.engine.step())
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
        subscriptions = (
            [raise_at_event(drive.engine.hooks, n, ValueError) for drive in self.drives] if kind == "listener" else []
        )
        self.both(lambda drive: drive.engine.step())
        for drive in self.drives:
            drive.runner.fail_in_forward = drive.runner.fail_in_sample = None
        for subscription in subscriptions:
            subscription.close()


def first_difference(one: list[Event], other: list[Event]) -> str:
    n = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"event {n}: {one[n : n + 3]} / {other[n : n + 3]}"


def ahead_engine(engine_class: type[Engine] = OverlappedEngine, parts: Parts = EDITIONS["labengine"]) -> Engine:
    """Three requests of ten tokens, in blocks of 4."""
    config = EngineConfig(32, (GroupSpec(4),))
    engine = engine_class(config, SimulatedRunner(), parts, Hooks(strict=True))
    for prompt in ([1, 2, 3], [4, 5, 6], [8, 9, 10, 11, 12]):
        engine.add(prompt, SamplingParams(max_tokens=10))
    return engine
