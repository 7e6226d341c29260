"""Exercises of the notebook "A hit is not yours until you touch it"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.course.base import Exercise
from labengine.course.exercise import exercise
from labengine.course.predict_exercise import RevealedStep
from labengine.events import BlockAllocated, BlockEvicted, BlockTouched
from labengine.lab import Lab
from labengine.scenarios import bug


def allocate_computed(self: Any, request: Request, hit: Hit, num_external: int) -> None:
    """Touch the hits of all groups; then take fresh blocks for all groups."""
    num_computed = hit.num_tokens + num_external
    for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
        group.add_hit(request, block_ids, num_computed)
    if num_external:
        for group in self.groups:
            group.add_external(request, num_computed)


def _group_by_group(self: Any, request: Request, hit: Hit, num_external: int) -> None:
    num_computed = hit.num_tokens + num_external
    for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
        group.add_hit(request, block_ids, num_computed)
        if num_external:
            group.add_external(request, num_computed)


def _hits_alone(self: Any, request: Request, hit: Hit, num_external: int) -> None:
    for group, block_ids in zip(self.groups, hit.block_ids, strict=True):
        group.add_hit(request, block_ids, hit.num_tokens + num_external)


_group_by_group.__name__ = _hits_alone.__name__ = allocate_computed.__name__


def _stage(lab: Lab) -> None:
    scenario: Any = bug("vllm-44409")
    scenario.set_the_stage(lab)


def _long_prompt(lab: Lab) -> None:
    scenario: Any = bug("vllm-44409")
    scenario.play_long(lab)


def _longer_prompt(lab: Lab) -> None:
    scenario: Any = bug("vllm-44409")
    scenario.play(lab)


def _settings() -> dict[str, Any]:
    """Return the lab of the report: two groups, and a tier that fills whatever blocks it is given."""
    from labengine.scenarios.vllm_44409_columns import UnguardedStore

    return {**bug("vllm-44409").settings_for("simulated"), "external": UnguardedStore}


def _interleaved() -> Any:
    """Return the parts of the old order: one group after the other."""
    return bug("vllm-44409").column("interleaved").parts


def allocate() -> Exercise:
    """Fill in: two phases."""
    return exercise(
        "two-phases/allocate",
        "Write `allocate_computed` so that no block comes into two tables. `hit.block_ids` are the hits of each group, "
        "not yet touched. `group.add_hit(request, block_ids, num_computed)` touches a group's hits; "
        "`group.add_external(request, num_computed)` takes its fresh blocks for what the tier delivers, if anything. "
        "`num_computed` is `hit.num_tokens + num_external`.",
        solution=allocate_computed,
        workloads=[_stage, _long_prompt, _longer_prompt],
        num_lines=6,
        hints=[
            "When may a fresh block be taken, so that it cannot be another group's hit?",
            "Two loops over the groups, one after the other.",
        ],
        mistakes=[
            (
                _group_by_group,
                "This is the old order. The first group takes fresh blocks while the second one's hits are still free.",
            ),
            (_hits_alone, "Nobody takes blocks for what the tier delivers: the `num_external` tokens have no place."),
        ],
        edition="vllm",
        **_settings(),
    )


def _hung_up_and_long_prompt(lab: Lab) -> None:
    """Abort a request before its first step: the events have other numbers than those of the report."""
    lab.abort(lab.add(token_ids=range(3), max_tokens=1))
    _long_prompt(lab)


def _evicted_before_touch(lab: Lab) -> int:
    """Return the last eviction before a block has two references."""
    assert lab.timeline is not None
    evicted = 0
    for number, event in enumerate(lab.timeline.events()):
        if isinstance(event, BlockEvicted):
            evicted = number
        elif isinstance(event, BlockTouched) and event.ref_count > 1:
            break
    return evicted


def first_wrong() -> Exercise:
    """Find the first wrong event: one block in two tables."""
    return exercise(
        "two-phases/first-wrong",
        "The old order, one group after the other. Here A's client hangs up at once, so that requests and events have "
        "other names and numbers than above. H's prompt is found in part in the pool, and the rest in the tier. Which "
        "event puts the first block into a second table?",
        broken=_interleaved(),
        because=(
            "The window group touches #4, which it has found. The full group has taken the same block as a "
            "fresh one just before: it is in both tables, with ref count 2."
        ),
        play=_hung_up_and_long_prompt,
        hints=[
            "Look at step 3, the schedule phase. A block in two tables has a ref count of 2.",
            "The full group takes fresh blocks first. Then the window group touches its hits.",
        ],
        mistakes=[
            (
                _evicted_before_touch,
                "The pool forgets what a free block held, as it must, and no table named that block yet.",
            ),
            (
                "BlocksLoaded",
                "The tier fills the blocks that it is given. Who gave it a block that another table names?",
            ),
        ],
        **_settings(),
    )


def _first_taken(step: RevealedStep) -> int:
    return step.first(BlockAllocated).block_id


def _second_taken(step: RevealedStep) -> int:
    return step.of_kind(BlockAllocated)[1].block_id


def _first_of_window_group(step: RevealedStep) -> int:
    return next(event.block_id for event in step.of_kind(BlockAllocated) if event.group == 1)


def _head_of_queue(step: RevealedStep) -> int:
    return step.before.free_queue[0]


def _before_long_prompt(lab: Lab) -> None:
    scenario: Any = bug("vllm-44409")
    scenario.set_the_stage(lab)
    lab.add(token_ids=scenario.prompts(lab)[0], max_tokens=1)


def fresh_block() -> Exercise:
    """Predict: the window group's first fresh block, in the old order."""
    return exercise(
        "two-phases/fresh-block",
        "The old order: the full group touches its hits, #1 and #2, and takes two fresh blocks. Then the window group "
        "does the same. Which fresh block does the window group take first?",
        play=_before_long_prompt,
        truth=_first_of_window_group,
        about="block",
        hints=[
            "Write down the free queue and cross out the full group's hits. Its two fresh blocks are at the head then.",
            "The window group's hits are #4 and #5. Are they still in the queue?",
        ],
        mistakes=[
            (_first_taken, "That one goes to the full group: it is served first, and takes two."),
            (
                _second_taken,
                "The full group has taken that one too, though it is a hit of the window group. That is the bug.",
            ),
            (
                _head_of_queue,
                "That block is at the head now. It is one of the full group's own hits: touched, it leaves the queue.",
            ),
        ],
        parts=_interleaved(),
        **_settings(),
    )


def _first_evicted(step: RevealedStep) -> str:
    return _key_of(step, step.first(BlockEvicted).block_id)


def _oldest_in_queue(step: RevealedStep) -> str:
    return _key_of(step, next(i for i in step.before.free_queue if step.before.blocks[i].block_hashes))


def _key_of(step: RevealedStep, block_id: int) -> str:
    return next(key for key, block_ids in step.before.prefix_map.items() if block_id in block_ids)


def evicted() -> Exercise:
    """Predict: the entry of the map that the old order loses first."""
    return exercise(
        "two-phases/evicted",
        "The same moment, the old order. The full group's first fresh block holds something that a look-up could find. "
        "Which entry of the prefix map is lost with it?",
        play=_before_long_prompt,
        truth=_first_evicted,
        about="hash",
        hints=[
            "Which block is it? The full group's own hits, #1 and #2, leave the queue first.",
            "An entry begins with its group: 0 is the full one, 1 the one with the window. The pool has both groups' "
            "blocks in one queue.",
        ],
        mistakes=[
            (
                _oldest_in_queue,
                "That is what the head of the queue holds now. It is the full group's own hit, and is touched first.",
            ),
        ],
        parts=_interleaved(),
        **_settings(),
    )


def tables_of(queue: list[int], hits: list[list[int]], num_fresh: int) -> list[list[int]]:
    """Take all hits out of the queue; then give each group its fresh blocks from the head."""
    touched = {block_id for group in hits for block_id in group}
    free = [block_id for block_id in queue if block_id not in touched]
    tables = []
    for number, group in enumerate(hits):
        tables.append([*group, *free[number * num_fresh : (number + 1) * num_fresh]])
    return tables


def _in_one_phase(queue: list[int], hits: list[list[int]], num_fresh: int) -> list[list[int]]:
    free, tables = list(queue), []
    for group in hits:
        free = [block_id for block_id in free if block_id not in group]
        tables.append([*group, *free[:num_fresh]])
        free = free[num_fresh:]
    return tables


def _without_touching(queue: list[int], hits: list[list[int]], num_fresh: int) -> list[list[int]]:
    return [[*group, *queue[i * num_fresh : (i + 1) * num_fresh]] for i, group in enumerate(hits)]


def on_paper() -> Exercise:
    """Fill in: both phases, on lists."""
    return exercise(
        "two-phases/on-paper",
        "The allocation without an engine. `queue` is the free queue, its head first; `hits` are the hits of each "
        "group, of which some are in the queue and some are in use; each group takes `num_fresh` fresh blocks from the "
        "head. Return the table of each group: its hits, then its fresh blocks. No block may stand in two tables, and "
        "`queue` stays as it is.",
        solution=tables_of,
        cases=[
            ([2, 1, 5, 4, 6, 3, 7, 8], [[1, 2], [4, 5]], 2),
            ([4, 6, 5, 7], [[1], [4]], 1),
            ([1, 2, 3, 4, 5, 6], [[1], [2], [3]], 1),
            ([3, 9, 4, 8, 7], [[5, 6], [3, 4]], 1),
            ([7, 8, 9, 1], [[], [8]], 1),
            ([4, 3, 2, 1, 6, 5], [[6], [5]], 2),
        ],
        num_lines=5,
        hints=[
            "First phase: which blocks leave the queue before anybody takes a fresh one?",
            "Second phase: what is left of the queue is given out from its head, group after group.",
        ],
        mistakes=[
            (_in_one_phase, "This is the old order: a group takes fresh blocks that are another group's hits."),
            (_without_touching, "A hit that stays in the queue is taken as a fresh block, even by its own group."),
        ],
    )


EXERCISES: Mapping[str, Callable[[], Exercise]] = {
    "two-phases/fresh-block": fresh_block,
    "two-phases/evicted": evicted,
    "two-phases/first-wrong": first_wrong,
    "two-phases/on-paper": on_paper,
    "two-phases/allocate": allocate,
}
