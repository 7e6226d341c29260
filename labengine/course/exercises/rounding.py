"""Exercises of the notebook "Corruption or rounding?": with numbers that are given; no model is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import frexp, ldexp

from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.predict_exercise import RevealedStep
from labengine.events import PrefixHit
from labengine.lab import Lab


def _cold_then_warm(lab: Lab) -> None:
    prompt = " ".join(f"word{number}" for number in range(96))
    lab.add(prompt, max_tokens=1, ignore_eos=True)
    lab.run()
    lab.add(prompt, max_tokens=1, ignore_eos=True)


def _num_computed(step: RevealedStep) -> int:
    return len(step.after.requests[1].token_ids) - 1 - _num_found(step)


def _num_found(step: RevealedStep) -> int:
    return step.first(PrefixHit).num_tokens


def num_rows() -> Exercise:
    """Predict: the rows that the warm request multiplies."""
    return exercise(
        "rounding/num-rows",
        "As in the notebook, with one difference: the prompt has 96 tokens, six full blocks of 16, and all six are in "
        "the cache. How many tokens does the warm request compute in its first step?",
        play=_cold_then_warm,
        truth=_num_computed,
        about="number",
        hints=[
            "The last token of the prompt has to be computed: its logits give the next token.",
            "A hit ends at the end of a block. Which is the last block end before position 95?",
        ],
        mistakes=[
            (0, "Then there would be no logits, and nothing to choose the next token from."),
            (1, "A hit ends where a block ends. So the whole last block is computed again, and not its last token."),
        ],
        num_blocks=16,
        block_size=16,
    )


def margin(logits: Sequence[float]) -> float:
    """Return how far the largest logit is above the second."""
    first, second = sorted(logits)[-1:-3:-1]
    return first - second


def _first_two_in_the_list(logits: Sequence[float]) -> float:
    return abs(logits[0] - logits[1])


def _range_of_all(logits: Sequence[float]) -> float:
    return max(logits) - min(logits)


def _above_the_next_value(logits: Sequence[float]) -> float:
    return max(logits) - max(one for one in logits if one != max(logits))


def margins() -> Exercise:
    """Fill in: how close a vote was."""
    return exercise(
        "rounding/margin",
        "How close was the vote? `logits` is a list of numbers, one for each token, in no order. Return how far the "
        "largest one is above the second.",
        solution=margin,
        cases=[
            ([1.0, 4.0, 3.5],),
            ([2.0, 2.0, -1.0],),
            ([0.25, 0.0],),
            ([-3.0, -1.0, -8.0, -1.5],),
            ([9.0, 9.0, 1.0, 9.0],),
        ],
        num_lines=2,
        hints=[
            "`sorted(logits)` is a new list, the smallest first.",
            "Two equal winners are a tie: the margin is 0.",
        ],
        mistakes=[
            (_first_two_in_the_list, "The list has no order: the winner may stand anywhere."),
            (_range_of_all, "That is the distance to the loser. The second place decides how close it was."),
            (_above_the_next_value, "Two equal winners are two places: their margin is 0, an exact tie."),
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


def _rounded_at_the_end(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    return rounded(sum(numbers), num_bits)


def _parts_exact(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    total = 0.0
    for start in range(0, len(numbers), part_size):
        total = rounded(total + sum(numbers[start : start + part_size]), num_bits)
    return total


def _part_sums_only(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    starts = range(0, len(numbers), part_size)
    return sum(rounded(sum(numbers[start : start + part_size]), num_bits) for start in starts)


def _part_sums_once(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    total = 0.0
    for start in range(0, len(numbers), part_size):
        total = rounded(total + rounded(sum(numbers[start : start + part_size]), num_bits), num_bits)
    return total


def _parts_alone(numbers: Sequence[float], part_size: int, num_bits: int) -> float:
    total = 0.0
    for start in range(0, len(numbers), part_size):
        total += _in_one_go(numbers[start : start + part_size], part_size, num_bits)
    return total


def other_order() -> Exercise:
    """Fill in: the same sum in another order."""
    return exercise(
        "rounding/other-order",
        "Why do 93 rows and 13 rows give other sums? Because a kernel adds in parts. Add `numbers` in parts of "
        "`part_size`: each part from 0 on, number by number, and then the parts' sums from 0 on, in their order. After "
        "*every* addition, round to `num_bits` significant bits; "
        "`from labengine.course.exercises.rounding import rounded`, and `rounded(x, num_bits)` does that.",
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
        hints=[
            "Two loops: over the parts (`range(0, len(numbers), part_size)`), and inside over a part's numbers.",
            "In eight bits, 256 + 1 is 256 again: the 1 is lost. In a part of its own it meets other ones first.",
        ],
        mistakes=[
            (_in_one_go, "Here everything is added in one go: `part_size` plays no role."),
            (
                _rounded_at_the_end,
                "If only the last sum is rounded, the order hardly matters. A kernel rounds after each addition.",
            ),
            (
                _part_sums_only,
                "You round the parts' sums only. Each addition is rounded: inside a part, and from part to part.",
            ),
            (_parts_alone, "The parts are right. Adding their sums is adding, too: round after each part."),
            (
                _part_sums_once,
                "A part's sum is rounded once, at its end. Inside a part, too, each addition is rounded.",
            ),
            (_parts_exact, "Inside a part, too, each addition is rounded."),
        ],
    )


Tokens = tuple[int, int]
"""The token that the cold run has chosen, and the warm one's: indices of their logits."""


def verdict(cold: Sequence[float], warm: Sequence[float], tokens: Tokens, key_distance: float) -> str:
    """Judge two runs by their logits and tokens at one position, and by the distance of their keys."""
    if key_distance > 0.4:
        return "wrong content"
    if tokens[0] == tokens[1]:
        return "equal"
    took_largest = cold[tokens[0]] == max(cold) and warm[tokens[1]] == max(warm)
    return "other rounding" if took_largest and cold != warm else "not the KV"


def _by_words_alone(cold: Sequence[float], warm: Sequence[float], tokens: Tokens, key_distance: float) -> str:
    return "equal" if tokens[0] == tokens[1] else "wrong content"


def _keys_last(cold: Sequence[float], warm: Sequence[float], tokens: Tokens, key_distance: float) -> str:
    return "equal" if tokens[0] == tokens[1] else verdict(cold, warm, tokens, key_distance)


def _never_the_sampler(cold: Sequence[float], warm: Sequence[float], tokens: Tokens, key_distance: float) -> str:
    found = verdict(cold, warm, tokens, key_distance)
    return "other rounding" if found == "not the KV" else found


def _only_exact_ties(cold: Sequence[float], warm: Sequence[float], tokens: Tokens, key_distance: float) -> str:
    found = verdict(cold, warm, tokens, key_distance)
    return "not the KV" if found == "other rounding" and margin(cold) and margin(warm) else found


def judging() -> Exercise:
    """Fill in: corruption or rounding."""
    return exercise(
        "rounding/verdict",
        "Judge as `labengine.judge` does. `cold` and `warm` are the runs' logits at one position, `tokens` the two "
        "tokens that they chose there (indices of the logits), and `key_distance` says how far K of one position is "
        "apart, in lengths of a vector. Return 'wrong content' if that is more than 0.4, whatever the tokens are; else "
        "'equal' for equal tokens (their bits may differ); else 'other rounding' if the logits differ and each run has "
        "chosen one of its largest; and else 'not the KV'.",
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
        hints=[
            "Go through the sentences in their order: the keys come first.",
            "`cold[tokens[0]] == max(cold)` if the cold run has chosen one of its largest logits.",
        ],
        mistakes=[
            (_by_words_alone, "From other words alone nobody can tell: that is how such reports come about."),
            (_keys_last, "Equal words do not clear a run: with another vector in its cache it may be right by luck."),
            (
                _never_the_sampler,
                "Rounding moves logits, and the largest still wins. If a run has chosen another one, look at the "
                "sampler; and equal logits are no rounding either.",
            ),
            (_only_exact_ties, "Rounding needs no exact tie: a margin that is small enough can turn."),
        ],
    )


MOST_BITS = 24
"""Significant bits of float32."""


def too_few_bits(logits: Sequence[float]) -> int:
    """Return the largest number of bits, below 24, with which rounded logits share the first place; 0 for none."""
    for num_bits in range(MOST_BITS - 1, 0, -1):
        if margin([rounded(one, num_bits) for one in logits]) == 0:
            return num_bits
    return 0


def _until_another_wins(logits: Sequence[float]) -> int:
    winner = logits.index(max(logits))
    for num_bits in range(MOST_BITS - 1, 0, -1):
        left = [rounded(one, num_bits) for one in logits]
        if left.index(max(left)) != winner:
            return num_bits
    return 0


def _until_any_two_are_equal(logits: Sequence[float]) -> int:
    for num_bits in range(MOST_BITS - 1, 0, -1):
        if len({rounded(one, num_bits) for one in logits}) < len(logits):
            return num_bits
    return 0


def _bits_behind_the_point(logits: Sequence[float]) -> int:
    for num_bits in range(MOST_BITS - 1, 0, -1):
        if margin([round(ldexp(one, num_bits)) for one in logits]) == 0:
            return num_bits
    return 0


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


def fewer_bits() -> Exercise:
    """Fill in: the number of bits with which a vote becomes a tie."""
    return exercise(
        "rounding/too-few-bits",
        "More bits, turned round. With 24 significant bits one of the `logits` is alone in the first place. Take away "
        "one bit after the other, and round the original logits each time, with `rounded(x, num_bits)`. Return the "
        "number of bits with which the first place is shared for the first time; 0 if that never happens.",
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
        hints=[
            "`range(23, 0, -1)` goes from 23 bits down to 1. When is a vote a tie? You have written `margin` above.",
            "Round every logit, and ask the rounded ones for their margin: the first number of bits with margin 0 is "
            "the answer.",
        ],
        mistakes=[
            (
                _until_another_wins,
                "You wait until another token is chosen. The tie comes first: from there on, the order of the list "
                "decides, and no longer the model.",
            ),
            (_until_any_two_are_equal, "Two losers may be equal: only the first place counts."),
            (
                _bits_behind_the_point,
                "Significant bits count from the number's first one on, wherever the point is: near 20, five of eight "
                "bits stand before it, and the next number is 0.125 away.",
            ),
            (
                _rounds_the_rounded,
                "You round what is rounded already, which can go up twice. Round the original logits each time.",
            ),
            (
                _upwards_from_one,
                "With very few bits two numbers may be apart by luck, and meet again with more. Go down from 24.",
            ),
        ],
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "rounding/num-rows": num_rows,
    "rounding/margin": margins,
    "rounding/other-order": other_order,
    "rounding/verdict": judging,
    "rounding/too-few-bits": fewer_bits,
}
