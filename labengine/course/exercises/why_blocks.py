"""Exercises of the notebook "Why blocks?"."""

from __future__ import annotations

from random import Random

from labengine.core.free_queue import FreeQueue
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.words import Make, course_exercise
from labengine.events import BlockAllocated, BlockFreed, SlotsWritten
from labengine.lab import Lab

SEA = "The sea is deep and blue and cold today"


def _introduced(exercise: Exercise) -> Exercise:
    """Give an exercise a dashboard of what the notebook has introduced."""
    exercise.panels = ("pool", "tables", "queue", "log")
    return exercise


def slot_of(table: list[int], position: int, block_size: int) -> int:
    """Return the slot of a position: the block that the table names, and the offset in it."""
    return table[position // block_size] * block_size + position % block_size


def _ignores_table(table: list[int], position: int, block_size: int) -> int:
    return position


def _takes_last_block(table: list[int], position: int, block_size: int) -> int:
    return table[-1] * block_size + position % block_size


def _forgets_offset(table: list[int], position: int, block_size: int) -> int:
    return table[position // block_size] * block_size


def _forgets_the_size(table: list[int], position: int, block_size: int) -> int:
    return table[position // block_size] + position % block_size


@course_exercise("why-blocks/slot")
def slot(make: Make) -> Exercise:
    """Fill in: from a position to its slot."""
    return make(
        solution=slot_of,
        cases=[([3, 0, 2], 6, 4), ([3, 0, 2], 0, 4), ([7], 3, 16), ([5, 1], 15, 8), ([0, 1, 2], 9, 4), ([9, 4], 2, 2)],
        num_shown=2,
        num_lines=1,
        mistakes=[_ignores_table, _takes_last_block, _forgets_offset, _forgets_the_size],
    )


def num_unwritten(num_tokens: int, block_size: int) -> int:
    """Return the slots that a request holds and has not written: the rest of its last block."""
    return -num_tokens % block_size


def _counts_a_full_block(num_tokens: int, block_size: int) -> int:
    return block_size - num_tokens % block_size


def _counts_written(num_tokens: int, block_size: int) -> int:
    return num_tokens % block_size


@course_exercise("why-blocks/waste")
def waste(make: Make) -> Exercise:
    """Fill in: slots held and not written."""
    return make(
        solution=num_unwritten,
        cases=[(6, 4), (1, 16), (17, 16), (4, 4), (32, 16), (1024, 1024)],
        num_shown=3,
        num_lines=1,
        mistakes=[_counts_a_full_block, _counts_written],
    )


def _some_traffic(lab: Lab) -> None:
    for text, max_tokens in (("Cats sleep all day and night", 9), ("One two three", 1), (SEA, 1)):
        lab.add(text, max_tokens=max_tokens, ignore_eos=True)
    lab.step(2)
    lab.add("A dog barks", max_tokens=4, ignore_eos=True)


def _next_taken(step: RevealedStep) -> int:
    return step.first(BlockAllocated).block_id


def _lowest_free(step: RevealedStep) -> int:
    return min(step.before.free_queue)


def _last_freed(step: RevealedStep) -> int:
    return step.before.free_queue[-1]


def _other_traffic(random: Random) -> Instance:
    *texts, late = phrases(random, *random.choices(range(2, 9), k=4))
    lengths, num_steps = random.choices(range(1, 7), k=3), random.randrange(1, 5)

    def play(lab: Lab) -> None:
        for text, length in zip(texts, lengths, strict=True):
            lab.add(text, max_tokens=length, ignore_eos=True)
        lab.step(num_steps)
        lab.add(late, max_tokens=4, ignore_eos=True)

    return Instance(_NEXT, play)


_NEXT = "A request is waiting, and will be admitted in the next step. Which block does it take first?"


@course_exercise("why-blocks/next-block")
def next_block(make: Make) -> Exercise:
    """Predict: the block that is taken next."""
    return _introduced(
        make(
            play=_some_traffic,
            truth=_next_taken,
            another=_other_traffic,
            about="block",
            num_blocks=10,
            block_size=4,
            mistakes=[_lowest_free, _last_freed],
        )
    )


def _num_free_after(step: RevealedStep) -> int:
    return len(step.after.free_queue)


def _without_freed(step: RevealedStep) -> int:
    return len(step.after.free_queue) - sum(event.ref_count == 0 for event in step.of_kind(BlockFreed))


def _two_arrive(one: str, length: int, other: str) -> Instance:
    def play(lab: Lab) -> None:
        lab.add(one, max_tokens=length, ignore_eos=True)
        lab.step()
        lab.add(other, max_tokens=1, ignore_eos=True)

    tokens = {3: "three", 4: "four", 5: "five"}[length]
    task = (
        f"A's answer will have {tokens} tokens, and has one. B has just arrived, and is done after one token. How many "
        "blocks are free after the next step? Blocks have 4 tokens."
    )
    return Instance(task, play)


def _two_others(random: Random) -> Instance:
    one, other = phrases(random, random.randrange(3, 13), random.randrange(3, 15))
    return _two_arrive(one, random.randrange(3, 6), other)


@course_exercise("why-blocks/num-free")
def num_free(make: Make) -> Exercise:
    """Predict: the free blocks after each of three steps."""
    first = _two_arrive("Cats sleep all day and night", 3, SEA)
    return _introduced(
        make(
            task=first.task,
            play=first.play,
            truth=_num_free_after,
            another=_two_others,
            about="number",
            rounds=2,
            num_blocks=8,
            block_size=4,
            mistakes=[_without_freed],
        )
    )


class GivesOneTwice(FreeQueue):
    """A queue that gives a block away a second time: a single block is the last of those given before."""

    _newest: int | None = None

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks from the head; a single one is the newest that was given, if there is one."""
        if num_blocks == 1 and self._newest is not None:
            taken, self._newest = [self._newest], None
            return taken
        taken = super().take(num_blocks)
        self._newest = taken[-1]
        return taken


def _a_second_arrives(lab: Lab) -> None:
    lab.add("The cat sleeps all day", max_tokens=3, ignore_eos=True)
    lab.step()
    lab.add("Two fish", max_tokens=2, ignore_eos=True)
    lab.step(2)


@course_exercise("why-blocks/twice")
def twice(make: Make) -> Exercise:
    """Find the first wrong event: a block in two tables."""
    return _introduced(
        make(
            broken=GivesOneTwice,
            play=_a_second_arrives,
            mistakes=[nth_event(BlockAllocated, 1), nth_event(SlotsWritten, 2)],
            num_blocks=5,
            block_size=4,
        )
    )
