"""Violations are reported by warnings, status, the step's report, and runs that stop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import labengine
from labengine import ConfigError, Lab, Parts, PrefixLookup
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.merge_policy import LateMerge
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.course.branch import FAST_PREFILL
from labengine.record.violation import LOST_WORK, RULES
from labengine.session.violation_warnings import ViolationWarning

EQUAL = list(range(1, 10))


class WrongTouch(BlockPool):
    """Leaves a touched block in the free queue."""

    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1


def wrong_lab(**settings: object) -> Lab:
    lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=WrongTouch), **settings)  # type: ignore[arg-type]
    lab.add(token_ids=EQUAL, max_tokens=1)
    lab.step()
    lab.add(token_ids=EQUAL, max_tokens=6)
    lab.add(token_ids=list(range(50, 62)), max_tokens=6)
    return lab


class NoAliveCheck(LateMerge):
    """Merges into free blocks, which the checks see at the step's end."""

    def is_alive(self, other: Block) -> bool:
        return True


class TakesTheSecond(PrefixLookup):
    """Uses the second block of a hit as the first: the hit is too short, with wrong KV."""

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        hit = super().longest_hit(request, max_tokens)
        return hit._replace(num_tokens=4, block_ids=(hit.block_ids[0][1:2],)) if hit.num_tokens > 4 else hit


def test_the_gravest_violations_come_first(tmp_path: Path) -> None:
    assert RULES.keys() > LOST_WORK
    with Lab("simulated", num_blocks=8, block_size=4, parts=TakesTheSecond) as lab:
        lab.session.violation_warnings.is_silent = True
        for _ in range(2):
            lab.add(token_ids=EQUAL, max_tokens=1)
            report = lab.step()
        lab.save(tmp_path / "run.lab")
        found = [report.violations, lab.violations, lab.check(), labengine.open(tmp_path / "run.lab").violations]
    assert {tuple(one.rule for one in violations) for violations in found} == {("read", "longest")}


def test_a_list_of_violations_is_printed_in_words() -> None:
    with Lab("simulated", num_blocks=8, block_size=2, max_num_batched_tokens=2, parts=FAST_PREFILL) as lab:
        lab.session.violation_warnings.is_silent = True
        for num_tokens in (6, 5):
            lab.add(token_ids=range(num_tokens), max_tokens=1)
            lab.step()
        [found] = [violation for violation in lab.violations if violation.rule == "read"]
    assert found.misnamed, "the browser needs these bytes"
    assert "request 1 reads position 2" in repr([found]) and "b'" not in repr([found]) and "\\x" not in repr([found])


@pytest.mark.parametrize("work", [Lab.step, Lab.run, lambda lab: lab.step(2)])
def test_a_warning_names_the_line_of_the_caller(work: Callable[[Lab], object]) -> None:
    parts = Parts(merge_policy=NoAliveCheck)
    lab = Lab("simulated", num_blocks=8, block_size=4, edition="nano-vllm+243", parts=parts)
    lab.add(token_ids=EQUAL, max_tokens=1)
    lab.add(token_ids=EQUAL, max_tokens=6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work(lab)
    assert {warning.category for warning in caught} == {ViolationWarning}
    assert {warning.filename for warning in caught} == {__file__}


def test_each_rule_is_warned_of_once_where_the_user_called() -> None:
    lab = wrong_lab()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lab.step(3)
    messages = [str(warning.message) for warning in caught if warning.category is ViolationWarning]
    assert len(messages) == len({violation.rule for violation in lab.violations}) >= 3
    assert (
        "breaks the rule 'said'" in messages[0]
        and "(WrongTouch.touch)" in messages[0]
        and "lab.why(event=" in messages[0]
    )
    assert {warning.filename for warning in caught} == {__file__}


def test_a_reset_lab_warns_again() -> None:
    lab = wrong_lab()
    with pytest.warns(ViolationWarning):
        lab.step()
    lab.reset()
    for _ in range(2):
        lab.add(token_ids=EQUAL, max_tokens=1)
        lab.step() if lab.snapshot().step == 0 else None
    with pytest.warns(ViolationWarning):
        lab.step()


def test_status_counts_the_violations_and_names_their_rules() -> None:
    lab = wrong_lab()
    assert lab.status()["violations"] == "none"
    with pytest.warns(ViolationWarning):
        report = lab.step()
    assert report.violations == tuple(lab.violations)
    assert lab.status()["violations"] == f"{len(lab.violations)} (said, partition, held)"


def test_without_checks_nothing_is_looked_for() -> None:
    lab = wrong_lab(check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lab.step().violations == ()
    assert lab.status()["violations"] == "not checked (check=False)"


def test_check_stop_ends_a_run_at_the_first_violation() -> None:
    lab = wrong_lab(check="stop")
    with pytest.warns(ViolationWarning):
        lab.run()
    assert lab.snapshot().step == 2 and lab.stopped_at is not None
    assert "the first violation" in str(lab.stopped_at)
    assert lab.stopped_at.moment == lab.violations[0].first_event + 1  # type: ignore[operator]


def test_check_takes_three_values() -> None:
    with pytest.raises(ConfigError, match="check must be True, False or \"stop\", got 'halt'"):
        Lab("simulated", check="halt")  # type: ignore[arg-type]
