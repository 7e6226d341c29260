"""vLLM 57841 and its family: which rule lets a landed load through, and in which order of arrival."""

from __future__ import annotations

from labengine.scenarios import bug

SCENARIO = bug("vllm-57841")


def test_one_queue_deadlocks_with_two_blocks_free() -> None:
    """27 blocks can be given: B's load holds 25 (100 tokens), C needs one, A needs ten."""
    figures = SCENARIO.measured("one queue")
    assert figures["requests finished"] == 0 and figures["free blocks at the end"] == 2
    assert figures["steps that compute nothing"] == SCENARIO.num_steps


def test_every_remedy_lets_all_three_through() -> None:
    table = SCENARIO.table()
    assert [table[name]["requests finished"] for name in ("separate", "45406", "57841")] == [3, 3, 3]
    assert [table[name]["steps that compute"] for name in ("separate", "45406", "57841")] == [4, 4, 5]


def test_a_head_that_comes_after_it_strands_a_load_in_spite_of_57841() -> None:
    """The small one gets through while the large one is skipped for a step; then that is stuck for ever."""
    table = SCENARIO.experiments["later head"].table()
    finished = {name: column["requests finished"] for name, column in table.columns.items()}
    assert finished == {"one queue": 1, "separate": 3, "45406": 3, "57841": 1}
