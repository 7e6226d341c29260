"""Exercises of the notebook "Sharing what is written"."""

from __future__ import annotations

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import in_step
from labengine.course.trial import Workload
from labengine.course.words import course_exercise
from labengine.events import BlockCopied, BlockFreed, RequestForked
from labengine.lab import Lab


def num_copies(num_tokens: int, block_size: int, n: int) -> int:
    """Return the number of blocks that n answers to a prompt copy before they write their first tokens."""
    return n - 1 if num_tokens % block_size else 0


course_exercise(
    "sharing/copies",
    solution=num_copies,
    cases=[(6, 4, 4), (8, 4, 4), (6, 4, 1), (1, 16, 2), (32, 16, 5), (33, 16, 5)],
    num_shown=2,
    num_lines=1,
    mistakes=[
        lambda num_tokens, block_size, n: n if num_tokens % block_size else 0,
        lambda num_tokens, block_size, n: n - 1,
        lambda num_tokens, block_size, n: (n - 1) * -(-num_tokens // block_size),
    ],
)


def _answers(n: int, num_steps: int = 1) -> Workload:
    def play(lab: Lab) -> None:
        lab.add(token_ids=range(6), n=n, max_tokens=6, ignore_eos=True)
        lab.step(num_steps)

    return play


def _three_of_four(lab: Lab) -> None:
    _answers(4)(lab)
    lab.abort("D")


course_exercise(
    "sharing/in-place",
    play=_three_of_four,
    truth=lambda step: min({0, 1, 2} - {event.request_id for event in step.of_kind(BlockCopied)}),
    about="request",
    mistakes=[0, 1],
    num_blocks=12,
)


course_exercise(
    "sharing/blocks",
    play=_answers(4),
    truth=lambda step: step.after.num_used_blocks,
    about="number",
    rounds=3,
    mistakes=[in_step(2, 8), in_step(2, 6), in_step(3, 9), in_step(4, 8)],
    num_blocks=16,
)


class CopiesForThree(FullAttentionGroup):
    """A group that treats a block in two tables as unshared."""

    def copies_before_write(self, request: Request, index: int) -> bool:
        """Return True while more than two tables hold the block."""
        return self._pool.blocks[request.block_tables[self.index][index]].ref_count > 2


course_exercise(
    "sharing/first-wrong",
    broken=CopiesForThree,
    play=_answers(3, num_steps=3),
    mistakes=[nth_event(BlockCopied), nth_event(RequestForked), nth_event(BlockFreed)],
    num_blocks=12,
)


Candidates = dict[int, list[tuple[str, float]]]


def best(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    """Return the best continuations over all beams."""
    sums = [(scores[beam] + more, beam, word) for beam, words in likeliest.items() for word, more in words]
    sums.sort(key=lambda one: -one[0])
    return [(beam, word) for _, beam, word in sums[:num_beams]]


def _best_word(words: list[tuple[str, float]]) -> tuple[str, float]:
    return max(words, key=lambda one: one[1])


def _sums(scores: dict[int, float], likeliest: Candidates) -> list[tuple[float, int, str]]:
    return sorted((scores[beam] + more, beam, word) for beam, words in likeliest.items() for word, more in words)


course_exercise(
    "sharing/go-on",
    solution=best,
    cases=[
        ({0: -1.0, 1: -2.0}, {0: [("a", -0.5), ("b", -0.7)], 1: [("c", -0.1), ("d", -3.0)]}, 2),
        ({0: -1.0, 1: -1.2}, {0: [("a", -0.5), ("b", -2.0)], 1: [("a", -0.1), ("b", -0.2)]}, 2),
        ({0: 0.0}, {0: [("x", -0.3), ("y", -0.9), ("z", -4.0)]}, 3),
        ({0: -5.0, 1: -0.5, 2: -1.5}, {0: [("a", -0.1)], 1: [("b", -0.2), ("c", -0.4)], 2: [("d", -0.3)]}, 3),
    ],
    num_shown=2,
    num_lines=3,
    mistakes=[
        [
            lambda scores, likeliest, n: [(beam, _best_word(words)[0]) for beam, words in likeliest.items()],
            lambda scores, likeliest, n: best(scores, {i: [_best_word(words)] for i, words in likeliest.items()}, n),
        ],
        lambda scores, likeliest, n: [one[1:] for one in _sums(scores, likeliest)[:n]],
        lambda scores, likeliest, n: [one[1:] for one in _sums(scores, likeliest)[-n:]],
        lambda scores, likeliest, num_beams: best(dict.fromkeys(scores, 0.0), likeliest, num_beams),
    ],
)
