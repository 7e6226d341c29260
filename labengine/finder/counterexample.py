"""A counterexample: a workload on which parts go wrong, to be opened, told, and taken home as a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import partial
from html import escape
from os import PathLike
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar
from weakref import WeakSet

from labengine.config import ConfigError, shown
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.finder.alone import ending_of
from labengine.finder.as_notebook import Story, checked_name, notebook
from labengine.finder.as_scenario import scenario_of
from labengine.finder.endings import OF_THE_USER, interrupts_named, refusing_copies
from labengine.finder.judged_alone import EXIT, LOST
from labengine.finder.judgement import GRAVE, Judgement
from labengine.finder.limits import ends_soon
from labengine.finder.liveness import drain
from labengine.finder.no_return import PointOfNoReturn, point_of_no_return
from labengine.finder.operations import Repeat, TakeStep
from labengine.finder.repeats import RepeatError
from labengine.finder.report import SearchReport
from labengine.finder.sandbox import Kind
from labengine.finder.search import Found
from labengine.finder.suspects import base_of, changed_in_place
from labengine.lab import Lab
from labengine.record.files.file_access import replace_file
from labengine.record.wording import counted, listed
from labengine.scenarios.by_hand import HandMadeScenario
from labengine.session.compare.comparison import Comparison
from labengine.session.saved.assertion import Asserting, Assertion, assertion_of
from labengine.session.saved.code import to_code, to_definitions
from labengine.session.saved.definitions import External
from labengine.session.saved.facts import facts_of
from labengine.session.saved.regression import NO_RULE, RegressionTest
from labengine.session.saved.tier import base_connector, maker_text

_DERIVED = ("hash_block_size", "num_drafts", "drafter")
"""Settings of an engine that a lab takes from others."""
MORE_STEPS = 20
"""Steps that show a run without an end."""


class Counterexample:
    """The smallest workload found on which parts go wrong; truthy.

    Made by find(). Nothing in it is kept running: each lab that it returns plays the workload anew.
    """

    def __init__(self, found: Found, judgement: Judgement, report: SearchReport) -> None:
        self.report = report
        self.is_shortest = found.is_shortest
        """True if all shorter workloads in its scope were tried, and none goes wrong in this way."""
        self._case = found.case
        self._finding = found.finding
        self._judgement = judgement
        self._elsewhere: WeakSet[Lab] = WeakSet()
        self._ended: WeakSet[Lab] = WeakSet()

    def __bool__(self) -> bool:
        return True

    @property
    def kind(self) -> Kind:
        """What goes wrong: rule, raises, liveness, worse or differs."""
        return self._finding.kind

    @property
    def rule(self) -> str:
        """The broken rule, or the name of the exception; empty for another kind."""
        return self._finding.rule

    @property
    def message(self) -> str:
        """What goes wrong, in a sentence."""
        return self._finding.message

    @property
    def operations(self) -> tuple[str, ...]:
        """The workload, a line of Python each."""
        lines = map(str, self._case.workload)
        return (*lines, "lab.run()") if self._runs_to_the_end else tuple(lines)

    @property
    def _runs_to_the_end(self) -> bool:
        return self.kind in ("worse", "differs")

    @property
    def num_states(self) -> int:
        """States that the search had reached."""
        return self.report.num_states

    @property
    def parts(self) -> Parts:
        """The parts that go wrong."""
        return self._judgement.suspects.parts

    @property
    def reference(self) -> Parts:
        """The edition to compare with: the one that the parts replace decisions of, else the one held against."""
        return self._judgement.suspects.base or self._judgement.suspects.reference

    def point_of_no_return(self) -> PointOfNoReturn:
        """Return the last moment from which some continuation still ends well. Raises ConfigError for other kinds.

        Only for rule, raises and liveness: a run that is worse or differs does not end badly.
        """
        if self.kind not in GRAVE:
            raise ConfigError(f"a run that {self._HEADLINES[self.kind]} ends well: it has no point of no return")
        if self.rule in (EXIT, LOST):
            raise ConfigError("the workload ends its process: other continuations of it are not tried in this one")
        return point_of_no_return(self._case, self._judgement)

    # -- playing it ----------------------------------------------------------------------------------------------------

    def lab(self, parts: Parts | None = None) -> Lab:
        """Return a lab in which the workload has been played, with these or other parts. Close it when done."""
        lab = self._empty_lab(self.parts if parts is None else parts)
        self.play(lab)
        return lab

    def play(self, lab: Lab) -> None:
        """Do the workload in an empty lab. An exception of the last operation is kept out: it is what was found.

        So is an operation without an end: it is ended after a second. One that ends its process is left out.
        """
        for act in self.acts:
            act(lab)

    @property
    def acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """The operations as functions of a lab. The last one, and steps that show a run without end, raise nothing."""
        plays = [operation.play for operation in self._case.workload]
        if self._runs_to_the_end:
            return (*plays, Lab.run)
        if self.rule in (EXIT, LOST):
            return tuple(plays[:-1])
        more = [TakeStep().play] * (MORE_STEPS if self.rule == "liveness" else 0)
        return (*plays[:-1], *map(self._without_raising, (*plays[-1:], *more)))

    def num_elsewhere(self, lab: Lab) -> int:
        """Return 1 if the last fork or rewind of a played lab led elsewhere, else 0."""
        return int(lab in self._elsewhere)

    @property
    def ends_process(self) -> bool:
        """True if the last operation ends the process that does it."""
        return self._finding.ends_process

    def num_endings(self, lab: Lab) -> int:
        """Return 1 if the last operation ends the process of a played lab, else 0."""
        if self.rule not in (EXIT, LOST):
            return int(lab in self._ended)
        return int(any(ending_of(partial(last.play, lab)) for last in self._case.workload[-1:]))

    def _without_raising(self, act: Callable[[Lab], object]) -> Callable[[Lab], None]:
        def play(lab: Lab) -> None:
            try:
                with interrupts_named(), refusing_copies(), ends_soon():
                    act(lab)
            except OF_THE_USER:
                raise
            except RepeatError:
                self._elsewhere.add(lab)
            except Exception:
                pass
            except BaseException:
                self._ended.add(lab)

        return play

    def open(self) -> Any:
        """Return the dashboard of the played lab, at the first wrong event."""
        scenario = self.scenario()
        return scenario.open()

    def compare(self) -> Comparison:
        """Return a comparison of the parts with the reference, played."""
        return self.scenario().compare()

    @property
    def reference_tier(self) -> Callable[[], Connector] | None:
        """Return what makes the reference's external tier; None if it is the same as that of the parts."""
        return base_connector(self._judgement.suspects.make_connector)

    def _empty_lab(self, parts: Parts) -> Lab:
        lab = Lab("simulated", **self.lab_settings(), **_overriding(parts))
        lab.session.violation_warnings.is_silent = True
        return lab

    def lab_settings(self) -> dict[str, Any]:
        """Return Lab's keywords for the scope."""
        config, scope = self._case.scope.config, self._case.scope
        changed = {
            field.name: value
            for field in fields(config)
            if (value := getattr(config, field.name)) != field.default and field.name not in _DERIVED
        }
        if scope.proposer is not None:
            changed["speculation"] = scope.proposer
        if len(config.groups) == 1:
            del changed["groups"]
            changed["block_size"] = config.groups[0].block_size
        maker = self._judgement.suspects.make_connector or (None if scope.tier is None else scope.tier.make)
        return changed if maker is None else {**changed, "external": maker()}

    # -- taking it home ------------------------------------------------------------------------------------------------

    def scenario(self) -> HandMadeScenario:
        """Return it as a scenario: broken and reference columns, a table, a verdict."""
        return scenario_of(self)

    def to_code(self) -> str:
        """Return a script that plays it."""
        with self.lab() as lab:
            external = None
            with suppress(ConfigError):  # a comment then says what the script cannot make
                external = self._external
            return to_code(facts_of(lab.session), body=self._body(), external=external)

    def to_test(self, asserting: Asserting | None = None) -> str:
        """Return a file for pytest, with the overrides: it was seen red with them, and green with production's classes.

        asserting: what it asserts in place of what was found; see Lab.to_test. Raises ConfigError for what a test
        cannot carry, and where it would not catch what was found.
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
        """Return what the test is green with, None where nothing is known to be right, and its name."""
        suspects, maker = self._judgement.suspects, self._judgement.suspects.make_connector
        if maker is not None:
            tier = base_connector(maker if isinstance(maker, type) else type(maker()))
            return (None, "") if tier is None else ({_name_of(maker): tier}, tier.__name__)
        if suspects.module is not None:
            return None, f"{suspects.module.__name__} as it should be"
        is_held_against = self._runs_to_the_end or suspects.base is None
        if is_held_against and suspects.reference is not suspects.base:
            is_itself = suspects.reference is suspects.parts
            return (None if is_itself else {"PARTS": suspects.reference}), f"the parts of {suspects.reference.name}"
        return {"PARTS": None}, "production's classes"

    def to_notebook(self, path: str | PathLike[str]) -> Path:
        """Write a notebook of the counterexample: the parts' source, both engines, the point of no return, the test.

        It runs from its first cell to its last. Returns the path. Raises ConfigError for another ending than .ipynb,
        and for parts that have no text; TraceError where nothing can be written.
        """
        replace_file(checked_name(path), notebook(self._story()))
        return Path(path)

    def _story(self) -> Story:
        acts, external = self._act_lines(), self._external
        is_played = self.kind in GRAVE and self.rule not in ("endless", EXIT, LOST)
        point = self.point_of_no_return() if is_played else None
        rescued: list[str] = []
        if point is not None and point.num_operations:
            before = [*self._case.workload[: point.num_operations], *point.continuation]
            rescued = [*map(str, before), "lab.run()", "print(lab.violations)"]
        test, why_no_test = "", ""
        try:
            test = self.to_test()
        except ConfigError as error:
            why_no_test = f"There is none: {error}."
        with self._recorded() as lab:
            facts = facts_of(lab.session)
        maker = None if external is None else External("tier", external.imports, external.text)
        definitions, arguments = to_definitions(facts, [*"\n".join(acts).splitlines(), *rescued], maker)
        if external is not None:
            definitions += f"\n\n\ndef tier():\n    return {external.code}"
        is_of_the_tier = self._judgement.suspects.make_connector is not None
        return Story(
            headline=self.headline,
            message=self.message,
            found=self._how_found,
            operations=self.operations,
            definitions=definitions,
            settings=[one for one in arguments[1:] if not one.startswith("edition=")],
            edition=str(facts["settings"].get("edition", "labengine")),
            reference="" if is_of_the_tier else (base_of(self.reference) or self.reference).name.partition(",")[0],
            acts=acts,
            no_return="" if point is None else str(point),
            rescued=rescued,
            test=test,
            test_name="".join(re.findall(r"^def (test_\w+)\(", test, re.MULTILINE)),
            why_no_test=why_no_test,
            is_green_without=not is_of_the_tier and self._judgement.suspects.module is None,
        )

    def _act_lines(self) -> list[str]:
        """Return the acts as Python; what the last one raises is kept out."""
        if not self.operations:
            return []
        *before, last = self.operations
        if self.ends_process:
            last = f"print(ending_of(lambda: {last}))"
        elif self.rule == "endless":
            error = "from labengine.finder.limits import EndlessOperationError"
            last = f"{error}\n\nwith suppress(EndlessOperationError), ends_soon():\n    {last}"
        elif self._is_left_to_the_test or self.rule == "repeat":
            last = f"with suppress(Exception):\n    {last}"
        elif self.kind == "liveness":
            last = f"{last}\nfor _ in range({MORE_STEPS}):\n    lab.step()"
        return [*before, last]

    @property
    def _external(self) -> External | None:
        """Python that makes the tier. Raises ConfigError for a maker that has no text."""
        maker, tier = self._judgement.suspects.make_connector, self._case.scope.tier
        if maker is None:
            imports = () if tier is None else (f"from labengine.finder.scopes import {', '.join(_names(tier.code))}",)
            return None if tier is None else External(tier.code, imports)
        text = maker_text(maker)
        return External(f"{text['name']}()", (), text)

    def _refuse_what_no_test_carries(self) -> None:
        if self.rule == LOST:
            raise ConfigError("what ends the process is not the last workload alone, and a test would be green")
        module = self._judgement.suspects.module
        changed = () if module is None else changed_in_place(module)
        if module is not None and changed:
            raise ConfigError(
                f"{listed([*changed])} is not as in {module.__name__}'s file, and a test cannot carry that: write the "
                f"change into the file, or make it a method of a subclass and search with that"
            )

    @property
    def _is_left_to_the_test(self) -> bool:
        """True if the last operation is among the assertions."""
        return self.kind == "raises" or self.rule in ("endless", EXIT, LOST)

    def _body(self, *, is_asserted: bool = False) -> list[str] | None:
        """Return the workload as lines; None where the lab's inputs are enough: no forks and rewinds, no run."""
        workload = self._case.workload[:-1] if is_asserted else self._case.workload
        has_repeats = any(isinstance(operation, Repeat) for operation in self._case.workload)
        is_of_inputs = not has_repeats and not self._runs_to_the_end
        if is_of_inputs and (is_asserted or self.rule not in (EXIT, LOST)):
            return None
        return [*map(str, workload), *(["lab.run()"] if self._runs_to_the_end else [])]

    def _recorded(self) -> Lab:
        """Return a lab with the session that a test repeats; an operation that does not return is left to the test."""
        if not self._is_left_to_the_test:
            return self.lab()
        lab = self._empty_lab(self.parts)
        for operation in self._case.workload[:-1]:
            operation.play(lab)
        return lab

    def _assertion(self, asserting: Asserting | None) -> Assertion:
        """Return what the test asserts: what its user says, or what goes wrong."""
        lines = self._last_operation
        if asserting is not None:
            asserted = assertion_of(asserting)
            return Assertion((*lines, *asserted.lines), asserted.text)
        if not self.ends_process:
            lines = (*lines, *self._expected)
        return NO_RULE if self.kind == "rule" else Assertion(lines)

    @property
    def _last_operation(self) -> tuple[str, ...]:
        """The last operation as lines, where it is left to the test."""
        if self.ends_process:
            act = self.operations[-1] if self.operations else "None"
            return (f'assert ending_of(lambda: {act}) == ""',)
        if self.rule == "endless":
            return ("with ends_soon():", f"    {self.operations[-1]}")
        return (self.operations[-1],) if self.kind == "raises" else ()

    @property
    def _expected(self) -> tuple[str, ...]:
        """What is asserted of the lab in the end."""
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

    # -- telling it ----------------------------------------------------------------------------------------------------

    _HEADLINES: ClassVar[Mapping[Kind, str]] = {
        "rule": "breaks a rule",
        "raises": "raises",
        "liveness": "never ends",
        "worse": "is worse",
        "differs": "decides otherwise",
    }

    @property
    def headline(self) -> str:
        """One line: the parts, and what they do."""
        rule = f" ({self.rule})" if self.kind == "rule" else ""
        length = counted(len(self.operations), "operation")
        shortest = ", the fewest in its scope" if self.is_shortest else ""
        what = "ends the process" if self.ends_process else f"{self._HEADLINES[self.kind]}{rule}"
        return f"{self._who} {what} after {length}{shortest}."

    @property
    def _who(self) -> str:
        maker = self._judgement.suspects.make_connector
        return self.parts.name if maker is None else f"{self.parts.name} with {_name_of(maker)}"

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._shown_settings().items())
        workload = indent("\n".join(self.operations), "    ")
        first = self._finding.differed
        differed = f"\nThe first decision that differs: {first}." if first else ""
        lab = f"    Lab('simulated', {settings})\n{workload}"
        return f"{self.headline}\n{self.message}{differed}\n\n{lab}\n\n{self._how_found}"

    @property
    def _how_found(self) -> str:
        return f"Found after {counted(self.num_states, 'state')} in {self.report.seconds:.1f} s."

    def _repr_html_(self) -> str:
        head, message, *lines = repr(self).split("\n", 2)
        return f"<p><b>{escape(head)}</b></p><p>{escape(message)}</p><pre>{escape(''.join(lines))}</pre>"

    def _shown_settings(self) -> dict[str, Any]:
        settings = self.lab_settings()
        maker, tier = self._judgement.suspects.make_connector, self._case.scope.tier
        if maker is not None:
            settings["external"] = _Code(f"{_name_of(maker)}()")
        elif tier is not None:
            settings["external"] = _Code(tier.code)
        return settings


class _Code(str):
    """Text that is its own repr."""

    def __repr__(self) -> str:
        return str(self)


def _name_of(maker: Callable[[], Connector]) -> str:
    return str(getattr(maker, "__name__", shown(maker)))


def _names(code: str) -> list[str]:
    return sorted(set(re.findall(r"[A-Z]\w+", code)))


def _overriding(parts: Parts) -> dict[str, Any]:
    """Return Lab's keywords for parts: the edition, and the fields that differ from it."""
    for name, one in EDITIONS.items():
        if parts is one:
            return {"edition": name}
    base = base_of(parts)
    if base is None:
        return {"parts": parts}
    changed = {
        f.name: v
        for f in fields(Parts)
        if f.name != "name" and (v := getattr(parts, f.name)) is not getattr(base, f.name)
    }
    return {"edition": base.name, "parts": Parts(name=parts.name, **changed)}
