"""Results of find() on the scenarios' broken parts: kind, operations, states and seconds of each.

    python benchmarks/finder_scenarios.py [--seconds 60] [ID ...]

Scenarios that go wrong below the plan cannot be searched, and are left out. "by hand" is the number of operations
(inputs and steps) of the scenario's own workload.
"""

from __future__ import annotations

import argparse
from time import monotonic
from typing import Any

from machine import facts, headline

from labengine.config import TUNING
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import find
from labengine.finder.report import SearchReport
from labengine.scenarios import SCENARIOS, bug
from labengine.scenarios.scenario import Scenario


def found_in(scenario: Scenario, **settings: Any) -> Counterexample | SearchReport:
    """Search the scenario's broken parts. settings: of find()."""
    broken, fixed = scenario.columns[:2]
    tuning = {name: value for name, value in scenario.settings.items() if name in TUNING}
    external = None if broken.tier is fixed.tier else broken.tier
    return find(broken.all_parts, fixed.all_parts, external=external, show_progress=False, **tuning, **settings)


def searched(scenario: Scenario, seconds: float) -> str:
    """Return a row of the table."""
    started = monotonic()
    found = found_in(scenario, seconds=seconds)
    took = f"{monotonic() - started:.1f} s"
    if not isinstance(found, Counterexample):
        return f"| {scenario.id} | not found | | {by_hand(scenario)} | {found.num_states:,} | {took} |"
    rule = f" ({found.rule})" if found.rule and found.rule != found.kind else ""
    length = len(found.operations)
    return f"| {scenario.id} | {found.kind}{rule} | {length} | {by_hand(scenario)} | {found.num_states:,} | {took} |"


def by_hand(scenario: Scenario) -> int:
    """Return the number of operations of the scenario's workload."""
    with scenario.broken() as lab:
        return len(lab.session.inputs.done) + lab.snapshot().step


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("ids", nargs="*")
    asked = parser.parse_args()
    print(headline(facts(1)))
    print("| scenario | found | operations | by hand | states | after |\n|---|---|---|---|---|---|")
    for id in asked.ids or SCENARIOS:
        scenario = bug(id)
        if not scenario.columns[0].runner:
            print(searched(scenario, asked.seconds), flush=True)


if __name__ == "__main__":
    main()
