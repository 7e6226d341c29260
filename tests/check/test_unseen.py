"""Nine wrong parts of tests/support/unseen.py: each is detected, and the report names the guilty method."""

from __future__ import annotations

import pytest

from labengine.events import DecisionDiffered
from labengine.lab import Lab
from labengine.scripts import cost
from reported import Reported
from unseen import UNSEEN

SEEN_BY = {
    "lmcache-3301": "scope",
    "lmcache-1866": "read",
    "lmcache-2158": "ValueError",
    "vllm-ascend-14283": "write",
    "sglang-8649": "window",
    "sglang-17061": "window",
    "fastdeploy-3080": "progress",
    "atlas-692": "said",
}
"""The first rule that is broken, or the exception of a step. Of lmcache-4612 nothing is wrong: tokens are lost."""

RUNS = {one.name: one for one in UNSEEN}


def report(lab: Lab) -> tuple[str, str]:
    """Return the rule and message of the first violation, else those of the crash."""
    assert lab.timeline is not None
    differed = [f"{one.method} {one.replaces}" for one in lab.timeline.of_kind(DecisionDiffered)]
    if lab.violations:
        return lab.violations[0].rule, lab.violations[0].message
    assert lab.crash is not None
    return type(lab.crash.exception).__name__, " ".join([str(lab.crash.exception), *differed])


@pytest.mark.parametrize("name", SEEN_BY)
def test_it_is_seen_and_the_method_is_named(name: str) -> None:
    one = RUNS[name]
    seen, words = report(one.lab())
    assert seen == SEEN_BY[name]
    [guilty] = [cls for cls in vars(one.parts).values() if isinstance(cls, type)]
    methods = [f"{guilty.__name__}.{method}" for method in vars(guilty) if not method.startswith("__")]
    assert any(method in words for method in methods), words


@pytest.mark.parametrize("one", UNSEEN, ids=lambda one: one.name)
def test_production_does_nothing_wrong_on_its_workload(one: Reported) -> None:
    lab = one.lab(is_broken=False)
    assert lab.check() == [] and lab.crash is None


def test_a_preempted_request_that_asks_no_tier_computes_more() -> None:
    one = RUNS["lmcache-4612"]
    wrong, right = one.lab(), one.lab(is_broken=False)
    assert wrong.check() == []
    assert cost(wrong).computed_tokens == cost(right).computed_tokens + 4


def test_the_first_event_of_a_tail_without_reference_is_the_fork() -> None:
    lab = RUNS["atlas-692"].lab()
    number = lab.violations[0].first_event
    assert lab.timeline is not None and number is not None
    [event] = lab.timeline.events(number, number + 1)
    assert type(event).__name__ == "RequestForked"
