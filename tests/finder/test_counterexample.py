"""Exports of a counterexample: a test that is red with the parts and green without, a script, a scenario."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from finder.test_find import ONE_SCOPE, TINY, found
from finder.wrong_parts import Loops, NeverAdmits, NeverShares, NoAliveCheck, RaisesOnTouch
from labengine.config import ConfigError
from labengine.finder.find import GRAVE
from labengine.finder.scopes import Scope, Tier, small_scopes

WITH_A_TIER = (Scope("a tier", small_scopes()[0].config, max_requests=2, num_prompt_blocks=1, tier=Tier()),)


def outcome(text: str, *, production: bool) -> BaseException | None:
    """Run a generated test as pytest would; return its exception, if any."""
    names: dict[str, Any] = {}
    exec(compile(text, "test_made.py", "exec"), names)
    if production:
        names["PARTS"] = None
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    try:
        test()
    except BaseException as error:
        return error
    return None


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (NoAliveCheck, {"scopes": ONE_SCOPE, "kinds": GRAVE, "max_workloads": 0}),
        (NoAliveCheck, {"scopes": WITH_A_TIER, "kinds": GRAVE, "max_workloads": 0}),
        (RaisesOnTouch, {"scopes": ONE_SCOPE, "kinds": GRAVE, "max_workloads": 0}),
        (NeverAdmits, {"scopes": ONE_SCOPE, "kinds": GRAVE, "max_workloads": 0}),
        (Loops, {"scopes": TINY, "kinds": GRAVE, "max_workloads": 0}),
        (NeverShares, {"kinds": ("worse",), "max_workloads": 200}),
        (NeverShares, {"kinds": ("differs",), "max_workloads": 200}),
    ],
)
def test_the_test_is_red_with_the_parts_and_green_without(cls: type, settings: dict[str, Any]) -> None:
    text = found(cls, **settings).to_test()
    assert outcome(text, production=False) is not None
    assert outcome(text, production=True) is None


@pytest.mark.parametrize("cls", [NoAliveCheck, RaisesOnTouch, NeverAdmits])
def test_it_is_a_scenario(cls: type) -> None:
    one = found(cls, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    verdict = one.scenario().verdict()
    assert verdict.reproduced and verdict.fixed
    assert cls.__name__ in verdict.title and verdict.claim == one.message


def test_it_reads_well_and_escapes() -> None:
    one = found(NoAliveCheck, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    text = repr(one)
    assert text.startswith("labengine + NoAliveCheck breaks a rule (said) after 3 operations, the fewest in its scope.")
    assert all(operation in text for operation in one.operations)
    assert "lab.step()" in one.to_code()
    hostile = copy(one)
    hostile._finding = type(one._finding)("rule", "<b>", "said")
    assert "&lt;b&gt;" in hostile._repr_html_()


def test_the_point_of_no_return_is_the_last_moment_from_which_a_run_ends_well() -> None:
    one = found(NoAliveCheck, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    point = one.point_of_no_return()
    assert point.num_operations == 2 and "lab.abort(" in str(point)
    endless = found(NeverAdmits, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0).point_of_no_return()
    assert endless.num_operations == 1 and "with only steps" in str(endless)


def test_a_run_that_is_worse_has_no_point_of_no_return() -> None:
    one = found(NeverShares, kinds=("worse",), max_workloads=200)
    with pytest.raises(ConfigError, match="ends well"):
        one.point_of_no_return()
