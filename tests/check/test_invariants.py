"""A sound snapshot, and every way to break it by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from check.watched import HYBRID, watched
from labengine.check.invariants import check_invariants
from labengine.record.snapshot import BlockState, Snapshot, map_key


@pytest.fixture(scope="module")
def sound() -> Snapshot:
    """Requests 0 and 1 share their first blocks, of both groups; request 2 has finished, and its blocks are cached."""
    setup = watched(24, HYBRID)
    setup.add(*range(50, 60), max_tokens=1)
    setup.run()
    for _ in range(2):
        setup.add(*range(10), max_tokens=9)
        setup.engine.step()
    return setup.engine.snapshot()


def block(snapshot: Snapshot, block_id: int, **changes: Any) -> Snapshot:
    """With one block otherwise."""
    blocks = list(snapshot.blocks)
    blocks[block_id] = replace(blocks[block_id], **changes)
    return replace(snapshot, blocks=tuple(blocks))


def request(snapshot: Snapshot, request_id: int, **changes: Any) -> Snapshot:
    """With one request otherwise."""
    changed = replace(snapshot.requests[request_id], **changes)
    return replace(snapshot, requests=snapshot.requests | {request_id: changed})


def table(snapshot: Snapshot, request_id: int, group: int, index: int, block_id: int) -> Snapshot:
    """With one entry of one table otherwise."""
    tables = [list(one) for one in snapshot.requests[request_id].block_tables]
    tables[group][index] = block_id
    return request(snapshot, request_id, block_tables=tuple(map(tuple, tables)))


def entry(snapshot: Snapshot, request_id: int, group: int, index: int) -> int:
    return snapshot.requests[request_id].block_tables[group][index]


def broken(snapshot: Snapshot, **options: Any) -> dict[str, set[int]]:
    """The blocks that each broken rule names."""
    found: dict[str, set[int]] = {}
    for violation in check_invariants(snapshot, **options):
        found.setdefault(violation.rule, set()).update(violation.block_ids)
    return found


def test_a_sound_snapshot_breaks_no_rule(sound: Snapshot) -> None:
    assert check_invariants(sound, merges=True) == []
    assert entry(sound, 1, 0, 0) == entry(sound, 2, 0, 0) != entry(sound, 1, 1, 0), "the story has changed"
    assert sound.cached_free and sound.requests[0].status == "finished"


def test_a_free_block_that_is_not_queued_has_leaked(sound: Snapshot) -> None:
    free = sound.free_queue[0]
    assert broken(replace(sound, free_queue=sound.free_queue[1:])) == {"partition": {free}}


def test_a_queued_block_is_not_counted_on(sound: Snapshot) -> None:
    used = entry(sound, 1, 0, 0)
    assert broken(replace(sound, free_queue=(used, *sound.free_queue))) == {"partition": {used}, "held": {used}}


def test_nobody_is_queued_twice(sound: Snapshot) -> None:
    free = sound.free_queue[0]
    assert broken(replace(sound, free_queue=(*sound.free_queue, free))) == {"partition": {free}}


def test_a_block_that_pads_tables_is_neither_free_nor_used(sound: Snapshot) -> None:
    free = sound.free_queue[0]
    padded = replace(sound, null_block=free)
    assert broken(padded) == {"partition": {free}}
    assert broken(replace(padded, free_queue=sound.free_queue[1:])) == {}


def test_a_ref_count_is_the_number_of_table_entries(sound: Snapshot) -> None:
    shared = entry(sound, 1, 0, 0)
    assert sound.blocks[shared].ref_count == 2
    assert broken(block(sound, shared, ref_count=3)) == {"ref_count": {shared}}
    assert broken(block(sound, shared, ref_count=1)) == {"ref_count": {shared}}


def test_a_block_in_the_tables_of_two_groups_is_found(sound: Snapshot) -> None:
    one, other = entry(sound, 1, 0, 2), entry(sound, 1, 1, 2)
    doubled = block(table(sound, 1, 1, 2, one), one, ref_count=2)
    doubled = replace(block(doubled, other, ref_count=0), free_queue=(*sound.free_queue, other))
    assert broken(doubled) == {"one_entry": {one}}


def test_a_block_twice_in_a_table_is_found(sound: Snapshot) -> None:
    one, other = entry(sound, 1, 0, 1), entry(sound, 1, 0, 2)
    doubled = block(table(sound, 1, 0, 2, one), one, ref_count=sound.blocks[one].ref_count + 1)
    doubled = replace(block(doubled, other, ref_count=0), free_queue=(*sound.free_queue, other))
    assert broken(doubled) == {"one_entry": {one}}


def test_a_block_of_a_running_request_is_not_free(sound: Snapshot) -> None:
    own = entry(sound, 1, 0, 2)
    freed = block(replace(sound, free_queue=(*sound.free_queue, own)), own, ref_count=0)
    assert broken(freed) == {"held": {own}, "ref_count": {own}}


def test_a_finished_request_holds_nothing(sound: Snapshot) -> None:
    held = {block_id for one in sound.requests[1].block_tables for block_id in one}
    assert broken(request(sound, 1, status="finished")) == {"held": held}


def test_the_map_leads_to_blocks_that_have_the_hash(sound: Snapshot) -> None:
    cached = entry(sound, 1, 0, 0)
    assert broken(block(sound, cached, grouped_hashes=())) == {"prefix_map": {cached}}
    ((group, block_hash),) = sound.blocks[cached].grouped_hashes
    elsewhere = sound.free_queue[0]
    misled = sound.prefix_map | {map_key(group, bytes.fromhex(block_hash)): (cached, elsewhere)}
    assert broken(replace(sound, prefix_map=misled)) == {"prefix_map": {elsewhere}}


def test_two_live_blocks_of_one_content_are_found_where_an_edition_merges(sound: Snapshot) -> None:
    cached, free = entry(sound, 1, 0, 0), sound.free_queue[0]
    copy = replace(sound.blocks[cached], block_id=free, ref_count=1)
    blocks: list[BlockState] = list(sound.blocks)
    blocks[free], blocks[cached] = copy, replace(sound.blocks[cached], ref_count=1)
    doubled = replace(table(sound, 2, 0, 0, free), blocks=tuple(blocks), free_queue=sound.free_queue[1:])
    assert broken(doubled) == {}
    assert broken(doubled, merges=True) == {"duplicate": {cached, free}}


def test_equal_hashes_after_different_prefixes_are_no_duplicates(sound: Snapshot) -> None:
    """With a hash that is too short they happen; such blocks must not be merged."""
    one, other = entry(sound, 1, 0, 1), entry(sound, 1, 0, 0)
    collided = block(sound, one, grouped_hashes=sound.blocks[other].grouped_hashes)
    assert "duplicate" not in broken(collided, merges=True)


@pytest.mark.parametrize("null_block", [-1, 0])
def test_the_window_of_the_next_token_is_covered(sound: Snapshot, null_block: int) -> None:
    """Group 1's window is 8 tokens: the token at position 11 attends to 4 and later ones, in entries 1 and 2."""
    setup = watched(24, HYBRID, "labengine" if null_block else "vllm")
    setup.add(*range(11), max_tokens=9)
    setup.steps(1)
    snapshot = setup.engine.snapshot()
    assert broken(snapshot) == {} and snapshot.null_block == null_block
    for index, is_needed in ((0, False), (1, True), (2, True)):
        dropped = entry(snapshot, 0, 1, index)
        freed = block(table(snapshot, 0, 1, index, null_block), dropped, ref_count=0)
        freed = replace(freed, free_queue=(*snapshot.free_queue, dropped))
        assert broken(freed) == ({"window": set()} if is_needed else {})


def test_a_full_group_drops_nothing(sound: Snapshot) -> None:
    dropped = entry(sound, 1, 0, 2)
    freed = block(table(sound, 1, 0, 2, -1), dropped, ref_count=0)
    assert broken(replace(freed, free_queue=(*sound.free_queue, dropped))) == {"window": set()}


def test_a_table_holds_all_computed_tokens(sound: Snapshot) -> None:
    assert sound.requests[1].num_computed_tokens == 11
    assert broken(request(sound, 1, num_computed_tokens=13)) == {"window": set()}
