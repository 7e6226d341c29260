"""Branches in the finder's workloads, undoing them, and other operations that find parts once missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import find
from labengine.finder.judgement import GRAVE
from labengine.finder.operations import Abort, Add, Branch, Operation, TakeStep
from labengine.finder.sandbox import Sandbox
from labengine.finder.scopes import Tier, large_scopes, small_scopes
from labengine.finder.shrinking import shortened
from unseen import ShortImageNames, TailWithoutReference

SCOPES = {scope.name: scope for scope in (*small_scopes(), *large_scopes())}
SETTINGS: dict[str, Any] = {"max_workloads": 0, "workers": 0, "seconds": 600, "show_progress": False}
FIRST = Add((0, 4687), 3)


@pytest.mark.parametrize(
    "before",
    [(), (FIRST,), (FIRST, TakeStep()), (FIRST, Branch(0)), (FIRST, TakeStep(), Branch(0), TakeStep())],
    ids=str,
)
@pytest.mark.parametrize("operation", [FIRST, Branch(0), TakeStep()], ids=str)
@pytest.mark.parametrize("name", ["branches", "a window"])
def test_an_operation_is_undone_completely(name: str, before: tuple[Operation, ...], operation: Operation) -> None:
    """Otherwise each state would be rebuilt from the beginning."""
    sandbox = Sandbox(SCOPES[name].config, EDITIONS["labengine"])
    assert sandbox.run(before)[0] is None
    if isinstance(operation, Branch) and not before:
        return
    mark = sandbox.mark()
    assert sandbox.do(operation) is None
    assert sandbox.undo(mark)


def test_a_shared_tail_without_a_reference_is_found_by_a_branch() -> None:
    one = find(TailWithoutReference, scopes=[SCOPES["branches"]], kinds=GRAVE, **SETTINGS)
    assert isinstance(one, Counterexample) and one.is_shortest
    assert one.rule == "held" and "block 0 of request 1 is free: request 0 gave it back" in one.message
    assert [str(operation) for operation in one.operations][1:] == [str(Branch(0)), "lab.step()"]
    assert "lab.branch(0, seed=1)" in one.to_test()


def test_two_pictures_of_like_names_are_found_to_share_a_key() -> None:
    one = find(ShortImageNames, "vllm", scopes=[SCOPES["different tenants"]], kinds=GRAVE, **SETTINGS)
    assert isinstance(one, Counterexample) and one.rule == "named"
    assert "request 0 has mm_hash '00000000100000000', and request 1 mm_hash '00000000200000000'" in one.message


def test_a_tier_that_a_fault_does_not_need_is_left_out() -> None:
    scope = replace(SCOPES["branches"], tier=Tier())
    one = find(TailWithoutReference, scopes=[scope], kinds=GRAVE, **SETTINGS)
    assert isinstance(one, Counterexample) and "external=" not in str(one)


def test_parts_without_a_name_are_called_by_their_classes() -> None:
    one = find(Parts(full_attention_group=TailWithoutReference), scopes=[SCOPES["branches"]], kinds=GRAVE, **SETTINGS)
    assert str(one).startswith("labengine + TailWithoutReference breaks a rule (held)")


def test_a_branch_goes_with_the_request_that_it_leaves_and_follows_its_new_number() -> None:
    workload = (FIRST, FIRST, Branch(1), Abort(2), Branch(0))
    assert shortened(workload, 0, 1) == (FIRST, Branch(0), Abort(1))
    assert shortened(workload, 1, 2) == (FIRST, Branch(0))
