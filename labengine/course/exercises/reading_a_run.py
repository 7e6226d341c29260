"""Exercises of the notebook "Ask why"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labengine.core.block_pool import BlockPool
from labengine.core.nano_vllm import NanoBlockPool
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.predict_exercise import RevealedStep
from labengine.events import BlockEvicted
from labengine.lab import Lab

SKY = "Tell me why the sky is blue at noon"
SEA = "Please write a poem about the sea for me"
WHALE = "Who wrote the book about the whale and when"
LONG = "Here is a long list of words that nobody else will ever send to us"


def _up_to_d(lab: Lab) -> None:
    lab.add(SKY, max_tokens=1)
    lab.step()
    for _ in range(2):
        lab.add(SEA, max_tokens=4)
    lab.step()
    lab.add(LONG, max_tokens=1)


def _one_runs_and_two_are_done(lab: Lab) -> None:
    for prompt, max_tokens in ((SKY, 9), (SEA, 1), (WHALE, 1)):
        lab.add(prompt, max_tokens=max_tokens)
        lab.step()
    lab.add(LONG, max_tokens=1)


def _up_to_e(lab: Lab) -> None:
    _up_to_d(lab)
    lab.step()
    lab.add(SKY, max_tokens=2)
    lab.run()


def _first_evicted(step: RevealedStep) -> str:
    block_id = step.first(BlockEvicted).block_id
    return _key_of(step, block_id)


def _key_of(step: RevealedStep, block_id: int) -> str:
    return next(key for key, block_ids in step.before.prefix_map.items() if block_id in block_ids)


def _other_evicted(step: RevealedStep) -> str:
    return _key_of(step, step.of_kind(BlockEvicted)[1].block_id)


def _first_that_came(step: RevealedStep) -> str:
    return _key_of(step, 1)


def evicted() -> Exercise:
    """Predict: the hash that is evicted first."""
    return exercise(
        "reading-a-run/evicted",
        "Another run, in a pool of 9 blocks. A is still being answered. B and C have asked something else, and are "
        "done. D has just arrived, and needs four blocks. Which entry of the prefix map is evicted first?",
        play=_one_runs_and_two_are_done,
        truth=_first_evicted,
        about="hash",
        hints=[
            "Only a free block can be evicted, and the queue is taken from its head.",
            "A block's letter in the queue is the entry that leads to it.",
        ],
        mistakes=[
            (
                _other_evicted,
                "That one is evicted second: blocks of a request are freed from its end, so its last one comes first.",
            ),
            (_first_that_came, "That block is A's, and A is being answered: only a free block can be evicted."),
        ],
        edition="nano-vllm+243",
        num_blocks=9,
        block_size=4,
    )


def freeing_order(self: Any, num_entries: int) -> Sequence[int]:
    """Return the indices from the last to the first: the end of a chain is useless without its beginning."""
    return range(num_entries - 1, -1, -1)


def _from_the_front(self: Any, num_entries: int) -> Sequence[int]:
    return range(num_entries)


def _without_the_first(self: Any, num_entries: int) -> Sequence[int]:
    return range(num_entries - 1, 0, -1)


_from_the_front.__name__ = _without_the_first.__name__ = freeing_order.__name__


def _one_request(lab: Lab) -> None:
    lab.add(token_ids=range(9), max_tokens=1, ignore_eos=True)
    lab.run()


def _long_after_short(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=1, ignore_eos=True)
    lab.run()
    lab.add(token_ids=range(100, 122), max_tokens=1, ignore_eos=True)
    lab.run()
    lab.add(token_ids=range(14), max_tokens=1, ignore_eos=True)
    lab.run()


def freeing() -> Exercise:
    """Fill in: the order in which a request's blocks are freed."""
    return exercise(
        "reading-a-run/freeing-order",
        "A request that is done gives its blocks back, one after the other, and blocks freed first are reused first. "
        "In which order should that be, so that as much as possible of its prompt can still be found later? Return "
        "the indices of its `num_entries` table entries in that order.",
        solution=freeing_order,
        workloads=[_one_request, _long_after_short],
        num_lines=1,
        hints=[
            "A look-up goes from the first block on, and ends at the first miss. Which block is worth least?",
            "`range` can count down.",
        ],
        mistakes=[
            (
                _from_the_front,
                "Now the first block of a prompt is lost first, and without it none of the others can be found.",
            ),
            (_without_the_first, "One block is never freed: `range` ends before its second argument."),
        ],
        edition="nano-vllm+243",
        num_blocks=8,
        block_size=4,
    )


class KeepsHitsInTheQueue(BlockPool):
    """A pool that counts a reference, and forgets to take the block out of the free queue."""

    def touch(self, block_ids: Sequence[int]) -> None:
        """Count a reference, and leave the block in the queue."""
        for block_id in block_ids:
            self._journal.record((self._untouch, self.blocks[block_id], None))
            self.blocks[block_id].ref_count += 1


def _hit_and_more(lab: Lab) -> None:
    lab.add(token_ids=range(8), max_tokens=1, ignore_eos=True)
    lab.run()
    lab.add(token_ids=range(20), max_tokens=2, ignore_eos=True)
    lab.step()


def forgotten_queue() -> Exercise:
    """Find the first wrong event: a hit that stays in the free queue."""
    return exercise(
        "reading-a-run/forgotten-queue",
        "A pool has one method that is wrong. B's prompt begins with A's, and finds A's block in the cache. The checks "
        "report several rules at the end of the step. Which event is the first wrong one?",
        broken=KeepsHitsInTheQueue,
        play=_hit_and_more,
        hints=[
            "`.judged.violations` says what is broken, and `.lab.why(block=0)` how that block came to be as it is.",
            "A block that is in use must not be in the free queue. Who should have taken it out?",
        ],
        mistakes=[
            (
                "BlockAllocated",
                "The pool gives away the first block of its queue, as it should. Why was that block still in it?",
            ),
        ],
        num_blocks=6,
        block_size=4,
    )


def who_took(events: list[tuple[str, str, int]], request: str) -> list[str]:
    """Return the requests that allocated a block of this one's after it was freed."""
    freed: set[int] = set()
    found = []
    for kind, name, block_id in events:
        if name == request and kind == "freed":
            freed.add(block_id)
        elif kind == "touched":
            freed.discard(block_id)
        elif kind == "allocated" and block_id in freed:
            freed.remove(block_id)
            found += [] if name in found else [name]
    return found


def _every_taker(events: list[tuple[str, str, int]], request: str) -> list[str]:
    blocks = {block_id for kind, name, block_id in events if (kind, name) == ("freed", request)}
    takers = (name for kind, name, i in events if kind == "allocated" and i in blocks and name != request)
    return [*dict.fromkeys(takers)]


def _also_touched(events: list[tuple[str, str, int]], request: str) -> list[str]:
    freed: set[int] = set()
    found = []
    for kind, name, block_id in events:
        if name == request and kind == "freed":
            freed.add(block_id)
        elif kind in ("allocated", "touched") and block_id in freed:
            freed.remove(block_id)
            found += [] if name in found else [name]
    return found


def taken() -> Exercise:
    """Fill in: a question to the log that no button asks."""
    own = [("allocated", "A", 0), ("allocated", "A", 1), ("freed", "A", 1), ("freed", "A", 0)]
    return exercise(
        "reading-a-run/who-took",
        "Ask the log yourself. `events` are (kind, request, block), oldest first; kinds are 'allocated', 'touched' (a "
        "hit: the content stays) and 'freed'. A's content is lost when a block that A has freed is allocated again; "
        "whoever only touches it keeps it, and frees it as its own. Return the requests that took one of `request`'s "
        "blocks first, in order, each once.",
        solution=who_took,
        cases=[
            ([*own, ("allocated", "B", 1), ("allocated", "C", 0)], "A"),
            ([*own, ("touched", "B", 0), ("allocated", "C", 1)], "A"),
            ([*own, ("allocated", "B", 1), ("freed", "B", 1), ("allocated", "C", 1)], "A"),
            ([*own, ("allocated", "B", 1), ("allocated", "B", 0)], "A"),
            ([*own, ("touched", "B", 0), ("freed", "B", 0), ("allocated", "C", 0)], "B"),
            ([("allocated", "B", 5), *own, ("allocated", "B", 1), ("touched", "C", 0), ("freed", "C", 0)], "A"),
            (own, "A"),
        ],
        num_lines=10,
        hints=[
            "Go through the events once, and remember the blocks that the request has freed and nobody has taken yet.",
            "An allocation ends a block's story, and so does a touch. Take the block off your set in both cases.",
        ],
        mistakes=[
            (
                _every_taker,
                "Only the first one takes A's content. Whoever gets the block later takes another request's.",
            ),
            (_also_touched, "A touch is a hit: the content stays, and is of use. Nobody has taken it."),
        ],
    )


class EmptyFirst(NanoBlockPool):
    """A pool that reuses blocks without content first."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the freed blocks that no look-up can find: they have no keys."""
        return [block_id for block_id in block_ids if not self.blocks[block_id].keys]


class _AllFirst(NanoBlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return list(block_ids)


class _CachedFirst(NanoBlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return [block_id for block_id in block_ids if self.blocks[block_id].keys]


def _chat(lab: Lab) -> None:
    """Two conversations in turns, each with its own beginning, and others in between."""
    for number in range(4):
        for first in (0, 1000):
            lab.add(token_ids=range(first, first + 9 + 4 * number), max_tokens=1, ignore_eos=True)
            lab.run()
        lab.add(token_ids=range(2000 + 100 * number, 2000 + 100 * number + 6), max_tokens=2, ignore_eos=True)
        lab.run()


def _twins_between(lab: Lab) -> None:
    """A question, twins that merge, a text that nobody repeats, and the question again; twice."""
    for round_ in range(2):
        lab.add(token_ids=range(9), max_tokens=1, ignore_eos=True)
        lab.step()
        for _ in range(2):
            lab.add(token_ids=range(100 * round_ + 100, 100 * round_ + 109), max_tokens=4, ignore_eos=True)
        lab.step()
        lab.add(token_ids=range(1000 + 50 * round_, 1015 + 50 * round_), max_tokens=1, ignore_eos=True)
        lab.run()


def race() -> Exercise:
    """Make it better: which freed blocks are reused first."""
    return exercise(
        "reading-a-run/race",
        "Freed blocks go to the tail of the free queue, all alike. `reused_first` may send some of them to its head: "
        "write it so that the same requests compute fewer tokens. `self.blocks[i].keys` are the hashes under which "
        "the map knows block i; a pool derives from `NanoBlockPool` (labengine.core.nano_vllm).",
        solution=EmptyFirst,
        workloads=[_up_to_e, _twins_between, _chat],
        score="tokens computed",
        goal=218,
        num_lines=1,
        hints=[
            "Which of the freed blocks can no look-up ever find?",
            "A block without `keys` has no content for anybody: return those.",
        ],
        mistakes=[
            (
                _AllFirst,
                "All freed blocks at the head: the newest content is lost first, and it is the likeliest to be asked "
                "for again.",
            ),
            (_CachedFirst, "You give away the blocks with content first, and keep the empty ones."),
        ],
        edition="nano-vllm+243",
        num_blocks=10,
        block_size=4,
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "reading-a-run/evicted": evicted,
    "reading-a-run/freeing-order": freeing,
    "reading-a-run/forgotten-queue": forgotten_queue,
    "reading-a-run/who-took": taken,
    "reading-a-run/race": race,
}
