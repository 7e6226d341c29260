"""Upstream bugs, reproduced: one file per report, named for the engine, the number and the defect."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from labengine.config import ConfigError

if TYPE_CHECKING:
    from labengine.scenarios.scenario import Scenario

SCENARIOS: dict[str, str] = {
    "nano-vllm-219": "labengine.scenarios.nano_vllm_219_duplicate_blocks",
    "nano-vllm-71": "labengine.scenarios.nano_vllm_71_off_by_one",
    "vllm-44409": "labengine.scenarios.vllm_44409_two_phase_allocation",
}
"""Per scenario id the module that holds it as `SCENARIO`; imported on first use."""


def bug(id: str) -> Scenario:
    """Return the scenario with this id. Raises ConfigError, naming the nearest match and all ids."""
    if not isinstance(id, str) or id not in SCENARIOS:
        near = [known for known in SCENARIOS if str(id) and known.endswith(f"-{id}")]
        near = near or get_close_matches(str(id), SCENARIOS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no scenario {id!r}; there are {', '.join(map(repr, SCENARIOS))}.{hint}")
    scenario: Scenario = import_module(SCENARIOS[id]).SCENARIO
    return scenario


def print_story(id: str | None, out: TextIO) -> None:
    """Print the verdict on one report; without an id, the list of scenarios."""
    print(listing() if id is None else story(bug(id)), file=out)


def story(scenario: Scenario) -> str:
    """Return the verdict, the further experiments' tables, and the report's URL."""
    tables = [str(experiment.table()) for experiment in scenario.experiments.values()]
    return "\n\n".join([str(scenario.verdict()), *tables, scenario.url])


def listing() -> str:
    """Return the scenarios, one per line."""
    width = max(map(len, SCENARIOS))
    return "\n".join(f"{id.ljust(width)}  {bug(id).title}" for id in SCENARIOS)
