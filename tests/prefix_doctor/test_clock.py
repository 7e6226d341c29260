"""The clock, its two numbers and its file, and its fit to steps."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.config import ConfigError
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.play.clock import Clock, attended_pairs, clock_of
from labengine.prefix_doctor.play.fit import Step, fit, steps_of
from labengine.record.files.file_access import Limits
from labengine.record.fold import Fold

TRUE = Clock(step=0.02, token=1e-4, token_beyond=3e-4, knee=128, pair=2e-8, context=5e-7)


def _steps(clock: Clock, noise: float, num_steps: int = 200) -> list[Step]:
    """Return decodes of 1 to 64 requests and chunks of up to 2,048 tokens, alone and mixed."""
    rng, steps = Random(3), []
    for _ in range(num_steps):
        contexts = [rng.randint(1, 3000) for _ in range(rng.choice((0, 1, 4, 16, 64)))]
        chunk, start = (rng.randint(16, 2048), rng.choice((0, 2048))) if rng.random() < 0.3 or not contexts else (0, 0)
        work = len(contexts) + chunk, sum(contexts) + attended_pairs(start, chunk), sum(contexts) + start + chunk
        steps.append(Step(*work, clock.duration(*work) * (1 + rng.gauss(0, noise))))
    return steps


def test_two_numbers_are_a_roofline() -> None:
    clock = clock_of("8000,0.025")
    assert clock.duration(8000, 0, 0) == pytest.approx(1.0)
    assert clock.duration(64, 10**6, 10**6) == clock.duration(1, 1, 1) == 0.025
    assert clock.prefill_seconds(4000) == pytest.approx(0.5)


def test_a_fit_finds_the_clock_behind_noise_and_interrupted_steps() -> None:
    steps = _steps(TRUE, noise=0.03)
    interrupted = [
        replace(one, seconds=one.seconds * 40) if number % 20 == 0 else one for number, one in enumerate(steps)
    ]
    found = fit(interrupted)
    for one in _steps(TRUE, noise=0.0, num_steps=50):
        assert found.clock.duration(one.num_tokens, one.attended, one.read) == pytest.approx(one.seconds, rel=0.04)
    assert found.error_p50 < 0.04 and found.error_p95 > 0.9 and found.total < 0.7  # it tells what it leaves out
    assert fit(steps).total == pytest.approx(1, abs=0.01)


def test_a_fitted_clock_never_gets_faster_with_more_work() -> None:
    rng = Random(5)
    found = fit([replace(one, seconds=rng.uniform(0.01, 1.0)) for one in _steps(TRUE, noise=0.0, num_steps=60)]).clock
    for _ in range(200):
        work = [rng.randrange(5000) for _ in range(3)]
        more = [value + rng.randrange(500) for value in work]
        assert found.duration(*more) >= found.duration(*work)


def test_a_fit_to_decodes_alone_prices_longer_steps_too() -> None:
    decodes = [Step(n % 8 + 1, 100 * n, 100 * n, 0.01 + 0.001 * (n % 8 + 1)) for n in range(40)]
    assert fit(decodes).clock.duration(1000, 0, 0) == pytest.approx(1.01, rel=0.05)


def test_the_steps_of_a_lab_have_its_tokens_and_contexts() -> None:
    with Lab("simulated", block_size=4, max_num_batched_tokens=6) as lab:
        lab.add(token_ids=range(100, 109), max_tokens=3, ignore_eos=True)
        lab.run()
        found = steps_of(recordings_of(lab, None, Limits("lab"))[0])
    assert [(one.num_tokens, one.attended, one.read) for one in found] == [
        (6, 21, 6),
        (3, 24, 9),
        (1, 10, 10),
        (1, 11, 11),
    ]
    with pytest.raises(ConfigError, match="at least 20 steps with their times, and the recording has 4"):
        fit(found)


def _recorded(*, is_async: bool) -> RecordedEngine:
    """Return steps 1 and 2 without a pause, and step 3 after the engine was idle."""
    events: list[ev.Event] = [ev.RequestAdded(0, (1, 2), 2)]
    for step, start in ((1, 0), (2, 2), (3, 0)):
        number = int(step == 3)
        events += [ev.RequestAdded(1, (3,), 1)] * number
        events += [ev.StepStarted(step), ev.RequestScheduled(number, start, 1, False, "running")]
        done = [ev.RequestFinished(number, "length")] if step > 1 else []
        events += [ev.StepEnded(step), *done] if is_async else [*done, ev.StepEnded(step)]
    starts, seconds = {1: 10.0, 2: 13.0, 3: 50.0}, {1: 2.0, 2: 3.0, 3: 1.0}
    return RecordedEngine("", Fold(), events, times=starts, step_seconds=seconds, is_async=is_async)


def test_a_busy_engines_step_lasts_from_end_to_end() -> None:
    assert [one.seconds for one in steps_of(_recorded(is_async=False))] == [2.0, 4.0, 1.0]


def test_a_step_scheduled_ahead_lasts_until_its_own_output() -> None:
    assert [one.seconds for one in steps_of(_recorded(is_async=True))] == [4.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("8000", "two numbers"),
        ("8000,0", "above 0"),
        ("nan,1", "above 0"),
        ("missing.json", "cannot be read"),
        ('{"step": 1}', "fields"),
        ("[1]", "one JSON object"),
        ("{", "not JSON"),
        (json.dumps(TRUE.to_dict() | {"pair": -1}), "pair must be a finite number >= 0"),
        (json.dumps(TRUE.to_dict() | {"knee": "many"}), "knee must be a finite number"),
    ],
)
def test_a_wrong_clock_is_refused(words: str, message: str, tmp_path: object) -> None:
    with pytest.raises(ConfigError, match=message):
        clock_of(_saved(words, tmp_path))


def test_a_saved_clock_is_the_same_again(tmp_path: object) -> None:
    assert clock_of(_saved(json.dumps(TRUE.to_dict()), tmp_path)) == TRUE


def _saved(words: str, folder: object) -> str:
    if words[0] not in "{[":
        return words
    path = f"{folder}/clock.json"
    with open(path, "w", encoding="utf-8") as file:
        file.write(words)
    return path
