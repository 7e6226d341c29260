"""The departures from vLLM 0.32: docs/editions.md has those of the list, and no compared workload asks for one."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import pytest

import labengine
from checkout import ROOT
from differential import vllm_streams
from differential.departures import DEPARTURES, departures_of
from differential.vllm_comparison import rows_of_replay, rows_of_simulate
from differential.vllm_tier import DEPARTING, TWO_EQUAL_LOADS, rows_with_tier, tier_workloads
from labengine.config import ConfigError
from labengine.core.editions import VLLM_ASYNC
from labengine.engine.external.host import HostStore
from labengine.scenarios import SCENARIOS, bug
from labengine.scenarios.tiers import late_host
from vllm_scheduler_workloads import scheduler_workload

Row = dict[str, Any]


def rows_in_the_docs() -> list[list[str]]:
    """Return the cells of the rows of vLLM's table in docs/editions.md."""
    text = (ROOT / "docs" / "editions.md").read_text(encoding="utf-8")
    section = text.split("## Where the editions depart\n")[1].split("\n*mini-sglang.*")[0]
    rows = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.split(" | ")] for row in rows][1:]


def test_the_docs_list_every_departure_and_no_other() -> None:
    listed = [[d.name, d.edition, d.vllm, ", ".join(d.scenarios), d.bridge or "left out"] for d in DEPARTURES]
    assert rows_in_the_docs() == listed


def test_every_scenario_of_the_list_exists_and_is_about_vllm() -> None:
    ids = {id for departure in DEPARTURES for id in departure.scenarios}
    assert ids <= SCENARIOS.keys() and all(bug(id).engine.startswith("vllm") for id in ids)


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_no_workload_of_a_stream_that_is_judged_asks_for_a_departure() -> None:
    workloads = [*map(vllm_streams.tapped_workload, range(50)), *vllm_streams.broken_workloads()]
    assert {one for workload in workloads for one in departures_of(workload)} == set()


def test_workloads_that_are_not_compared_ask_for_departures() -> None:
    """Streams with a connector are folded, and not held against an edition."""
    workloads = map(vllm_streams.connector_workload, vllm_streams.RECORDED_CONNECTOR_SEEDS)
    assert all(map(departures_of, workloads))


TIER: Row = next(islice(tier_workloads(), 3, None))
"""A random workload whose loads are late."""
PLAIN: Row = scheduler_workload(0)
OPS: Row = {"num_blocks": 8, "block_size": 4, "ops": [{"op": "add", "req": "a", "tokens": [1]}]}
FIRST = {"step": 0, "prompt": [*range(8), 1], "max_tokens": 1}

FITS_WITHOUT_DRAFTS: Row = PLAIN | {
    "num_blocks": 4,
    "block_size": 4,
    "groups": None,
    "requests": [FIRST | {"max_tokens": 4}],
}
DRAFTS: Row = {"speculation": {"num_drafts": 4, "alphabet": 2}}


def with_tier(**changes: Any) -> Row:
    return TIER | {"tier": TIER["tier"] | changes}


ASKING: dict[str, list[Row]] = {
    "an abort during a load": [TIER | {"aborts": 1}],
    "the end of a request whose KV is being sent": [with_tier(send=2), with_tier(pinning=1)],
    "a step in flight, with a tier": [TIER | {"async": True}, with_tier(defer=True)],
    "a request that the pool cannot hold": [PLAIN | {"num_blocks": 2}, FITS_WITHOUT_DRAFTS | DRAFTS],
    "late loads that contend for blocks": [DEPARTING[0]],
    "late loads, with priorities": [TIER | {"policy": "priority"}],
    "late loads that have landed": [*DEPARTING[1:4]],
    "a load that fails": [with_tier(failing=1)],
    "how much a tier supplies": [
        DEPARTING[4],
        TWO_EQUAL_LOADS | {"requests": [FIRST], "tier": {"delay": 0, "tokens": {"0": 6}, "again": {}}},
    ],
    "late loads, with drafts": [TIER | {"speculation": {"num_drafts": 1, "alphabet": 2}}],
    "a reset while requests are running": [PLAIN | {"reset_running_requests": True}],
    "`max_model_len`": [PLAIN | {"num_blocks": 99_999, "requests": [FIRST | {"max_tokens": 8192}]}],
    "other settings and inputs": [
        PLAIN | {"pipeline_parallel_size": 2},
        PLAIN | {"drafts": 1},
        PLAIN | {"requests": [FIRST | {"lora": "a"}]},
        OPS | {"enable_caching": False},
        with_tier(evicts=True),
    ],
}
"""Workloads that ask for one departure, and for no other."""


def test_each_departure_that_is_left_out_is_recognised() -> None:
    assert list(ASKING) == [departure.name for departure in DEPARTURES if not departure.bridge]
    for name, workloads in ASKING.items():
        assert [departures_of(workload) for workload in workloads] == [[name]] * len(workloads)
    assert departures_of(FITS_WITHOUT_DRAFTS) == []


def test_a_comparison_refuses_what_it_leaves_out() -> None:
    for run, workload in (
        (rows_of_simulate, PLAIN | {"pipeline_parallel_size": 2}),
        (rows_of_replay, OPS | {"drafts": 1}),
        (rows_with_tier, with_tier(failing=1)),
    ):
        with pytest.raises(ValueError, match="not to be compared with vLLM: "):
            run(workload)


# -- what the editions do ----------------------------------------------------------------------------------------------


def vllm_lab(**settings: Any) -> labengine.Lab:
    return labengine.Lab("simulated", edition="vllm", **{"num_blocks": 9, "block_size": 4} | settings)


def test_an_aborted_load_holds_nothing_and_the_tier_forgets_it() -> None:
    with vllm_lab(external=late_host(3)) as lab:
        lab.fill_external(token_ids=range(9))
        lab.add(token_ids=range(9), max_tokens=2)
        lab.step()
        assert lab.snapshot().num_used_blocks > 0
        lab.abort(0)
        assert lab.snapshot().num_used_blocks == 0 and lab.snapshot().requests[0].status == "finished"


def test_a_request_that_the_pool_cannot_hold_is_refused() -> None:
    with vllm_lab() as lab, pytest.raises(ConfigError, match="needs 10 blocks, but the pool has 8"):
        lab.add(token_ids=range(40), max_tokens=1)


def test_a_tier_brings_complete_blocks_and_never_the_last_token() -> None:
    with vllm_lab(external=HostStore()) as lab:
        lab.fill_external(token_ids=range(12))
        lab.add(token_ids=range(12), max_tokens=1)
        lab.step()
        assert lab.timeline is not None
        assert [event.num_tokens for event in lab.timeline.of_kind(labengine.events.ExternalHit)] == [8]


def test_a_reset_is_refused_while_a_request_runs_and_a_window_keeps_every_block_by_default() -> None:
    with vllm_lab() as lab:
        lab.add(token_ids=range(8), max_tokens=4)
        lab.step()
        assert not lab.reset_prefix_cache()
        assert lab.settings.retention_interval is None


def test_the_asynchronous_edition_refuses_a_tier_and_runs_no_lab() -> None:
    with pytest.raises(ConfigError, match="is only for recordings"):
        labengine.Lab("simulated", edition="vllm-async", num_blocks=8)
    assert "refuse_what_it_lacks" in VLLM_ASYNC.scheduler.__dict__
