"""Exercises of the notebook "Corruption or rounding?", on given numbers: they need no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import frexp, ldexp

from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import PrefixHit

PROMPT = " ".join(f"word{number}" for number in range(96))

course_exercise(
    "rounding/num-rows",
    play=plays((PROMPT, 1), RUN, (PROMPT, 1)),
    truth=lambda step: len(step.after.requests[1].token_ids) - 1 - step.first(PrefixHit).num_tokens,
    about="number",
    mistakes=[0, 1],
    num_blocks=16,
    block_size=16,
)


def margin(logits: Sequence[float]) -> float:
    """Return how far the largest logit is above the second."""
    first, second = sorted(logits)[-1:-3:-1]
    return first - second


course_exercise(
    "rounding/margin",
    solution=margin,
    cases=[
        ([1.0, 4.0, 3.5],),
        ([2.0, 2.0, -1.0],),
        ([0.25, 0.0],),
        ([-3.0, -1.0, -8.0, -1.5],),
        ([9.0, 9.0, 1.0, 9.0],),
    ],
    num_lines=2,
    mistakes=[
        lambda logits: abs(logits[0] - logits[1]),
        lambda logits: max(logits) - min(logits),
        lambda logits: max(logits) - max(one for one in logits if one != max(logits)),
    ],
)


def rounded(number: float, num_bits: int) -> float:
    """Round to num_bits significant bits: scale, round to a whole number, and scale back."""
    fraction, exponent = frexp(number)
    return ldexp(round(ldexp(fraction, num_bits)), exponent - num_bits)


def sum_in_parts(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    """Add each part, then the parts' sums, and round after each addition."""
    total = 0.0
    for start in range(0, len(numbers), part_size):
        part = 0.0
        for number in numbers[start : start + part_size]:
            part = rounded(part + number, num_bits)
        total = rounded(total + part, num_bits)
    return total


def _in_one_go(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    return sum_in_parts(numbers, len(numbers) or 1, num_bits)


def _parts(numbers: Sequence[float], part_size: int) -> list[Sequence[float]]:
    return [numbers[start : start + part_size] for start in range(0, len(numbers), part_size)]


course_exercise(
    "rounding/other-order",
    solution=sum_in_parts,
    cases=[
        ([256.0, 1.0, 1.0, 1.0], 4, 8),
        ([256.0, 1.0, 1.0, 1.0], 2, 8),
        ([256.0, 1.0, 1.0, 1.0], 1, 24),
        ([1.0] * 300, 300, 8),
        ([1.0] * 300, 20, 8),
        ([0.1, 0.2, 0.3, 0.4, 0.5], 3, 8),
        ([100.0, 0.3, 0.3, 0.3, 0.3, -100.0], 2, 8),
    ],
    num_lines=7,
    mistakes=[
        _in_one_go,
        lambda numbers, part_size, num_bits: rounded(sum(numbers), num_bits),
        lambda numbers, size, bits: sum(rounded(sum(part), bits) for part in _parts(numbers, size)),
        lambda numbers, size, bits: sum(_in_one_go(part, size, bits) for part in _parts(numbers, size)),
        lambda numbers, size, bits: _in_one_go([rounded(sum(part), bits) for part in _parts(numbers, size)], 1, bits),
        lambda numbers, size, bits: _in_one_go([sum(part) for part in _parts(numbers, size)], 1, bits),
    ],
)


Tokens = tuple[int, int]
"""The tokens chosen by the cold and the warm run, as indices into their logits."""


def verdict(cold: Sequence[float], warm: Sequence[float], tokens: Tokens, key_distance: float) -> str:
    """Judge two runs by their logits and tokens at one position, and by the distance of their keys."""
    if key_distance > 0.4:
        return "wrong content"
    if tokens[0] == tokens[1]:
        return "equal"
    took_largest = cold[tokens[0]] == max(cold) and warm[tokens[1]] == max(warm)
    return "other rounding" if took_largest and cold != warm else "not the KV"


course_exercise(
    "rounding/verdict",
    solution=verdict,
    cases=[
        ([5.0, 4.0, 1.0], [4.9, 4.1, 1.0], (0, 0), 0.03),
        ([5.0, 4.9, 1.0], [1.0, 2.0, 7.0], (0, 2), 1.3),
        ([5.0, 5.0, 1.0], [5.0, 5.125, 1.0], (0, 1), 0.02),
        ([4.0, 3.9, 0.0], [4.0, 3.9, 0.0], (0, 1), 0.0),
        ([5.0, 1.0, 0.0], [5.0, 1.0, 0.0], (0, 0), 1.1),
        ([2.0, 2.125], [2.125, 2.125], (1, 0), 0.01),
        ([4.0, 3.9, 0.0], [3.9, 4.0, 0.0], (0, 1), 0.05),
        ([3.0, 3.0], [3.0, 3.0], (0, 1), 0.0),
        ([7.0, 6.875, 0.0], [6.75, 7.0, 0.0], (0, 2), 0.4),
    ],
    num_shown=4,
    num_lines=6,
    mistakes=[
        lambda cold, warm, tokens, key_distance: "equal" if tokens[0] == tokens[1] else "wrong content",
        lambda *runs: "equal" if runs[2][0] == runs[2][1] else verdict(*runs),
        lambda *runs: {"not the KV": "other rounding"}.get(verdict(*runs), verdict(*runs)),
        lambda *runs: (
            "not the KV"
            if verdict(*runs) == "other rounding" and margin(runs[0]) and margin(runs[1])
            else verdict(*runs)
        ),
    ],
)


MOST_BITS = 24
"""Significant bits of float32."""


def too_few_bits(logits: Sequence[float]) -> int:
    """Return the largest number of bits below 24 at which rounding makes the two largest logits equal; 0 for none."""
    for num_bits in range(MOST_BITS - 1, 0, -1):
        if margin([rounded(one, num_bits) for one in logits]) == 0:
            return num_bits
    return 0


def _most_bits(is_there: Callable[[int], bool]) -> int:
    return next(filter(is_there, range(MOST_BITS - 1, 0, -1)), 0)


def _winner(logits: Sequence[float]) -> int:
    return logits.index(max(logits))


def _upwards_from_one(logits: Sequence[float]) -> int:
    num_bits = 1
    while margin([rounded(one, num_bits) for one in logits]) == 0:
        num_bits += 1
    return num_bits - 1


def _rounds_the_rounded(logits: Sequence[float]) -> int:
    for num_bits in range(MOST_BITS - 1, 0, -1):
        logits = [rounded(one, num_bits) for one in logits]
        if margin(logits) == 0:
            return num_bits
    return 0


course_exercise(
    "rounding/too-few-bits",
    solution=too_few_bits,
    cases=[
        ([20.0, 20.06, 3.0],),
        ([1.25, 1.25375, -2.0],),
        ([1.0, 2.0],),
        ([-3.0, -3.01, -9.0],),
        ([20.0, 19.9],),
        ([9.0, 2.5, 2.501],),
        ([0.02, 0.0199],),
        ([12.25, 12.125, 12.5],),
        ([1000.0, 1001.0],),
    ],
    num_lines=4,
    mistakes=[
        lambda logits: _most_bits(lambda n: _winner([rounded(one, n) for one in logits]) != _winner(logits)),
        lambda logits: _most_bits(lambda n: len({rounded(one, n) for one in logits}) < len(logits)),
        lambda logits: _most_bits(lambda n: margin([round(ldexp(one, n)) for one in logits]) == 0),
        _rounds_the_rounded,
        _upwards_from_one,
    ],
)
