"""The order put back, operation by operation: the numbers are vLLM 0.32's KVCacheManager's, with either order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.engine.replay import Row, replay
from labengine.scenarios.vllm_44409_columns import InterleavedKVCacheManager

INTERLEAVED = Parts(InterleavedKVCacheManager).overriding(VLLM)

PROMPT = list(range(100, 140))
Tables = list[list[int]]


@dataclass(frozen=True)
class Outcome:
    """What upstream came to: tables, ref counts of blocks 0 to the last one in a table, the next equal prompt's hit."""

    tables: Tables
    ref_cnt: list[int]
    next_hit: int


def workload(num_blocks: int, windows: list[int], *ops: dict[str, Any]) -> dict[str, Any]:
    groups = [{"kind": "full", "block_size": 4}]
    groups += [{"kind": "sliding_window", "block_size": 4, "window": window} for window in windows]
    return {"num_blocks": num_blocks, "block_size": 4, "groups": groups, "ops": list(ops)}


def comes_and_goes(name: str, tokens: list[int]) -> list[dict[str, Any]]:
    return [
        {"op": "add", "req": name, "tokens": tokens},
        {"op": "allocate", "req": name, "lookup": True},
        {"op": "free", "req": name},
    ]


def beginning_first(num_blocks: int, windows: list[int], num_fillers: int, *, is_late: bool) -> dict[str, Any]:
    """Two blocks of the prompt are computed, others come and go, and the prompt finds two blocks more in the tier."""
    fillers = [comes_and_goes(f"f{i}", list(range(1000 + 10 * i, 1004 + 10 * i))) for i in range(num_fillers)]
    return workload(
        num_blocks,
        windows,
        *comes_and_goes("a", PROMPT[:9]),
        *(op for filler in fillers for op in filler),
        {"op": "add", "req": "b", "tokens": PROMPT[:17]},
        {"op": "allocate", "req": "b", "lookup": True, "external": 8, "n": 1, "delay_cache": is_late},
        {"op": "add", "req": "next", "tokens": PROMPT[:17]},
        {"op": "lookup", "req": "next"},
    )


def outcome(rows: list[Row]) -> Outcome:
    *_, allocated, _, looked_up = rows
    tables: Tables = allocated["state"]["tables"]["b"]
    last = max(block_id for table in tables for block_id in table)
    return Outcome(tables, allocated["state"]["ref_cnt"][: last + 1], looked_up["hit"])


@pytest.mark.parametrize(
    ("is_late", "order", "expected"),
    [
        (True, "old", Outcome([[1, 2, 5, 4, 7], [4, 5, 6, 3, 8]], [0, 1, 1, 1, 2, 2, 1, 1, 1], 0)),
        (False, "old", Outcome([[1, 2, 5, 4, 7], [4, 5, 6, 3, 8]], [0, 1, 1, 1, 2, 2, 1, 1, 1], 0)),
        (True, "new", Outcome([[1, 2, 6, 3, 9], [4, 5, 7, 8, 10]], [0, *[1] * 10], 8)),
        (False, "new", Outcome([[1, 2, 6, 3, 9], [4, 5, 7, 8, 10]], [0, *[1] * 10], 16)),
    ],
)
def test_two_groups(is_late: bool, order: str, expected: Outcome) -> None:
    played = beginning_first(11, [16], 3, is_late=is_late)
    assert outcome(replay(played, INTERLEAVED if order == "old" else "vllm")["results"]) == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (
            "old",
            Outcome(
                [[1, 2, 13, 14, 3], [4, 5, 15, 8, 10], [7, 8, 9, 6, 11]],
                [0, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 0, 1, 1, 1],
                4,
            ),
        ),
        ("new", Outcome([[1, 2, 13, 14, 10], [4, 5, 15, 9, 11], [7, 8, 6, 3, 12]], [0, *[1] * 15], 8)),
    ],
)
def test_three_groups_with_one_hit_at_the_head_of_the_queue(order: str, expected: Outcome) -> None:
    played = beginning_first(16, [16, 16], 2, is_late=True)
    assert outcome(replay(played, INTERLEAVED if order == "old" else "vllm")["results"]) == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("old", Outcome([[1, 2, 5, 4, 7], [0, 5, 6, 3, 8]], [0, 1, 1, 1, 1, 2, 1, 1, 1], 0)),
        ("new", Outcome([[1, 2, 4, 6, 8], [0, 5, 3, 7, 9]], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1], 0)),
    ],
)
def test_a_window_that_skips_a_hit(order: str, expected: Outcome) -> None:
    """The skipped block 4 is anybody's: in two phases the full group may have it."""
    played = beginning_first(11, [12], 3, is_late=True)
    assert outcome(replay(played, INTERLEAVED if order == "old" else "vllm")["results"]) == expected


@pytest.mark.parametrize(
    ("order", "tables", "doubled"),
    [
        (
            "new",
            [
                [1, 2, 3, 4, 5, 6, 7, 8, 14, 13, 22],
                [0, 0, 0, 0, 0, 0, 15, 16, 12, 11, 21],
                [0, 0, 0, 0, 0, 0, 23, 24, 10, 9, 20],
            ],
            [],
        ),
        (
            "old",
            [
                [1, 2, 3, 4, 5, 6, 7, 8, 16, 15, 10],
                [0, 0, 0, 0, 0, 0, 15, 16, 14, 13, 9],
                [0, 0, 0, 0, 0, 0, 23, 24, 12, 11, 22],
            ],
            [15, 16],
        ),
    ],
)
def test_a_prompt_as_large_as_the_pool(order: str, tables: Tables, doubled: list[int]) -> None:
    """Three groups; the first request fills the pool, so that the windows' hits are at the head of the queue."""
    played = workload(
        25,
        [16, 16],
        *comes_and_goes("r0", list(range(32))),
        {"op": "add", "req": "r1", "tokens": [*range(32), *range(1000, 1009)]},
        {"op": "allocate", "req": "r1", "lookup": True, "external": 8, "n": 1, "delay_cache": True},
    )
    row = replay(played, INTERLEAVED if order == "old" else "vllm")["results"][-1]
    assert row["hit"] == 32 and row["external"] == 8
    assert row["state"]["tables"]["r1"] == tables
    assert [block_id for block_id, ref_cnt in enumerate(row["state"]["ref_cnt"]) if ref_cnt == 2] == doubled
