"""Snapshots: frozen, plain, and read from the core without going through its events."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import pytest

from checkout import ROOT
from driving import TOKEN_BUDGET_EDITIONS, small_engine
from labengine.config import SamplingParams
from labengine.core.proposer import NGram
from labengine.engine.workload import simulate
from labengine.record.snapshot import map_key
from workbench import full, window

PROMPT = list(range(10))
LONG = SamplingParams(max_tokens=8)


def test_a_snapshot_is_frozen_and_does_not_follow_the_engine() -> None:
    engine = small_engine()
    engine.add(PROMPT, LONG)
    engine.step()
    before = engine.snapshot()
    plain = before.to_dict()
    engine.step()
    assert before.to_dict() == plain
    assert engine.snapshot() != before
    with pytest.raises(FrozenInstanceError):
        before.step = 7  # type: ignore[misc]


def test_equal_states_are_equal_snapshots() -> None:
    engines = [small_engine(), small_engine()]
    for engine in engines:
        engine.add(PROMPT, LONG)
        engine.step()
    assert engines[0].snapshot() == engines[1].snapshot()


def test_full_blocks_have_tokens_and_hash_and_the_last_one_neither() -> None:
    engine = small_engine()
    engine.add(PROMPT, LONG)
    engine.step()
    snapshot = engine.snapshot()
    first, second, last = (snapshot.blocks[i] for i in snapshot.requests[0].block_tables[0])
    assert (first.token_ids, second.token_ids, last.token_ids) == ((0, 1, 2, 3), (4, 5, 6, 7), ())
    assert [len(b.block_hashes) for b in (first, second, last)] == [1, 1, 0]
    assert snapshot.prefix_map == {f"0:{b.block_hashes[0]}": (b.block_id,) for b in (first, second)}
    assert [b.owners for b in snapshot.blocks[:4]] == [(0,), (0,), (0,), ()]


def test_owners_are_all_sharers() -> None:
    engine = small_engine()
    for _ in range(2):
        engine.add(PROMPT, LONG)
        engine.step()
    owners = [block.owners for block in engine.snapshot().blocks[:4]]
    assert owners == [(0, 1), (0, 1), (0,), (1,)]


def test_counts_used_blocks() -> None:
    engine = small_engine(8)
    assert engine.snapshot().num_used_blocks == 0
    engine.add(PROMPT, LONG)
    engine.step()
    assert engine.snapshot().num_used_blocks == 3


def test_a_finished_request_leaves_cached_free_blocks() -> None:
    engine = small_engine()
    engine.add(PROMPT, SamplingParams(max_tokens=1))
    engine.step()
    snapshot = engine.snapshot()
    assert set(snapshot.cached_free) == set(snapshot.prefix_map)
    assert list(snapshot.cached_free) == sorted(snapshot.cached_free)
    assert len(snapshot.cached_free) == 2
    assert snapshot.requests[0].num_computed_tokens == 0


@pytest.mark.parametrize(("edition", "num_lost"), [("nano-vllm", 2), ("nano-vllm+243", 0), ("labengine", 0)])
def test_two_equal_prompts_lose_blocks_in_nano_vllm_only(edition: str, num_lost: int) -> None:
    engine = small_engine(edition=edition)
    engine.add(PROMPT, LONG)
    engine.add(PROMPT, LONG)
    engine.step()
    snapshot = engine.snapshot()
    assert len(snapshot.lost_blocks) == num_lost
    assert snapshot.num_used_blocks == 4 + num_lost
    assert set(snapshot.lost_blocks) <= set(snapshot.requests[0].block_tables[0])


def test_a_block_that_only_another_contents_look_up_finds_is_lost() -> None:
    engine = small_engine()
    engine.add(PROMPT, LONG)
    engine.step()
    snapshot = engine.snapshot()
    (block_id,) = next(iter(snapshot.prefix_map.values()))
    assert snapshot.lost_blocks == ()
    assert block_id in replace(snapshot, prefix_map={"0:00": (block_id,)}).lost_blocks


def test_map_keys_are_group_and_hex() -> None:
    assert map_key(2, b"\x00\xff") == "2:00ff"


def test_a_snapshot_inside_a_step_shows_the_step() -> None:
    engine = small_engine()
    engine.add(PROMPT, LONG)
    phases = engine.phases()
    next(phases)
    assert (engine.snapshot().step, engine.snapshot().num_used_blocks) == (1, 3)


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_what_left_the_window_is_a_null_entry_that_nobody_owns(edition: str) -> None:
    engine = small_engine(12, 4, edition, groups=(full(4), window(4, 4)))
    engine.add(PROMPT, LONG)
    engine.step()
    engine.step()
    snapshot = engine.snapshot()
    null_block = snapshot.null_block
    assert [i == null_block for i in snapshot.requests[0].block_tables[1]] == [True, False, False]
    assert [block.block_id for block in snapshot.blocks if block.owners] == sorted(
        {i for table in snapshot.requests[0].block_tables for i in table} - {null_block}
    )
    assert [(g.kind, g.block_size, g.window) for g in snapshot.groups] == [("full", 4, None), ("sliding_window", 4, 4)]


def test_the_null_block_of_edition_vllm_is_neither_free_nor_used() -> None:
    engine = small_engine(8, 4, "vllm")
    snapshot = engine.snapshot()
    assert (len(snapshot.blocks), len(snapshot.free_queue), snapshot.num_used_blocks) == (9, 8, 0)
    assert (snapshot.null_block, snapshot.blocks[0].ref_count, 0 in snapshot.free_queue) == (0, 0, False)
    assert small_engine(8, 4).snapshot().null_block == -1


def test_keys_of_several_groups_are_distinct() -> None:
    engine = small_engine(12, 4, groups=(full(4), window(4, 4)))
    engine.add(PROMPT, LONG)
    engine.step()
    snapshot = engine.snapshot()
    assert sorted(key.split(":")[0] for key in snapshot.prefix_map) == ["0", "0", "1", "1"]
    assert len({key.split(":")[1] for key in snapshot.prefix_map}) == 2, "equal tokens have one hash in all groups"


def test_the_contracts_example_has_the_fields_of_a_request_with_priority_and_drafts() -> None:
    """A prompt 5 6 5, whose next token is 6: a look-up guesses what followed 6 before."""
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    example = json.loads(page.split("```json\n")[1].split("```")[0])
    workload = {"num_blocks": 4, "block_size": 4, "max_num_seqs": 1, "max_num_batched_tokens": 8, "policy": "priority"}
    request = {"step": 0, "prompt": [5, 6, 5], "max_tokens": 5, "priority": -1}
    snapshots = simulate(
        workload | {"requests": [request]},
        next_token=lambda _, position: 5 + position % 2,
        speculation=NGram(num_drafts=2, min_ngram=1),
    )
    assert snapshots[0].to_dict()["requests"]["0"] == example
