"""labengine.simulate: the contract that tools outside the project rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

import labengine
from driving import (
    ALL_EDITIONS,
    PACKING_EDITIONS,
    TOKEN_BUDGET_EDITIONS,
    assert_sound,
    has_budget,
    num_last_slots,
    num_null_blocks,
    num_reserved_blocks,
)
from hybrid_workloads import random_hybrid_workload
from labengine.config import ConfigError
from labengine.core.editions import EDITIONS
from labengine.core.merge_policy import MergePolicy
from labengine.core.parts import Parts
from labengine.engine.simulated import default_next_token
from workloads import Workload, random_workload


def workload(*requests: dict[str, Any], **changes: Any) -> dict[str, Any]:
    limits = {"num_blocks": 8, "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 16}
    return limits | {"requests": list(requests)} | changes


def request(step: int = 0, prompt: list[int] | None = None, max_tokens: int = 2, **more: Any) -> dict[str, Any]:
    return {"step": step, "prompt": prompt or [1, 2, 3, 4, 5], "max_tokens": max_tokens} | more


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (workload(request(step="soon")), "step must be a non-negative integer"),  # type: ignore[arg-type]
        (workload(request(step=-1)), "step must be a non-negative integer"),
        (workload(request(prompt=["a"])), r"token_ids\[0\] must be .*, got 'a'"),  # type: ignore[list-item]
        (workload(request(prompt=[2**70])), "must be a non-negative integer"),
        (workload(request(salt=5)), "cache_salt must be a string"),
        (workload(request(), groups=[{"block_size": 4}]), r"group 0 is missing \['kind'\]"),
        (workload(request(), groups=[{"kind": "full", "size": 4}]), "group 0 has unknown keys"),
        (workload(request(), groups="full"), "groups must be a list"),
        ([request()], "workload must be a mapping"),
    ],
)
def test_what_no_workload_can_be_is_refused_before_the_first_step(wrong: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        labengine.simulate(wrong, next_token=lambda request_id, position: pytest.fail("a step was taken"))


def test_one_snapshot_per_step_on_a_clock_from_zero(edition: str) -> None:
    snapshots = labengine.simulate(workload(request(max_tokens=3)), edition)
    assert [s.step for s in snapshots] == [0, 1, 2]
    assert [len(s.requests[0].token_ids) for s in snapshots] == [6, 7, 8]


def test_the_clock_jumps_to_the_next_arrival(edition: str) -> None:
    snapshots = labengine.simulate(workload(request(2), request(10), request(11, max_tokens=1)), edition)
    assert [s.step for s in snapshots] == [2, 3, 10, 11, *([] if has_budget(edition) else [12])]


def test_a_request_joins_before_the_step_of_its_step(edition: str) -> None:
    snapshots = labengine.simulate(workload(request(0, max_tokens=6), request(2)), edition)
    assert [sorted(s.requests) for s in snapshots[:3]] == [[0], [0], [0, 1]]
    assert snapshots[2].requests[1].status == "running"


def test_requests_are_numbered_in_list_order_whatever_their_arrival(edition: str) -> None:
    snapshots = labengine.simulate(workload(request(5, [9] * 3), request(0, [8] * 3)), edition)
    assert list(snapshots[0].requests) == [1]
    assert snapshots[-1].requests[0].token_ids[:3] == (9, 9, 9)
    assert snapshots[-1].requests[1].token_ids[:3] == (8, 8, 8)


def test_requests_of_one_step_queue_in_list_order() -> None:
    last = labengine.simulate(workload(request(1, [9] * 3), request(1, [8] * 3)), "nano-vllm")[0]
    assert [r.block_tables for r in last.requests.values()] == [((0,),), ((1,),)]


def test_the_default_next_token(edition: str) -> None:
    last = labengine.simulate(workload(request(), request()), edition)[-1]
    for request_id, state in last.requests.items():
        expected = tuple((request_id * 7919 + position * 104729) % 50021 for position in (5, 6))
        assert state.token_ids[5:] == expected
        assert expected == tuple(default_next_token(request_id, position) for position in (5, 6))


def test_a_next_token_of_ones_own_gets_request_and_position(edition: str) -> None:
    last = labengine.simulate(workload(request(), request(3)), edition, lambda r, p: 1000 * r + p)[-1]
    assert [s.token_ids[5:] for s in last.requests.values()] == [(5, 6), (1005, 1006)]


def test_there_is_no_eos(edition: str) -> None:
    last = labengine.simulate(workload(request(max_tokens=9)), edition, lambda r, p: 2)[-1]
    assert len(last.requests[0].token_ids) == 14


@pytest.mark.parametrize("edition", PACKING_EDITIONS)
def test_a_request_that_never_fits_is_refused_before_step_0(edition: str) -> None:
    never, num_blocks = request(99, [1] * 20, max_tokens=14), 8 + num_null_blocks(EDITIONS[edition])
    with pytest.raises(ValueError, match="needs 9 blocks, but the pool has 8"):
        labengine.simulate(workload(request(), never, num_blocks=num_blocks), edition, next_token=_must_not_run)
    fits = request(99, [1] * 20, max_tokens=13 - num_last_slots(EDITIONS[edition]))
    assert labengine.simulate(workload(fits, num_blocks=num_blocks), edition)


def _must_not_run(request_id: int, position: int) -> int:
    raise AssertionError("a step was taken")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (workload(request(), eagle=1), r"workload has unknown keys \['eagle'\]; known:"),
        (workload(request(prio=1)), r"request 0 has unknown keys \['prio'\]; known:"),
        ({"num_blocks": 4}, "workload is missing .*'block_size'"),
        (workload({"step": 0}), r"request 0 is missing \['max_tokens', 'prompt'\]"),
        (workload(request(), block_size=0), "block_size must be at least 1"),
        (workload(request(max_tokens=0)), "max_tokens must be at least 1"),
        (workload(request() | {"prompt": []}), "the prompt must not be empty"),
    ],
)
def test_bad_workloads_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        labengine.simulate(bad, next_token=_must_not_run)


def test_an_unknown_edition_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'labengine'"):
        labengine.simulate(workload(request()), "labengin")


def test_no_requests_no_steps(edition: str) -> None:
    assert labengine.simulate(workload(), edition) == []


def test_the_default_edition_is_labengine() -> None:
    twins = workload(request(), request())
    assert labengine.simulate(twins) == labengine.simulate(twins, "labengine")
    assert labengine.simulate(twins) != labengine.simulate(twins, "nano-vllm")


def test_parts_may_replace_a_single_decision() -> None:
    twins = workload(request(), request())
    found = labengine.simulate(twins, Parts(merge_policy=MergePolicy))
    assert found == labengine.simulate(twins, Parts(merge_policy=MergePolicy).overriding(EDITIONS["labengine"]))
    assert found != labengine.simulate(twins)


def test_parts_may_replace_an_edition() -> None:
    twins = workload(request(), request())
    unmerged = Parts(merge_policy=MergePolicy).overriding(EDITIONS["nano-vllm+243"])
    assert labengine.simulate(twins, unmerged) == labengine.simulate(twins, "nano-vllm")


def test_blocks_of_different_salts_are_different() -> None:
    def used(*salts: str | None) -> int:
        requests = (request() if salt is None else request(salt=salt) for salt in salts)
        return labengine.simulate(workload(*requests))[0].num_used_blocks

    assert (used("a", "a"), used("a", "b"), used("a", None), used(None, None)) == (3, 4, 4, 3)


def test_groups_are_listed_and_each_has_a_table() -> None:
    groups = [{"kind": "full", "block_size": 2}, {"kind": "full"}]
    first = labengine.simulate(workload(request(), groups=groups))[0].to_dict()
    assert first["groups"] == [
        {"kind": "full", "block_size": 2, "window": None},
        {"kind": "full", "block_size": 4, "window": None},
    ]
    assert [len(table) for table in first["requests"]["0"]["block_tables"]] == [3, 2]


def test_to_dict_is_plain_json_with_the_contracts_keys(edition: str) -> None:
    for seed in range(10):
        random = random_workload(seed)
        assert_contract_of_a_run(random, edition)


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_to_dict_is_plain_json_on_hybrid_groups_too(edition: str) -> None:
    for seed in range(20):
        assert_contract_of_a_run(random_hybrid_workload(seed), edition)


def assert_contract_of_a_run(random: Workload, edition: str) -> None:
    num_more = num_null_blocks(EDITIONS[edition]) + num_reserved_blocks(EDITIONS[edition])
    wanted = random.for_simulate() | {"num_blocks": random.num_blocks + num_more}
    for snapshot in labengine.simulate(wanted, edition, random.next_token):
        plain = snapshot.to_dict()
        assert json.loads(json.dumps(plain)) == plain
        assert_contract(plain, snapshot.null_block)
        assert_sound(snapshot, edition)


def assert_contract(plain: dict[str, Any], null_block: int) -> None:
    keys = ["step", "requests", "blocks", "free_queue", "prefix_map", "cached_free", "groups"]
    assert list(plain) == keys + ["tree"] * ("tree" in plain)
    for state in plain["requests"].values():
        keys = ["status", "token_ids", "num_prompt_tokens", "num_computed_tokens", "block_tables"]
        assert list(state) == keys
        assert state["status"] in ("waiting", "running", "preempted", "finished")
    refs = [block["ref_count"] for block in plain["blocks"]]
    for block_id, block in enumerate(plain["blocks"]):
        assert list(block) == ["block_id", "ref_count", "block_hashes", "token_ids", "owners"]
        assert block["block_id"] == block_id
        owners = [i for i, r in plain["requests"].items() if any(block_id in table for table in r["block_tables"])]
        assert sorted(block["owners"], key=int) == ([] if block_id == null_block else sorted(owners, key=int))
        assert not block["token_ids"] or block["block_hashes"]
    for key, ids in plain["prefix_map"].items():
        group, block_hash = key.split(":")
        assert 0 <= int(group) < len(plain["groups"])
        assert all(block_hash in plain["blocks"][i]["block_hashes"] for i in ids)
        assert (key in plain["cached_free"]) == (not any(refs[i] for i in ids))
    assert set(plain["cached_free"]) <= set(plain["prefix_map"])


@pytest.mark.parametrize(("key", "value"), [("watermark", 0.5), ("long_prefill_token_threshold", 2)])
def test_settings_that_an_edition_lacks_may_be_off_and_not_on(key: str, value: float) -> None:
    for edition in EDITIONS:
        assert labengine.simulate(workload(request(max_tokens=1), **{key: 0}), edition)
        if not has_budget(edition):
            with pytest.raises(ConfigError, match=f"has no {key}"):
                labengine.simulate(workload(request(max_tokens=1), **{key: value}), edition)


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_settings_reach_the_engine(edition: str) -> None:
    """Each changes what happens; the core's own tests say how."""
    twins = [request(0, [1] * 9, max_tokens=3), request(0, [2] * 9, max_tokens=3)]
    groups = [{"kind": "full"}, {"kind": "sliding_window", "window": 4}]
    usual = labengine.simulate(workload(*twins, groups=groups, num_blocks=16), edition)
    settings: list[dict[str, Any]] = [
        {"watermark": 0.5},
        {"long_prefill_token_threshold": 3},
        {"retention_interval": 0},
        {"hash_block_size": 2},
    ]
    for setting in settings:
        assert labengine.simulate(workload(*twins, groups=groups, num_blocks=16, **setting), edition) != usual, setting


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_a_window_group_drops_blocks(edition: str) -> None:
    groups = [{"kind": "full"}, {"kind": "sliding_window", "block_size": 2, "window": 3}]
    snapshots = labengine.simulate(workload(request(max_tokens=8), groups=groups, num_blocks=16), edition)
    assert snapshots[0].to_dict()["groups"][1] == {"kind": "sliding_window", "block_size": 2, "window": 3}
    null_block = snapshots[0].null_block
    full, window = snapshots[-2].requests[0].block_tables
    assert (null_block in full, [i == null_block for i in window]) == (False, [True, True, True, True, False, False])


def test_vllms_words_for_groups_are_understood() -> None:
    ours = [{"kind": "full"}, {"kind": "sliding_window", "window": 4}]
    theirs = [{"type": "full"}, {"type": "swa", "sliding_window": 4}]
    runs = [labengine.simulate(workload(request(), groups=groups, num_blocks=16)) for groups in (ours, theirs)]
    assert runs[0] == runs[1]
