"""A counterexample as a scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from labengine.core.parts import Parts
from labengine.events import ForwardRan, PrefixHit, StepFailed
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, Scenario


class FoundWorkload(Protocol):
    """The parts of a counterexample that a scenario needs."""

    @property
    def headline(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def parts(self) -> Parts: ...
    @property
    def reference(self) -> Parts: ...
    @property
    def acts(self) -> tuple[Callable[[Lab], Any], ...]: ...
    def lab_settings(self) -> dict[str, Any]: ...
    def play(self, lab: Lab) -> None: ...


def scenario_of(found: FoundWorkload) -> Scenario:
    """Return a scenario whose broken column has the parts and whose fixed one the reference."""
    reference = found.reference
    names = ("yours", reference.name)
    num_common = 0

    class FoundScenario(Scenario):
        """The workload of a search."""

        id, title = "found", found.headline.rstrip(".")
        url = ""
        claim = found.message
        engine, kind, breaks = "yours", found.kind, found.message
        question = "What does the workload come to?"
        sentences = (found.message,)
        roles = ("what you gave", "what it is held against")
        columns = (
            Column(names[0], found.parts, "The parts that go wrong."),
            Column(names[1], reference, "The edition that they are held against."),
        )
        settings: ClassVar[Mapping[str, Any]] = found.lab_settings()

        def settings_for(self, model: str) -> dict[str, Any]:
            """Return the settings, with a connector of its own for each lab."""
            return found.lab_settings()

        def play(self, lab: Lab) -> None:
            found.play(lab)

        def opening(self, lab: Lab) -> None:
            """Play as far as both sides can be compared: after as many steps."""
            for act in found.acts[:num_common]:
                act(lab)

        def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
            """Return the operations that only one of the sides does."""
            return found.acts[num_common:]

        def measure(self, lab: Lab) -> dict[str, int]:
            """Count broken rules, failed steps, and costs."""
            assert lab.timeline is not None
            return {
                "rules broken": len({violation.rule for violation in lab.violations}),
                "failed steps": len(lab.timeline.of_kind(StepFailed)),
                "requests not finished": sum(r.status != "finished" for r in lab.snapshot().requests.values()),
                "tokens found in the cache": sum(event.num_tokens for event in lab.timeline.of_kind(PrefixHit)),
                "tokens computed": sum(event.num_tokens for event in lab.timeline.of_kind(ForwardRan)),
                "peak of used blocks": lab.stats().peak_used_blocks,
            }

        def is_wrong(self, measured: Mapping[str, int]) -> bool:
            """Return whether the column shows what was found."""
            if found.kind in ("rule", "raises"):
                return bool(measured["rules broken"] or measured["failed steps"])
            if found.kind == "liveness":
                return measured["requests not finished"] > 0
            return dict(measured) != self.measured(names[1])

    scenario = FoundScenario()
    with scenario.lab(names[0]) as yours, scenario.lab(names[1]) as other:
        for act in found.acts:
            act(yours)
            act(other)
            if yours.snapshot().step != other.snapshot().step:
                break
            num_common += 1
    return scenario
