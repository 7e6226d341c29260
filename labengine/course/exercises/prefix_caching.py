"""Exercises of the notebook "Prefix caching"."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

from labengine.core.block_pool import BlockPool
from labengine.core.hash_chain import HashChain
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.phrases import phrases
from labengine.course.predict_exercise import Instance, RevealedStep
from labengine.course.trial import RUN, Act, Workload, plays
from labengine.course.words import course_exercise
from labengine.events import BlockCached, BlockEvicted, ForwardRan, PrefixHit

STORY = "Please tell me a long story about the sea"
POEM = "Write a short poem on rain for my aunt"
LIST = "Give us ten good names for one small cat"


def chain(token_ids: list[int], block_size: int) -> list[int]:
    """Return the toy hash of each full block, computed from its tokens and its parent's hash."""
    hashes, parent = [], 0
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = (31 * parent + sum(token_ids[start : start + block_size])) % 1000
        hashes.append(parent)
    return hashes


def _with_the_partial_one(token_ids: list[int], block_size: int) -> list[int]:
    hashes, parent = [], 0
    for start in range(0, len(token_ids), block_size):
        parent = (31 * parent + sum(token_ids[start : start + block_size])) % 1000
        hashes.append(parent)
    return hashes


course_exercise(
    "prefix-caching/chain",
    solution=chain,
    cases=[
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], 4), ([1, 1, 1, 1], 2), ([5, 6, 7], 4), ([9, 2, 3, 4, 5, 6, 7, 8], 4),
        ([], 4), ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], 2), ([40, 41, 42, 43, 44, 45], 3),
    ],
    num_shown=3,
    num_lines=5,
    mistakes=[
        lambda ids, size: [sum(ids[i : i + size]) % 1000 for i in range(0, len(ids) - size + 1, size)],
        _with_the_partial_one,
    ],
)  # fmt: skip


def num_found(hashes: list[str], cached: list[str], num_tokens: int, block_size: int) -> int:
    """Return the number of tokens in the blocks before the first miss, without the prompt's last token."""
    found = 0
    for block_hash in hashes[: (num_tokens - 1) // block_size]:
        if block_hash not in cached:
            break
        found += block_size
    return found


course_exercise(
    "prefix-caching/longest-hit",
    solution=num_found,
    cases=[
        (["p", "q"], ["p", "q"], 9, 4), (["p", "q"], ["q"], 9, 4), (["p", "q"], ["p", "q"], 8, 4),
        (["p", "q", "r"], ["r", "p"], 14, 4), ([], ["p"], 3, 4), (["p", "q", "r"], ["r", "q", "p", "s"], 12, 4),
        (["p"], ["p"], 17, 16), (["p", "q"], [], 5, 2),
    ],
    num_shown=3,
    num_lines=5,
    mistakes=[
        lambda hashes, cached, n, size: size * sum(one in cached for one in hashes[: (n - 1) // size]),
        lambda hashes, cached, n, size: num_found(hashes, cached, n + 1, size),
        lambda hashes, cached, n, size: size * len({*hashes} & {*cached}),
        lambda hashes, cached, n, size: min(num_found(hashes, cached, n + 1, size), n - 1),
        lambda hashes, cached, n, size: num_found(hashes, cached, n, size) // size,
    ],
)  # fmt: skip


def _asked_at_once(one: str, other: str, again: str, new: str) -> Workload:
    return plays((one, 1), RUN, (other, 1), RUN, (again, 1), (new, 1))


def _others_at_once(random: Random) -> Instance:
    one, other, new = phrases(random, *random.choices(range(8, 12), k=2), 9)
    place = random.randrange(2)
    task = (
        f"A and then B asked; both are done. Now C asks {'AB'[place]}'s question, word for word, and D something new, "
        "which needs three blocks. The next step admits both, C first. Which entry of the prefix map is evicted "
        "first?"
    )
    return Instance(task, _asked_at_once(one, other, (one, other)[place], new), keeps_mistakes=False)


def _first_of_poem(step: RevealedStep) -> str:
    """Return the other entry of the chain that is evicted."""
    queue = step.before.free_queue
    evicted = step.first(BlockEvicted).block_id
    return step.entry_of(queue[queue.index(evicted) + 1])


def _nearest_the_head(step: RevealedStep) -> str:
    """Return the entry whose block is nearest the head of the queue before the step."""
    return step.entry_of(next(i for i in step.before.free_queue if step.before.blocks[i].block_hashes))


course_exercise(
    "prefix-caching/evicted",
    play=_asked_at_once(STORY, POEM, STORY, LIST),
    truth=lambda step: step.entry_of(step.first(BlockEvicted).block_id),
    another=_others_at_once,
    views=("map", "queue"),
    about="hash",
    num_blocks=6,
    mistakes=[_nearest_the_head, lambda step: step.entry_of(step.first(PrefixHit).block_ids[0][0]), _first_of_poem],
)


class DocumentsFirst(BlockPool):
    """A pool that reuses the blocks of long texts first: no request repeats them."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return all blocks of a long text, otherwise the empty ones."""
        return block_ids if len(block_ids) > 4 else super().reused_first(block_ids)


class _QuestionsFirst(BlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return block_ids if len(block_ids) <= 4 else super().reused_first(block_ids)


def _with_documents(*questions: str, documents: int, rounds: int) -> Workload:
    """Return a workload: each round sends the questions, then documents that are never repeated."""
    starts = iter(range(1000, 1000 * (rounds * documents + 1), 1000))
    acts: list[Act] = []
    for _ in range(rounds):
        asked: list[Act] = [(question, 1) for question in questions]
        asked += [(range(start, start + 18), 1) for start in islice(starts, documents)]
        acts += [act for one in asked for act in (one, RUN)]
    return plays(*acts)


course_exercise(
    "prefix-caching/in-the-way",
    solution=DocumentsFirst,
    workloads=[
        _with_documents(STORY, POEM, documents=2, rounds=4),
        _with_documents(LIST, documents=3, rounds=5),
        _with_documents(POEM, LIST, documents=1, rounds=4),
    ],
    score="tokens found",
    goal=128,
    num_lines=1,
    mistakes=[lambda self, block_ids: block_ids, lambda self, block_ids: [], _QuestionsFirst],
    num_blocks=9,
)


class ForgetsParent(HashChain):
    """A hash of the block's tokens alone."""

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return the hash of the tokens, without the parent's hash."""
        return hashlib.sha256(array("q", token_ids).tobytes()).digest()


course_exercise(
    "prefix-caching/first-wrong",
    broken=ForgetsParent,
    play=plays(("Never ever say that you saw the cat sleep today", 2), RUN, (" you saw the cat yesterday", 2), RUN),
    mistakes=[nth_event(BlockCached, 1), nth_event(PrefixHit, -1), nth_event(ForwardRan, 2)],
    edition="nano-vllm",
    num_blocks=8,
)


def num_shareable(one: dict[str, Any], other: dict[str, Any], block_size: int) -> int:
    """Return the full blocks before the first position where words or pictures differ; 0 under different keys."""
    if (one["adapter"], one["salt"]) != (other["adapter"], other["salt"]):
        return 0
    length = 0
    for position, (word, same) in enumerate(zip(one["words"], other["words"], strict=False)):
        if word != same or one["pictures"].get(position) != other["pictures"].get(position):
            break
        length += 1
    return length // block_size


def _asked(words: str, adapter: str = "", salt: str = "", **pictures: str) -> dict[str, Any]:
    """Return a request; pictures: by name, the positions of their placeholders, "2 3"."""
    placed = {int(position): name for name, positions in pictures.items() for position in positions.split()}
    return {"words": words.split(), "adapter": adapter, "salt": salt, "pictures": placed}


LOOK = "look at ▢ ▢ and tell me what"
course_exercise(
    "prefix-caching/shareable",
    solution=num_shareable,
    cases=[
        (_asked(LOOK, cat="2 3"), _asked(LOOK, cat="2 3"), 4),
        (_asked(LOOK, cat="2 3"), _asked(LOOK, dog="2 3"), 2),
        (_asked("one two three four", salt="me"), _asked("one two three four"), 2),
        (_asked("one two three four", adapter="legal"), _asked("one two three four", adapter="drafts"), 2),
        (_asked("one two three four five", adapter="x"), _asked("one two six four five", adapter="x"), 2),
        (_asked(LOOK + " you ▢", cat="2 3", dog="9"), _asked(LOOK + " you ▢", cat="2 3 9"), 4),
        (_asked("one two three"), _asked("one two three"), 4),
        (_asked(LOOK, adapter="x", salt="me", cat="2 3"), _asked(LOOK, adapter="x", salt="me", cat="2 3"), 3),
    ],
    num_shown=3,
    num_lines=8,
    mistakes=[
        lambda one, other, block_size: num_shareable({**one, "pictures": {}}, {**other, "pictures": {}}, block_size),
        lambda one, other, block_size: num_shareable({**one, "salt": ""}, {**other, "salt": ""}, block_size),
        lambda one, other, block_size: num_shareable({**one, "adapter": ""}, {**other, "adapter": ""}, block_size),
        lambda one, other, size: num_shareable(one, other, size) if one["pictures"] == other["pictures"] else 0,
    ],
)
