"""A counterexample as a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labengine.core.connector import Connector
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.lab import Lab
from labengine.scenarios.by_hand import HandMadeScenario, hand_made
from labengine.scenarios.scenario import Column

ELSEWHERE = "repeats that lead elsewhere"
ENDINGS = "ends of the process"


class FoundWorkload(Protocol):
    """The parts of a counterexample that a scenario needs."""

    @property
    def headline(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def ends_process(self) -> bool: ...
    @property
    def parts(self) -> Parts: ...
    @property
    def reference(self) -> Parts: ...
    @property
    def reference_tier(self) -> Callable[[], Connector] | None: ...
    @property
    def acts(self) -> tuple[Callable[[Lab], Any], ...]: ...
    def lab_settings(self) -> dict[str, Any]: ...
    def num_elsewhere(self, lab: Lab) -> int: ...
    def num_endings(self, lab: Lab) -> int: ...


def scenario_of(found: FoundWorkload) -> HandMadeScenario:
    """Return a scenario whose broken column has the parts and whose fixed one the reference."""
    reference = found.reference
    columns = (
        Column(LABENGINE.name, found.parts, name="yours", says="The parts that go wrong."),
        Column(
            LABENGINE.name,
            reference,
            tier=found.reference_tier,
            name=reference.name,
            says="The edition that they are held against.",
        ),
    )
    roles = ("what you gave", "what it is held against")
    scenario = hand_made("found", found.headline.rstrip("."), found.message, columns, roles)
    scenario.acts, scenario.lab_settings = found.acts, found.lab_settings
    if found.ends_process:
        scenario.more_figures = lambda lab: {ENDINGS: found.num_endings(lab)}
        scenario.wrong = lambda measured: measured[ENDINGS] > 0
    elif found.rule == "repeat":
        scenario.more_figures = lambda lab: {ELSEWHERE: found.num_elsewhere(lab)}
        scenario.wrong = lambda measured: measured[ELSEWHERE] > 0
    elif found.kind == "liveness":
        scenario.wrong = lambda measured: measured["requests not finished"] > 0
    elif found.kind in ("worse", "differs"):
        scenario.wrong = lambda measured: dict(measured) != scenario.measured(reference.name)
    scenario.note_rules()
    scenario.find_common()
    return scenario
