"""A counterexample: a workload on which parts go wrong, as a dashboard, a text and a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.core.editions import LABENGINE
from labengine.finder import as_notebook
from labengine.finder.as_notebook import Cell, checked_name, notebook
from labengine.finder.found_workload import MORE_STEPS, FoundWorkload, name_of
from labengine.finder.judged_alone import EXIT, LOST
from labengine.finder.judgement import GRAVE
from labengine.finder.liveness import drain
from labengine.finder.operations import Repeat
from labengine.finder.suspects import base_of, changed_in_place
from labengine.lab import Lab
from labengine.record.files.file_access import replace_file
from labengine.record.wording import listed
from labengine.scenarios.by_hand import HandMadeScenario, hand_made
from labengine.scenarios.scenario import Column
from labengine.session.compare.comparison import Comparison
from labengine.session.saved.assertion import Asserting, Assertion, assertion_of
from labengine.session.saved.code import to_code, to_definitions
from labengine.session.saved.definitions import External
from labengine.session.saved.facts import facts_of
from labengine.session.saved.regression import NO_RULE, RegressionTest
from labengine.session.saved.tier import base_connector, maker_text

_ELSEWHERE = "repeats that lead elsewhere"
_ENDINGS = "ends of the process"
"""Figures of the counterexample's scenario."""


class Counterexample(FoundWorkload):
    """The smallest workload found on which parts go wrong; truthy.

    Made by find(). It keeps nothing running: each returned lab plays the workload from the beginning.
    """

    def __bool__(self) -> bool:
        return True

    def open(self) -> Any:
        """Return the dashboard of the played lab, at the first wrong event."""
        scenario = self.scenario()
        return scenario.open()

    def compare(self) -> Comparison:
        """Return a comparison of the parts with the reference, played."""
        return self.scenario().compare()

    # -- exports -------------------------------------------------------------------------------------------------------

    def scenario(self) -> HandMadeScenario:
        """Return a scenario with the parts in the broken column and the reference in the fixed one."""
        name = self.reference.name
        columns = (
            Column(LABENGINE.name, self.parts, name="yours", says="The parts that go wrong."),
            Column(
                LABENGINE.name,
                self.reference,
                tier=self.reference_tier,
                name=name,
                says="The edition that they are compared with.",
            ),
        )
        roles = ("your parts", "the reference")
        scenario = hand_made("found", self.headline.rstrip("."), self.message, columns, roles)
        scenario.acts, scenario.lab_settings = self.acts, self.lab_settings
        if self.ends_process:
            scenario.more_figures = lambda lab: {_ENDINGS: self.num_endings(lab)}
            scenario.wrong = lambda measured: measured[_ENDINGS] > 0
        elif self.rule == "repeat":
            scenario.more_figures = lambda lab: {_ELSEWHERE: self.num_elsewhere(lab)}
            scenario.wrong = lambda measured: measured[_ELSEWHERE] > 0
        elif self.kind == "liveness":
            scenario.wrong = lambda measured: measured["requests not finished"] > 0
        elif self.kind in ("worse", "differs"):
            scenario.wrong = lambda measured: dict(measured) != scenario.measured(name)
        scenario.note_rules()
        scenario.find_common()
        return scenario

    def to_code(self) -> str:
        """Return a script that plays the workload."""
        with self.lab() as lab:
            external = None
            with suppress(ConfigError):  # a comment then says what the script cannot make
                external = self._external
            return to_code(facts_of(lab.session), body=self._body(), external=external)

    def to_test(self, asserting: Asserting | None = None) -> str:
        """Return a pytest file with the overrides, after seeing it red with them and green with production's classes.

        asserting: replaces the assertion of the finding; see Lab.to_test. Raises ConfigError if a test cannot contain
        all that it uses, or would not catch the finding.
        """
        self._refuse_what_no_test_carries()
        right, right_name = self._right
        with self._recorded() as lab:
            return RegressionTest(
                facts_of(lab.session),
                says=f"{self._who}: {self.message}.",
                assertion=self._assertion(asserting),
                name=re.sub(r"\W+", "_", self.parts.name).strip("_").lower() or "parts",
                external=self._external,
                body=self._body(is_asserted=self._is_left_to_the_test),
                right=right,
                right_name=right_name,
            ).seen_both_ways()

    @property
    def _right(self) -> tuple[dict[str, Any] | None, str]:
        """Return the names that make the test green (None if unknown), and a description."""
        suspects, maker = self._judgement.suspects, self._judgement.suspects.make_connector
        if maker is not None:
            tier = base_connector(maker if isinstance(maker, type) else type(maker()))
            return (None, "") if tier is None else ({name_of(maker): tier}, tier.__name__)
        if suspects.module is not None:
            return None, f"a correct {suspects.module.__name__}"
        is_held_against = self._runs_to_the_end or suspects.base is None
        if is_held_against and suspects.reference is not suspects.base:
            is_itself = suspects.reference is suspects.parts
            return (None if is_itself else {"PARTS": suspects.reference}), f"the parts of {suspects.reference.name}"
        return {"PARTS": None}, "production's classes"

    def to_notebook(self, path: str | PathLike[str]) -> Path:
        """Write a notebook of the counterexample: the parts' source, both engines, the point of no return, the test.

        It runs from its first cell to its last. Returns the path. Raises ConfigError for a path without .ipynb, and for
        parts without a source; TraceError if the file cannot be written.
        """
        replace_file(checked_name(path), notebook(self._cells()))
        return Path(path)

    def _cells(self) -> Iterator[Cell]:
        acts, external, point, lines = self._act_lines(), self._external, None, list[str]()
        if self.kind in GRAVE and self.rule not in ("endless", EXIT, LOST):
            point = self.point_of_no_return()
        if point is not None and point.num_operations:
            before = [*self._case.workload[: point.num_operations], *point.continuation]
            lines = [*map(str, before), "lab.run()", "print(lab.violations)"]
        with self._recorded() as lab:
            facts = facts_of(lab.session)
        maker = None if external is None else External("tier", external.imports, external.text)
        definitions, arguments = to_definitions(facts, [*"\n".join(acts).splitlines(), *lines], maker)
        if external is not None:
            definitions += f"\n\n\ndef tier():\n    return {external.code}"
        suspects, edition = self._judgement.suspects, str(facts["settings"].get("edition", "labengine"))
        settings = [one for one in arguments[1:] if not one.startswith("edition=")]
        yield as_notebook.told(self.headline, self.message, self.operations, self._how_found)
        yield "markdown", "## The parts\n\nThe next cell only defines them."
        yield "code", definitions
        yield (
            "markdown",
            "## The run\n\nA broken rule is red, with its event and method; ask *Why?* about any event.",
        )
        yield as_notebook.playing(acts)
        if suspects.make_connector is None:
            reference = (base_of(self.reference) or self.reference).name.partition(",")[0]
            yield as_notebook.side_by_side(self.message, edition, reference, settings)
        else:
            yield as_notebook.alone(edition, settings)
        if point is not None:
            yield from as_notebook.rescued(str(point), lines, edition, settings)
        yield from self._test_cells()

    def _test_cells(self) -> Iterator[Cell]:
        suspects, title = self._judgement.suspects, "## The regression test\n\n"
        try:
            test = self.to_test()
        except ConfigError as error:
            yield "markdown", title + as_notebook.plain(f"None could be written: {error}.")
            return
        yield "markdown", f"{title}Save it unchanged for pytest."
        is_green_without = suspects.make_connector is None and suspects.module is None
        yield from as_notebook.tested(test, is_green_without=is_green_without)

    def _act_lines(self) -> list[str]:
        """Return the acts as Python; exceptions of the last one are suppressed."""
        if not self.operations:
            return []
        *before, last = self.operations
        if self.ends_process:
            last = f"print(ending_of(lambda: {last}))"
        elif self.rule == "endless":
            error = "from labengine.isolation.limits import EndlessOperationError"
            last = f"{error}\n\nwith suppress(EndlessOperationError), ends_soon():\n    {last}"
        elif self._is_left_to_the_test or self.rule == "repeat":
            last = f"with suppress(Exception):\n    {last}"
        elif self.kind == "liveness":
            last = f"{last}\nfor _ in range({MORE_STEPS}):\n    lab.step()"
        return [*before, last]

    @property
    def _external(self) -> External | None:
        """Python that makes the tier. Raises ConfigError for a maker without a source."""
        maker, tier = self._judgement.suspects.make_connector, self._case.scope.tier
        if maker is None:
            imports = () if tier is None else (f"from labengine.finder.scopes import {', '.join(_names(tier.code))}",)
            return None if tier is None else External(tier.code, imports)
        text = maker_text(maker)
        return External(f"{text['name']}()", (), text)

    def _refuse_what_no_test_carries(self) -> None:
        if self.rule == LOST:
            raise ConfigError("the last workload by itself does not end the process, so a test would pass")
        module = self._judgement.suspects.module
        changed = () if module is None else changed_in_place(module)
        if module is not None and changed:
            raise ConfigError(
                f"{listed([*changed])} differs from {module.__name__}'s file, and a test cannot contain the change: "
                f"put it in the file, or make it a method of a subclass and search with that"
            )

    @property
    def _is_left_to_the_test(self) -> bool:
        """True if the last operation is among the assertions."""
        return self.kind == "raises" or self.rule in ("endless", EXIT, LOST)

    def _body(self, *, is_asserted: bool = False) -> list[str] | None:
        """Return the workload as lines; None if the lab's inputs are enough: no forks and rewinds, no run."""
        workload = self._case.workload[:-1] if is_asserted else self._case.workload
        has_repeats = any(isinstance(operation, Repeat) for operation in self._case.workload)
        is_of_inputs = not has_repeats and not self._runs_to_the_end
        if is_of_inputs and (is_asserted or self.rule not in (EXIT, LOST)):
            return None
        return [*map(str, workload), *(["lab.run()"] if self._runs_to_the_end else [])]

    def _recorded(self) -> Lab:
        """Return a lab with the session for a test to repeat, without an operation that does not return."""
        if not self._is_left_to_the_test:
            return self.lab()
        lab = self._empty_lab(self.parts)
        for operation in self._case.workload[:-1]:
            operation.play(lab)
        return lab

    def _assertion(self, asserting: Asserting | None) -> Assertion:
        """Return the user's assertion, or one that fails because of the finding."""
        lines = self._last_operation
        if asserting is not None:
            asserted = assertion_of(asserting)
            return Assertion((*lines, *asserted.lines), asserted.text)
        if not self.ends_process:
            lines = (*lines, *self._expected)
        return NO_RULE if self.kind == "rule" else Assertion(lines)

    @property
    def _last_operation(self) -> tuple[str, ...]:
        """The last operation as lines, if it is among the assertions."""
        if self.ends_process:
            act = self.operations[-1] if self.operations else "None"
            return (f'assert ending_of(lambda: {act}) == ""',)
        if self.rule == "endless":
            return ("with ends_soon():", f"    {self.operations[-1]}")
        return (self.operations[-1],) if self.kind == "raises" else ()

    @property
    def _expected(self) -> tuple[str, ...]:
        """The assertions on the lab's final state."""
        if self.kind == "liveness" and self.rule != "endless":
            return ('assert all(request.status == "finished" for request in lab.snapshot().requests.values())',)
        if not self._runs_to_the_end:
            return ("assert lab.check() == []",)
        sandbox = self._judgement.sandbox(self._case.scope, self._judgement.suspects.reference)
        sandbox.run(self._case.workload)
        drain(sandbox)
        if self.kind == "differs":
            return (f"assert decisions(lab) == {sandbox.tally.decisions!r}",)
        cost = sandbox.tally.cost()
        return (
            f"assert cost(lab).hit_tokens >= {cost.hit_tokens}",
            f"assert cost(lab).computed_tokens <= {cost.computed_tokens}",
            f"assert cost(lab).peak_used_blocks <= {cost.peak_used_blocks}",
            f"assert cost(lab).num_steps <= {cost.num_steps}",
        )


def _names(code: str) -> list[str]:
    return sorted(set(re.findall(r"[A-Z]\w+", code)))
