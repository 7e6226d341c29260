"""Exercises of the notebook "Sharing what is written"."""

from __future__ import annotations

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
from labengine.course.words import Make, course_exercise
from labengine.events import BlockCopied, BlockFreed, RequestForked
from labengine.lab import Lab


def num_copies(num_tokens: int, block_size: int, n: int) -> int:
    """Return the blocks that n answers to a prompt copy before their first tokens are written."""
    return n - 1 if num_tokens % block_size else 0


def _a_copy_each(num_tokens: int, block_size: int, n: int) -> int:
    return n if num_tokens % block_size else 0


def _copies_full_blocks_too(num_tokens: int, block_size: int, n: int) -> int:
    return n - 1


def _copies_the_prompt(num_tokens: int, block_size: int, n: int) -> int:
    return (n - 1) * -(-num_tokens // block_size)


@course_exercise("sharing/copies")
def copies(make: Make) -> Exercise:
    """Fill in: copies in the step after a fork."""
    return make(
        solution=num_copies,
        cases=[(6, 4, 4), (8, 4, 4), (6, 4, 1), (1, 16, 2), (32, 16, 5), (33, 16, 5)],
        num_shown=2,
        num_lines=1,
        mistakes=[_a_copy_each, _copies_full_blocks_too, _copies_the_prompt],
    )


def _three_of_four(lab: Lab) -> None:
    lab.add(token_ids=range(6), n=4, max_tokens=6, ignore_eos=True)
    lab.step()
    lab.abort("D")


def _writes_in_place(step: RevealedStep) -> int:
    copied = {event.request_id for event in step.of_kind(BlockCopied)}
    return next(request_id for request_id in (0, 1, 2) if request_id not in copied)


@course_exercise("sharing/in-place")
def in_place(make: Make) -> Exercise:
    """Predict: who writes without a copy."""
    return make(
        play=_three_of_four,
        truth=_writes_in_place,
        about="request",
        mistakes=[0, 1],
        num_blocks=12,
        block_size=4,
    )


def _four_answers(lab: Lab) -> None:
    lab.add(token_ids=range(6), n=4, max_tokens=6, ignore_eos=True)
    lab.step()


def _num_used(step: RevealedStep) -> int:
    return step.after.num_used_blocks


@course_exercise("sharing/blocks")
def blocks(make: Make) -> Exercise:
    """Predict: blocks in use, three steps in a row."""
    return make(
        play=_four_answers,
        truth=_num_used,
        about="number",
        rounds=3,
        mistakes=[
            in_step(2, 8, _num_used),
            in_step(2, 6, _num_used),
            in_step(3, 9, _num_used),
            in_step(4, 8, _num_used),
        ],
        num_blocks=16,
        block_size=4,
    )


class CopiesForThree(FullAttentionGroup):
    """A group that takes a block for unshared when two tables hold it."""

    def copies_before_write(self, request: Request, index: int) -> bool:
        """Return True while more than two tables hold the block."""
        return self._pool.blocks[request.block_tables[self.index][index]].ref_count > 2


def _three_answers(lab: Lab) -> None:
    lab.add(token_ids=range(6), n=3, max_tokens=6, ignore_eos=True)
    lab.step(3)


@course_exercise("sharing/first-wrong")
def first_wrong(make: Make) -> Exercise:
    """Find the first wrong event: a write into a block that another request reads."""
    return make(
        broken=CopiesForThree,
        play=_three_answers,
        mistakes=[nth_event(BlockCopied), nth_event(RequestForked), nth_event(BlockFreed)],
        num_blocks=12,
        block_size=4,
    )


Candidates = dict[int, list[tuple[str, float]]]


def best(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    """Return the best continuations over all beams."""
    sums = [(scores[beam] + more, beam, word) for beam, words in likeliest.items() for word, more in words]
    sums.sort(key=lambda one: -one[0])
    return [(beam, word) for _, beam, word in sums[:num_beams]]


def _best_of_each(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    return [(beam, max(words, key=lambda one: one[1])[0]) for beam, words in likeliest.items()]


def _sums(scores: dict[int, float], likeliest: Candidates) -> list[tuple[float, int, str]]:
    return sorted((scores[beam] + more, beam, word) for beam, words in likeliest.items() for word, more in words)


def _worst_first(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    return [(beam, word) for _, beam, word in _sums(scores, likeliest)[:num_beams]]


def _best_last(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    return [(beam, word) for _, beam, word in _sums(scores, likeliest)[-num_beams:]]


def _best_word_of_each(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    bests = {beam: [max(words, key=lambda one: one[1])] for beam, words in likeliest.items()}
    return best(scores, bests, num_beams)


def _forgets_the_past(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    return best(dict.fromkeys(scores, 0.0), likeliest, num_beams)


@course_exercise("sharing/go-on")
def go_on(make: Make) -> Exercise:
    """Fill in: which beams go on."""
    return make(
        solution=best,
        cases=[
            ({0: -1.0, 1: -2.0}, {0: [("a", -0.5), ("b", -0.7)], 1: [("c", -0.1), ("d", -3.0)]}, 2),
            ({0: -1.0, 1: -1.2}, {0: [("a", -0.5), ("b", -2.0)], 1: [("a", -0.1), ("b", -0.2)]}, 2),
            ({0: 0.0}, {0: [("x", -0.3), ("y", -0.9), ("z", -4.0)]}, 3),
            ({0: -5.0, 1: -0.5, 2: -1.5}, {0: [("a", -0.1)], 1: [("b", -0.2), ("c", -0.4)], 2: [("d", -0.3)]}, 3),
        ],
        num_shown=2,
        num_lines=3,
        mistakes=[[_best_of_each, _best_word_of_each], _worst_first, _best_last, _forgets_the_past],
    )
