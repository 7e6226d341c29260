"""Fits a clock to the steps of a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from labengine import events as ev
from labengine.config import ConfigError
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.play.clock import Clock, attended_pairs
from labengine.prefix_doctor.play.least_squares import non_negative

FEWEST_STEPS = 20
MOST_OF_A_SIZE = 400
"""Most steps of one size, to a factor of 2, so that a million decodes leave room for a hundred prefills."""
ROUNDS = 6
"""Rounds of reweighting, after which the weights hardly change."""
SMALLEST_ERROR = 0.01
"""Relative errors below this are noise, and count alike."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step, by what a clock is told of it, and its seconds."""

    num_tokens: int
    attended: int
    read: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FittedClock:
    """A clock, and how far it is from the steps it was fitted to.

    error_p50, error_p95: the relative error that 50 and 95 % of the steps do not exceed. total: the predicted seconds
    of all steps, divided by the measured ones.
    """

    clock: Clock
    num_steps: int
    most_tokens: int
    error_p50: float
    error_p95: float
    total: float

    @property
    def sentence(self) -> str:
        """The residuals, in a sentence."""
        return (
            f"The clock was fitted to {self.num_steps:,} steps of up to {self.most_tokens:,} tokens: half of them are "
            f"within {self.error_p50:.0%}, 95 % are within {self.error_p95:.0%}, and their sum is "
            f"{self.total - 1:+.0%} off."
        )


def steps_of(recording: RecordedEngine) -> list[Step]:
    """Return the steps of a recording that computed tokens, and whose seconds it tells."""
    ended = list(_ended(recording))
    seconds = [one.seconds for one in ended] if not recording.times else _between_ends(ended, recording.is_async)
    return [_step(one.shares, took) for one, took in zip(ended, seconds, strict=True) if one.shares and took > 0]


@dataclass(slots=True)
class _Ended:
    """A step. shares: (start, number of tokens) per request. was_idle: no request was left before it."""

    shares: list[tuple[int, int]]
    start: float
    seconds: float
    was_idle: bool

    @property
    def end(self) -> float:
        return self.start + self.seconds


def _ended(recording: RecordedEngine) -> Iterator[_Ended]:
    shares: dict[int, tuple[int, int]] = {}
    unfinished = {number for number, one in recording.first.requests.items() if one.status != "finished"}
    is_idle = was_idle = True
    for event in recording.events:
        match event:
            case ev.RequestAdded(request_id):
                unfinished.add(request_id)
            case ev.RequestFinished(request_id):
                unfinished.discard(request_id)
                is_idle = is_idle or not unfinished
            case ev.StepStarted():
                shares, was_idle = {}, is_idle
            case ev.RequestScheduled(request_id, start, num_tokens):
                shares[request_id] = start, num_tokens
            case ev.RequestPreempted(request_id):
                shares.pop(request_id, None)
            case ev.StepEnded(step) if step in recording.times or not recording.times:
                seconds = recording.step_seconds.get(step, 0.0)
                yield _Ended(list(shares.values()), recording.times.get(step, 0.0), seconds, was_idle)
                is_idle = not unfinished


def _between_ends(ended: Sequence[_Ended], is_async: bool) -> list[float]:
    """Return the seconds of steps whose starts are known: from one end to the next, while the engine was busy.

    This includes the engine's work between two steps. A step scheduled ahead ends in the recording when the output of
    the step before it arrives, so its own seconds are those up to the next end; if the engine was idle by then, they
    are unknown, and 0 here.
    """
    pairs = pairwise(ended)
    if is_async:
        return [0.0 if after.was_idle else after.end - one.end for one, after in pairs] + [0.0] * bool(ended)
    following = [after.seconds if after.was_idle else after.end - one.end for one, after in pairs]
    return [one.seconds for one in ended[:1]] + following


def _step(shares: Sequence[tuple[int, int]], seconds: float) -> Step:
    attended = sum(attended_pairs(start, num_tokens) for start, num_tokens in shares)
    return Step(sum(count for _, count in shares), attended, sum(map(sum, shares)), seconds)


def fit(steps: Iterable[Step]) -> FittedClock:
    """Return the clock with the smallest sum of relative errors, which a few interrupted steps do not move.

    Raises ConfigError for too few steps.
    """
    known = [step for step in steps if step.num_tokens > 0 and step.seconds > 0]
    if len(known) < FEWEST_STEPS:
        raise ConfigError(
            f"a clock needs at least {FEWEST_STEPS} steps with their times, and the recording has {len(known)}: record "
            "a longer run, or give two numbers, tokens per second of prefill and seconds of a decode step"
        )
    drawn = _drawn(known)
    clock = min((_at_knee(drawn, knee) for knee in _knees(drawn)), key=lambda one: sum(_errors(one, drawn)))
    errors = sorted(_errors(clock, known))
    most = max(step.num_tokens for step in known)
    total = sum(_predicted(clock, step) for step in known) / sum(step.seconds for step in known)
    return FittedClock(clock, len(known), most, _share(errors, 0.5), _share(errors, 0.95), total)


def _drawn(steps: Sequence[Step]) -> list[Step]:
    by_size: dict[int, list[Step]] = defaultdict(list)
    for step in steps:
        by_size[step.num_tokens.bit_length()].append(step)
    return [step for some in by_size.values() for step in some[:: -(-len(some) // MOST_OF_A_SIZE)]]


def _knees(steps: Sequence[Step]) -> list[int]:
    """Return the sizes at which the slope may change: powers of 2 among the steps' sizes, or the largest one."""
    sizes = [step.num_tokens for step in steps]
    inner = [2**n for n in range(1, 16) if min(sizes) < 2**n < max(sizes)]
    return [*inner, max(sizes)]


def _at_knee(steps: Sequence[Step], knee: int) -> Clock:
    rows = [_relative(step, knee) for step in steps]
    weights = [1.0] * len(steps)
    for _ in range(ROUNDS):
        found = non_negative(rows, weights)
        errors = [abs(1 - sum(map(float.__mul__, row, found))) for row in rows]
        weights = [1 / max(error, SMALLEST_ERROR) for error in errors]
    step, token, beyond, pair, context = found
    return Clock(step, token, beyond if knee < max(one.num_tokens for one in steps) else token, knee, pair, context)


def _relative(step: Step, knee: int) -> list[float]:
    """Return the factors of the clock's values, such that their sum should be 1."""
    few = min(step.num_tokens, knee)
    factors = (1, few, step.num_tokens - few, step.attended, step.read)
    return [factor / step.seconds for factor in factors]


def _errors(clock: Clock, steps: Iterable[Step]) -> list[float]:
    return [abs(_predicted(clock, step) / step.seconds - 1) for step in steps]


def _predicted(clock: Clock, step: Step) -> float:
    return clock.duration(step.num_tokens, step.attended, step.read)


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
