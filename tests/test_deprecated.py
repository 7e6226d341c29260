"""Old public names: each leads to the new one, with a warning."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from labengine.core.editions import NANO_VLLM
from labengine.core.parts import Parts
from labengine.deprecated import OLD_NAMES
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison

HOMES = {
    "Parts": "labengine.core.parts",
    "Scenario": "labengine.scenarios.scenario",
    "Lab": "labengine.lab",
    "Trace": "labengine.session.saved.trace",
    "Comparison": "labengine.session.compare.comparison",
}
NAMES = [(owner, old, new) for owner, names in OLD_NAMES.items() for old, new in names.items()]


@pytest.mark.parametrize(("owner", "old", "new"), NAMES)
def test_an_old_name_leads_to_the_new_one_and_warns(owner: str, old: str, new: str) -> None:
    home = getattr(import_module(HOMES[owner]), owner) if owner in HOMES else import_module(owner)
    if not hasattr(home, new):  # an attribute that each instance sets
        home = object.__new__(home)
        setattr(home, new, object())
    with pytest.warns(DeprecationWarning, match=f"{owner}.{old} is now called {owner}.{new}") as warned:
        found = getattr(home, old)
    assert found is getattr(home, new)
    assert warned[0].filename == __file__, "the warning names the line that uses the old name"


def test_old_keywords_of_a_comparison_are_taken_and_warn() -> None:
    with Lab("simulated", num_blocks=8, block_size=4) as lab, lab.fork() as fork:
        with pytest.warns(DeprecationWarning, match="later= is now called .*follow_ups="):
            old: dict[str, Any] = {"later": [lambda lab: lab.step()]}
            comparison = Comparison(lab, fork, **old)
        assert comparison.has_follow_up


def test_a_subclass_may_define_a_thing_under_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"Parts\.over is now called Parts\.overriding") as warned:

        class Mine(Parts):
            def over(self, base: Parts) -> Parts:
                return base

    assert warned[0].filename == __file__
    assert Mine().overriding(NANO_VLLM) is NANO_VLLM
