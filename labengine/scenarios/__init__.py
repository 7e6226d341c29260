"""Upstream bugs, reproduced: one file per report, named for engine, number and what went wrong."""

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
"""Each scenario's id, and the module that tells it as `SCENARIO`; imported when it is asked for."""


def bug(id: str) -> Scenario:
    """Return the scenario of that id. ConfigError for an unknown one, with the nearest match and all there are."""
    if not isinstance(id, str) or id not in SCENARIOS:
        near = [known for known in SCENARIOS if str(id) and known.endswith(f"-{id}")]
        near = near or get_close_matches(str(id), SCENARIOS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no scenario {id!r}; there are {', '.join(map(repr, SCENARIOS))}.{hint}")
    scenario: Scenario = import_module(SCENARIOS[id]).SCENARIO
    return scenario


def tell(id: str | None, out: TextIO) -> None:
    """Print the verdict on one report; without an id, what there is, a line each."""
    print(listing() if id is None else story(bug(id)), file=out)


def story(scenario: Scenario) -> str:
    """Return the verdict, where the report stands, and the further experiments' tables."""
    tables = [str(experiment.table()) for experiment in scenario.experiments.values()]
    return "\n\n".join([str(scenario.verdict()), *tables, scenario.url])


def listing() -> str:
    """Return every scenario in a line."""
    width = max(map(len, SCENARIOS))
    return "\n".join(f"{id.ljust(width)}  {bug(id).title}" for id in SCENARIOS)
