"""Parts written without scheduling ahead in mind end it: they ask for a token, read the state, or fail early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from random import Random

import pytest

from engine.twins import BUSY_SEED, GROUNDS, Twins, ahead_engine
from labengine.core.editions import EDITIONS
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.parts import Parts
from labengine.core.request import FinishReason, Request
from labengine.core.step_plan import UNSAMPLED, StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.ahead import LOOKED_TOO_EARLY
from labengine.record.snapshot import Snapshot


class RegistersEarly(KVCacheManager):
    """As a user may write it who does not know that tokens come late."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        return num_tokens


class EndsAtThree(TokenBudgetScheduler):
    """A custom stop rule."""

    def finish_reason(self, request: Request) -> FinishReason | None:
        return "stop" if request.token_ids[-1] % 3 == 0 else super().finish_reason(request)


@pytest.mark.parametrize(
    "parts", [Parts(kv_cache_manager=RegistersEarly), Parts(scheduler=EndsAtThree)], ids=["manager", "scheduler"]
)
def test_a_part_that_asks_for_a_token_too_early_ends_it(parts: Parts) -> None:
    parts = parts.overriding(EDITIONS["labengine"])
    for seed in range(10):
        twins = Twins(GROUNDS[0].workload(seed), parts)
        twins.run(Random(seed), 0.0)
        if twins.met["did not come true"] or twins.met["not anticipated"]:
            assert "not been sampled yet" in twins.ahead.engine.gave_up  # type: ignore[attr-defined]
            return
    raise AssertionError("no workload had it asked")


def looking(method: str, keep_going: Callable[[], AbstractContextManager[object]]) -> type[TokenBudgetScheduler]:
    """A scheduler that looks at its engine before each decision of one kind, and treats an error in its own way."""

    class Looks(TokenBudgetScheduler):
        look: Callable[[], object] = list

    def look_and_decide(self: Looks, *arguments: object) -> object:
        if method != "finish_reason" or self.running[-1].token_ids[-1] is not UNSAMPLED:
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


@pytest.mark.parametrize(
    ("keep_going", "disturbances"),
    [(nullcontext, 0.0), (lambda: suppress(Exception), 0.05), (failing_otherwise, 0.0)],
)
@pytest.mark.parametrize("method", ["update", "append_token", "finish", "finish_reason", "schedule", "preempt"])
def test_a_part_that_looks_in_the_middle_ends_it(
    method: str, keep_going: Callable[[], AbstractContextManager[object]], disturbances: float
) -> None:
    """It sees what it would see otherwise; before a finish reason it only looks where the token is there."""
    parts = Parts(scheduler=looking(method, keep_going)).overriding(EDITIONS["labengine"])
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

    engine = ahead_engine(parts=Parts(scheduler=FailsInStepThree).overriding(EDITIONS["labengine"]))
    assert engine.step().step == 1
    assert engine.step().step == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            engine.step()
        assert engine.step_number == 2
