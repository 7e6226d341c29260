"""What may happen to an engine between two steps, and in one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from driving import Drive
from labengine.config import SamplingParams
from labengine.events import Event, StepEnded, StepStarted, TokenSampled


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or what kind of error it raises."""
    try:
        return call()
    except (ValueError, RuntimeError) as error:
        return type(error)


def abort(drive: Drive, rng: Random) -> object:
    return drive.engine.abort(rng.choice(list(drive.engine.requests))) if drive.engine.requests else None


def reset(drive: Drive, rng: Random) -> object:
    return drive.engine.reset_prefix_cache()


def step_by_hand(drive: Drive, rng: Random) -> object:
    return [*drive.engine.phases()], drive.engine.report


def abandon(drive: Drive, rng: Random) -> object:
    phases = drive.engine.phases()
    seen = [phase for phase, _ in zip(phases, range(rng.randint(1, 3)), strict=False)]
    phases.close()  # type: ignore[attr-defined]
    return seen


def subscribe(drive: Drive, rng: Random) -> object:
    """A listener comes, hears a step, and goes."""
    heard: list[Event] = []
    with drive.engine.hooks.subscribe(heard.append, *rng.sample((StepStarted, TokenSampled, StepEnded), 2)):
        drive.engine.step()
    return heard


def refuse(drive: Drive, rng: Random) -> object:
    return outcome(lambda: drive.engine.add([], SamplingParams()))


DISTURBANCES = (abort, reset, step_by_hand, abandon, subscribe, refuse)
