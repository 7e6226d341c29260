"""What vLLM 0.32's scheduler held with a connector, recorded, is what edition vllm holds: loads at once and late."""

from __future__ import annotations

from itertools import islice

import pytest

from differential import vllm_golden as golden
from differential.comparison import is_found_out
from differential.departures import departures_of
from differential.vllm_comparison import assert_equal_rows, first_difference
from differential.vllm_tier import EDITION, AsksAgain, SpecifiedTier, rows_with_tier, tier_workloads
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission

NUM_WORKLOADS = 200


@pytest.mark.parametrize("part", range(3))
def test_every_row_of_the_recorded_workloads_is_equal(part: int) -> None:
    assert_equal_rows(golden.recorded("tier")[part::3], rows_with_tier)


def test_the_generator_still_makes_the_workloads_that_were_recorded() -> None:
    golden.assert_header("tier")
    assert not set[str]().union(*map(departures_of, golden.workloads("tier")))
    assert golden.workloads("tier") == list(islice(tier_workloads(), NUM_WORKLOADS))


def test_the_workloads_cover_what_they_are_for() -> None:
    """Loads at once and late, local hits before them, requests to be asked again, preemption, and steps of waiting."""
    met: dict[str, int] = {}
    for workload, rows in golden.recorded("tier"):
        for name, is_met in _met(workload, rows).items():
            met[name] = met.get(name, 0) + is_met
    assert min(met.values()) >= 20, met


def _met(workload: golden.Row, rows: list[golden.Row]) -> dict[str, bool]:
    tier = workload["tier"]
    has_loads = any(tier["tokens"].values())
    holds = [[bool(state[3][0]) and state[0] == "waiting" for state in row["requests"].values()] for row in rows]
    return {
        "load at once": has_loads and not tier["delay"],
        "late load": any(map(any, holds)),
        "asked again": bool(tier["again"]),
        "preemption": any(row["preempted"] for row in rows),
        "step without a token": any(not row["scheduled"] for row in rows),
        "block in two tables": any(max(row["ref_counts"]) > 1 for row in rows),
    }


class StopsAtASkippedRequest(AsksAgain):
    """The scan ends where a request is skipped."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        assert isinstance(self.external.connector, SpecifiedTier)
        asks_again = any(self.external.connector.again.values())
        return NOT_ADMITTED if asks_again else super().admit(request, limit, is_first=is_first)


class LandedLoadsLast(AsksAgain):
    """A request whose load has landed waits behind all others."""

    def requeue(self, request: Request) -> None:
        self._journal.record((self.waiting.remove_request, request))
        self.waiting.add_request(request)


@pytest.mark.parametrize("scheduler", [StopsAtASkippedRequest, LandedLoadsLast])
def test_a_scheduler_that_decides_otherwise_is_found_out(scheduler: type[AsksAgain]) -> None:
    parts = Parts(scheduler=scheduler).overriding(EDITION)
    assert is_found_out(
        golden.recorded("tier"), lambda workload, rows: first_difference(rows, rows_with_tier(workload, parts))
    )
