"""Late merge on one group and on several: equal blocks become one, in each group for itself."""

from __future__ import annotations

from driving import assert_sound, recorded, small_engine
from labengine.config import SamplingParams
from labengine.core.request import Request
from labengine.events import BlockFreed, BlockMerged
from labengine.record.hooks import Hooks
from workbench import Workbench, full, window

PROMPT = list(range(100, 108))
HYBRID = [full(4), window(4, 4)]


def computed_together(core: Workbench, *prompts: list[int]) -> list[Request]:
    """Requests of one step: all get their blocks before any is computed."""
    requests = [core.request(prompt) for prompt in prompts]
    for request in requests:
        core.admit(request)
    for request in requests:
        core.compute(request)
    return requests


def test_the_second_of_two_equal_prompts_takes_the_firsts_blocks_in_each_group() -> None:
    core = Workbench(HYBRID)
    first, second = computed_together(core, PROMPT, PROMPT)
    assert first.block_tables == second.block_tables == [[0, 1], [2, 3]]
    assert [core.pool.blocks[i].ref_count for i in range(8)] == [2, 2, 2, 2, 0, 0, 0, 0]


def test_the_copies_are_free_at_the_head_for_they_were_never_registered() -> None:
    core = Workbench(HYBRID, num_blocks=10)
    computed_together(core, PROMPT, PROMPT)
    assert core.queue == [7, 6, 5, 4, 8, 9]


def test_each_merge_is_reported_before_its_copy_is_freed() -> None:
    core = Workbench(HYBRID)
    events = recorded(core.hooks)
    computed_together(core, PROMPT, PROMPT)
    relevant = [event for event in events if isinstance(event, (BlockMerged, BlockFreed))]
    assert [type(event) for event in relevant] == [BlockMerged, BlockFreed] * 4
    merges = [event for event in relevant if isinstance(event, BlockMerged)]
    assert [(m.group, m.index, m.block_id, m.into_block_id, m.ref_count) for m in merges] == [
        (0, 0, 4, 0, 2),
        (0, 1, 5, 1, 2),
        (1, 0, 6, 2, 2),
        (1, 1, 7, 3, 2),
    ]


def test_only_what_is_equal_from_the_start_is_merged() -> None:
    core = Workbench(HYBRID)
    first, second = computed_together(core, PROMPT, [*PROMPT[:4], 1, 2, 3, 4])
    assert [table[0] for table in first.block_tables] == [table[0] for table in second.block_tables]
    assert [table[1] for table in second.block_tables] == [5, 7]


def test_equal_blocks_of_two_groups_are_not_the_same() -> None:
    """Other layers, other KV."""
    core = Workbench([full(4), full(4)])
    (request,) = computed_together(core, PROMPT)
    assert request.block_tables == [[0, 1], [2, 3]]


def test_a_block_that_the_first_has_dropped_already_is_kept_by_the_second() -> None:
    """No request holds it: it is free, and may be allocated at any moment."""
    core = Workbench([window(4, 4)])
    first, second = core.request(PROMPT), core.request(PROMPT)
    core.admit(first)
    core.admit(second)
    core.compute(first)
    core.decode(first)
    assert first.block_tables[0][0] == -1
    core.compute(second)
    assert second.block_tables == [[2, 1]], "the live block is shared, the free one is not"


def test_the_second_drops_a_merged_block_without_harm_to_the_first() -> None:
    core = Workbench([window(4, 4)])
    first, second = computed_together(core, PROMPT, PROMPT)
    core.decode(second)
    assert (first.block_tables, second.block_tables) == ([[0, 1]], [[-1, 1, 3]])
    assert [core.pool.blocks[i].ref_count for i in (0, 1)] == [1, 2]


def test_blocks_of_different_sizes_merge_each_when_it_is_full() -> None:
    core = Workbench([full(2), full(4)])
    first, second = computed_together(core, PROMPT[:6], PROMPT[:6])
    assert [table[:2] for table in second.block_tables] == [first.block_tables[0][:2], [first.block_tables[1][0], 9]]
    assert second.block_tables[0][2] != first.block_tables[0][2], "a hit would end at 4: nothing behind it is cached"


def test_twins_decode_side_by_side_in_the_blocks_of_one() -> None:
    """They go on alike: every block that both fill becomes one, and peak use is one request's and two open blocks."""
    engine = small_engine(
        20, 4, hooks=Hooks(strict=True), groups=tuple(HYBRID), next_token=lambda request_id, position: position
    )
    for _ in range(2):
        engine.add(PROMPT, SamplingParams(max_tokens=9))
    while engine.step():
        assert_sound(engine.snapshot(), "labengine")
        one, two = (engine.snapshot().requests[i] for i in range(2))
        num_full = one.num_computed_tokens // 4
        assert [t[:num_full] for t in one.block_tables] == [t[:num_full] for t in two.block_tables]
