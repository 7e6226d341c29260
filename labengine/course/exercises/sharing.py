"""Exercises of the notebook "Sharing what is written"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labengine.core.full_attention import FullAttentionGroup
from labengine.core.request import Request
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import RevealedStep, in_step
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


def copies() -> Exercise:
    """Fill in: copies in the step after a fork."""
    return exercise(
        "sharing/copies",
        "A prompt of `num_tokens` tokens gets `n` answers, in blocks of `block_size`. The prompt is computed, and all "
        "share its blocks. How many blocks are copied in the next step, in which each answer writes its first token?",
        solution=num_copies,
        cases=[(6, 4, 4), (8, 4, 4), (6, 4, 1), (1, 16, 2), (32, 16, 5), (33, 16, 5)],
        num_shown=2,
        num_lines=1,
        hints=[
            "Which block does the token behind the prompt go to, if the prompt's last block is full?",
            "When all others have a copy, how many tables still point to the shared block?",
        ],
        mistakes=[
            (_a_copy_each, "The last one that holds the block writes in place: nobody else reads it any more."),
            (_copies_full_blocks_too, "A full block is never written to: each answer opens a block of its own."),
            (_copies_the_prompt, "Only the block that is written to is copied; those before it stay shared."),
        ],
    )


def _three_of_four(lab: Lab) -> None:
    lab.add(token_ids=range(6), n=4, max_tokens=6, ignore_eos=True)
    lab.step()
    lab.abort("D")


def _writes_in_place(step: RevealedStep) -> int:
    copied = {event.request_id for event in step.of_kind(BlockCopied)}
    return next(request_id for request_id in (0, 1, 2) if request_id not in copied)


def in_place() -> Exercise:
    """Predict: who writes without a copy."""
    return exercise(
        "sharing/in-place",
        "Blocks of 4, and a prompt of 6 tokens with four answers, A to D. The prompt is computed, and D is aborted. In "
        "the next step each of the others writes a token into the second block. Who writes into it without a copy?",
        play=_three_of_four,
        truth=_writes_in_place,
        about="request",
        hints=[
            "The requests are scheduled in order, A first. How many tables hold the block when A asks for its slot?",
            "Each copy takes one reference away. Who is the last one to ask?",
        ],
        mistakes=[
            (0, "When A is scheduled three tables hold the block. What A writes, B and C would read."),
            (1, "A has its copy by then, and two tables are left: B's and C's."),
        ],
        num_blocks=12,
        block_size=4,
    )


def _four_answers(lab: Lab) -> None:
    lab.add(token_ids=range(6), n=4, max_tokens=6, ignore_eos=True)
    lab.step()


def _num_used(step: RevealedStep) -> int:
    return step.after.num_used_blocks


def blocks() -> Exercise:
    """Predict: blocks in use, three steps in a row."""
    return exercise(
        "sharing/blocks",
        "Blocks of 4, and a prompt of 6 tokens with four answers. The prompt is computed: two blocks are in use. How "
        "many are after the next step?",
        play=_four_answers,
        truth=_num_used,
        about="number",
        rounds=3,
        hints=[
            "Draw the four tables. Which entries are equal, and which are not?",
            "Position 8 is the first one of a third block.",
        ],
        mistakes=[
            (in_step(2, 8, _num_used), "The first block is full, and stays shared: all four tables begin with it."),
            (in_step(2, 6, _num_used), "Four tails, and one of them is the block that was shared: three are new."),
            (
                in_step(3, 9, _num_used),
                "Position 7 is the last slot of the second block: nobody needs a third one yet.",
            ),
            (in_step(4, 8, _num_used), "One shared block, four tails, and a new block for each answer."),
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


def first_wrong() -> Exercise:
    """Find the first wrong event: a write into a block that another request reads."""
    return exercise(
        "sharing/first-wrong",
        "One method of this engine is wrong. A prompt of 6 tokens gets three answers, in blocks of 4. After step 2 a "
        "request reads another one's token. Which event is the first wrong one?",
        broken=CopiesForThree,
        because=(
            "Two tables hold the block, B's and C's, and B writes into it. C writes its own token into the same slot "
            "a moment later."
        ),
        play=_three_answers,
        hints=[
            "Who copies in step 2? There are three answers, and the last one that holds a block needs no copy.",
            "Look at the events of step 2 that write: which block, which slot, and how many tables hold it?",
        ],
        mistakes=[
            (nth_event(BlockCopied), "A's copy is right: three tables hold the block. What about the next one?"),
            (nth_event(RequestForked), "A fork shares the block that is filled in part, and may."),
            (
                nth_event(BlockFreed),
                "A has a copy, so its reference to the shared block is dropped: two are left, which is right.",
            ),
        ],
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


_EVERY_BEAM = "So a beam goes on once at most. One beam may go on twice, and another one not at all."


def _forgets_the_past(scores: dict[int, float], likeliest: Candidates, num_beams: int) -> list[tuple[int, str]]:
    return best(dict.fromkeys(scores, 0.0), likeliest, num_beams)


def go_on() -> Exercise:
    """Fill in: which beams go on."""
    return exercise(
        "sharing/go-on",
        "`scores` is a dict: for each beam 0, 1 ... the sum of its log-probabilities. `likeliest` is a dict, too: for "
        "each beam a list of what may follow, pairs of a word and its log-probability. Return the `num_beams` best "
        "continuations over all beams as pairs (beam, word), the best first. No two are equally good.",
        solution=best,
        cases=[
            ({0: -1.0, 1: -2.0}, {0: [("a", -0.5), ("b", -0.7)], 1: [("c", -0.1), ("d", -3.0)]}, 2),
            ({0: -1.0, 1: -1.2}, {0: [("a", -0.5), ("b", -2.0)], 1: [("a", -0.1), ("b", -0.2)]}, 2),
            ({0: 0.0}, {0: [("x", -0.3), ("y", -0.9), ("z", -4.0)]}, 3),
            ({0: -5.0, 1: -0.5, 2: -1.5}, {0: [("a", -0.1)], 1: [("b", -0.2), ("c", -0.4)], 2: [("d", -0.3)]}, 3),
        ],
        num_shown=2,
        num_lines=3,
        hints=[
            "A text's log-probability is the sum of its tokens': a beam's score, and one more.",
            "Put all sums of all beams into one list, sort it, and cut it off.",
        ],
        mistakes=[
            (_best_of_each, _EVERY_BEAM),
            (_best_word_of_each, _EVERY_BEAM),
            (_worst_first, "Log-probabilities are negative, and the one nearest 0 is the best: sort descending."),
            (_best_last, "These are the right ones, in ascending order: the best has to come first."),
            (_forgets_the_past, "A likely word behind an unlikely text is still an unlikely text: add the score."),
        ],
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "sharing/copies": copies,
    "sharing/in-place": in_place,
    "sharing/blocks": blocks,
    "sharing/first-wrong": first_wrong,
    "sharing/go-on": go_on,
}
