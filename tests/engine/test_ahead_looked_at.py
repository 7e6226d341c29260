"""Reads of an engine that is ahead show what an engine that waits would show: listeners, runners, other threads."""

from __future__ import annotations

import pytest

from driving import Drive, assert_drained
from engine.twins import GROUNDS, ahead_engine
from labengine.core.step_plan import UNSAMPLED, StepPlan
from labengine.engine.ahead import OverlappedEngine
from labengine.engine.engine import Engine
from labengine.events import BlockFreed, Event, RequestScheduled, StepEnded, StepStarted, TokenSampled
from labengine.record.snapshot import Snapshot


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
                drive.engine.step()
            assert_drained(drive.engine)
        assert seen[0] == seen[1]


def test_a_runner_that_looks_while_it_samples_sees_the_step_as_it_is() -> None:
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
    while engine.step():
        pass
    return states


def test_the_used_blocks_are_those_of_now() -> None:
    """This needs no read of the state: any thread may ask."""
    engine = ahead_engine()
    other = ahead_engine(Engine)
    while engine.step():
        other.step()
        ahead = engine._ahead  # type: ignore[attr-defined]
        assert engine.num_used_blocks == other.num_used_blocks
        assert engine._ahead is ahead  # type: ignore[attr-defined]
