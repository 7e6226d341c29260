"""Upstream bugs, reproduced: a module for each report, named after its engine, number and defect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, TextIO

from labengine.config import ConfigError, shown
from labengine.scenarios.bug_list import BugList
from labengine.scenarios.kinds import KINDS
from labengine.scenarios.words import refuse_unused
from labengine.system.code_roles import Role, plays

plays(__name__, Role.USERS)

if TYPE_CHECKING:
    from labengine.scenarios.scenario import Scenario

_NAME = re.compile(r"(?P<engine>[a-z]+(?:_[a-z]+)*)_(?P<number>[0-9a-f]*\d[0-9a-f]*)_.+")
"""Pattern of scenario file names: vllm_39734_never_admitted."""

SCENARIOS: dict[str, str] = {
    f"{found['engine'].replace('_', '-')}-{found['number']}": f"{__name__}.{file.stem}"
    for file in sorted(Path(__file__).parent.glob("*.toml"))
    if (found := _NAME.fullmatch(file.stem))
}
"""Module of each scenario's code, by scenario id; imported on first use."""


def bug(id: str) -> Scenario:
    """Return the scenario with this id. Raises ConfigError, naming the nearest match and all ids."""
    if not isinstance(id, str) or id not in SCENARIOS:
        near = [known for known in SCENARIOS if str(id) and known.endswith(f"-{id}")]
        near = near or get_close_matches(str(id), SCENARIOS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"no scenario {shown(id)}: choose from {', '.join(map(repr, SCENARIOS))}.{hint}")
    return _scenario_in(SCENARIOS[id])


@cache
def _scenario_in(name: str) -> Scenario:
    """Return a module's scenario: an instance of its class with an id."""
    module = import_module(name)
    refuse_unused(module)
    made: type[Scenario] = next(value for value in vars(module).values() if "id" in getattr(value, "__dict__", ()))
    return made()


def bugs(engine: str | None = None, kind: str | None = None) -> BugList:
    """Return the scenarios, optionally only those of an engine or a kind of bug, as a list that prints as a table.

    engine: the beginning of an id, "vllm". kind: a key of KINDS, "full hit". Letter case does not matter. Raises
    ConfigError for an unknown one, naming all known ones.
    """
    wanted_engine, wanted_kind = _known("engine", engine, engines()), _known("kind", kind, KINDS)
    return BugList(
        scenario
        for scenario in map(bug, sorted(SCENARIOS, key=_engine_and_number))
        if wanted_engine in (None, scenario.engine) and wanted_kind in (None, scenario.kind)
    )


def bugs_named(words: Sequence[str]) -> BugList:
    """Return the scenarios selected by an engine, a kind of bug, or both in this order; all without words."""
    engine, kind_words = (words[0], words[1:]) if words and words[0].lower() in engines() else (None, words)
    kind = " ".join(kind_words) or None
    if engine is None and kind is not None and kind.lower() not in map(str.lower, KINDS):
        known = f"neither an engine ({', '.join(engines())}) nor a kind of bug ({', '.join(KINDS)})"
        raise ConfigError(f"{shown(kind)} is {known}")
    return bugs(engine, kind)


def engines() -> list[str]:
    """Return the engines of all scenarios, in alphabetical order."""
    return sorted({id.rpartition("-")[0] for id in SCENARIOS})


def _engine_and_number(id: str) -> tuple[str, int, str]:
    engine, _, number = id.rpartition("-")
    return engine, int(number) if number.isdecimal() else 0, id


def _known(what: str, name: object, known: Iterable[str]) -> str | None:
    """Return the known name equal to `name` except for case; None for None. Raises ConfigError if there is none."""
    by_name = {one.lower(): one for one in known}
    if name is None:
        return None
    if not isinstance(name, str) or name.lower() not in by_name:
        near = get_close_matches(str(name).lower(), by_name, n=1)
        hint = f" Did you mean {by_name[near[0]]!r}?" if near else ""
        names = ", ".join(map(repr, by_name.values()))
        raise ConfigError(f"no {what} {shown(name)}: choose from {names}.{hint}")
    return by_name[name.lower()]


def print_story(id: str | None, out: TextIO) -> None:
    """Print the verdict on one report, or the list of scenarios if there is no id."""
    print(listing() if id is None else story(bug(id)), file=out)


def story(scenario: Scenario) -> str:
    """Return the verdict, the tables of further experiments, and the report's facts with its URL."""
    verdict = scenario.verdict()
    tables = [str(experiment.table()) for experiment in scenario.experiments.values()]
    facts = [] if scenario.report is None else [*scenario.report.facts(), *verdict.conclusion.facts()]
    listed = "\n".join(fill(f"{label}: {text}", 100, subsequent_indent="  ") for label, text in facts)
    url = "" if scenario.report is None else scenario.report.url
    return "\n\n".join(filter(None, [str(verdict), *tables, listed, url]))


def listing() -> str:
    """Return the scenarios, one per line."""
    width = max(map(len, SCENARIOS))
    return "\n".join(f"{id.ljust(width)}  {bug(id).title}" for id in SCENARIOS)
