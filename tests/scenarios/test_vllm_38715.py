"""vLLM 38715: same-step hits are right on a runner that stores before it attends, and wrong on one that does not."""

from __future__ import annotations

from labengine.scenarios import bug

SCENARIO = bug("vllm-38715")


def test_the_claim_does_not_hold_and_the_guard_costs_a_step() -> None:
    verdict = SCENARIO.verdict()
    assert not verdict.claim_holds
    assert verdict.before["requests that wait a step"] == 2
    assert verdict.after == {
        "tokens": 18,
        "wrong tokens": 0,
        "requests that wait a step": 0,
        "prompt tokens computed": 11 + 3 + 3,
    }


def test_an_engine_that_registers_after_the_step_computes_the_prefix_three_times() -> None:
    assert SCENARIO.measured("labengine")["prompt tokens computed"] == 3 * 11


def test_where_the_last_request_is_computed_first_the_hit_is_wrong() -> None:
    table = SCENARIO.experiments["other order"].table()
    assert table["vllm"]["wrong tokens"] > 0
    assert table["guard"]["wrong tokens"] == table["labengine"]["wrong tokens"] == 0
    with SCENARIO.experiments["other order"].played("vllm") as lab:
        assert lab.output(0).token_ids == tuple(SCENARIO.broken().output(0).token_ids), "the first request hits nothing"
