"""Exercises of the notebook "A hit is not yours until you touch it"."""

from __future__ import annotations

from typing import Any

from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.course.words import course_exercise
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
    """Return the settings of the report's lab: two groups, and a tier that fills any blocks it gets."""
    from labengine.scenarios.vllm_44409_columns import UnguardedStore

    return {**bug("vllm-44409").settings_for("simulated"), "external": UnguardedStore}


def _interleaved() -> Any:
    """Return the parts of the old order: one group after the other."""
    return bug("vllm-44409").column("interleaved").all_parts


course_exercise(
    "two-phases/allocate",
    solution=allocate_computed,
    workloads=[_stage, _long_prompt, _longer_prompt],
    num_lines=6,
    mistakes=[_group_by_group, _hits_alone],
    edition="vllm",
    **_settings(),
)


def _hung_up_and_long_prompt(lab: Lab) -> None:
    """Abort a request before its first step, so that event numbers differ from the report's."""
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


course_exercise(
    "two-phases/first-wrong",
    broken=_interleaved(),
    play=_hung_up_and_long_prompt,
    mistakes=[_evicted_before_touch, "BlocksLoaded"],
    **_settings(),
)


def _before_long_prompt(lab: Lab) -> None:
    scenario: Any = bug("vllm-44409")
    scenario.set_the_stage(lab)
    lab.add(token_ids=scenario.prompts(lab)[0], max_tokens=1)


course_exercise(
    "two-phases/fresh-block",
    play=_before_long_prompt,
    truth=lambda step: next(event.block_id for event in step.of_kind(BlockAllocated) if event.group == 1),
    about="block",
    mistakes=[
        lambda step: step.first(BlockAllocated).block_id,
        lambda step: step.of_kind(BlockAllocated)[1].block_id,
        lambda step: step.before.free_queue[0],
    ],
    parts=_interleaved(),
    **_settings(),
)


course_exercise(
    "two-phases/evicted",
    play=_before_long_prompt,
    truth=lambda step: step.entry_of(step.first(BlockEvicted).block_id),
    about="hash",
    mistakes=[
        lambda step: step.entry_of(next(i for i in step.before.free_queue if step.before.blocks[i].block_hashes))
    ],
    parts=_interleaved(),
    **_settings(),
)


def tables_of(queue: list[int], hits: list[list[int]], num_fresh: int) -> list[list[int]]:
    """Take all hits out of the queue, then give each group fresh blocks from the head."""
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


course_exercise(
    "two-phases/on-paper",
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
    mistakes=[
        _in_one_phase,
        lambda queue, hits, n: [[*group, *queue[i * n : (i + 1) * n]] for i, group in enumerate(hits)],
    ],
)
