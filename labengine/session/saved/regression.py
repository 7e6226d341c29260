"""A session as a pytest test, which is seen red and green before the user gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

from labengine.config import ConfigError
from labengine.core.connector import Connector
from labengine.core.editions import LABENGINE, edition
from labengine.core.parts import Parts
from labengine.driven.model import DrivenModel
from labengine.record.wording import listed
from labengine.session.overrides_in_use import Overrides, notes_of_none
from labengine.session.saved.assertion import Asserting, Assertion, assertion_of
from labengine.session.saved.definitions import (
    External,
    checked_source,
    definition_lines,
    import_lines,
    lab_arguments,
    missing_names,
    parts_text,
    texts_of,
)
from labengine.session.saved.driven_test import patch_test
from labengine.session.saved.facts import facts_of
from labengine.session.saved.input_lines import input_lines, refuse_dropped
from labengine.session.saved.layout import call_lines, in_a_line, plain_literal
from labengine.session.saved.no_test import NoTestError
from labengine.session.saved.observed import observed, telling
from labengine.session.saved.played import Played, Script
from labengine.session.saved.stand_in import StandIn, stand_in_of
from labengine.session.saved.tier import right_tier, tier_of
from labengine.session.session import Session
from labengine.session.settings import LabSettings
from labengine.session.source_text import checked_name

NO_RULE = Assertion(("assert lab.crash is None", "assert lab.check() == []"))
"""The default assertion of a test: no step raises, and no rule is broken."""

_NOT_IN_A_TEST = ("check", "record")
"""Keywords of Lab that a test leaves at their defaults: without checks and a recording it would see less."""


@dataclass(frozen=True)
class RegressionTest:
    """A test that repeats a session and then asserts. facts: see labengine.session.saved.facts.

    says: the file's first sentence. external and body: as in to_code. right: the file's names with the values that make
    the test green, PARTS = None by default; None if no right values are known. stand_in: replaces a session with
    weights. overrides: their effect in the session.
    """

    facts: Mapping[str, Any]
    says: str
    assertion: Assertion = NO_RULE
    name: str = "session"
    external: External | None = None
    body: Sequence[str] | None = None
    right: Mapping[str, Any] | None = field(default_factory=lambda: {"PARTS": None})
    right_name: str = "production's classes"
    stand_in: StandIn | None = None
    overrides: Overrides = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The name of the test's function."""
        return f"test_{self.name}"

    def text(self) -> str:
        """Return the file. Raises ConfigError if it cannot contain all that the session uses."""
        settings = {name: value for name, value in self.facts["settings"].items() if name not in _NOT_IN_A_TEST}
        comments, arguments = lab_arguments({**self.facts, "settings": settings}, self.external)
        texts = [*texts_of(self.facts, self.external), *([self.assertion.text] if self.assertion.text else [])]
        if missing := missing_names(texts):
            raise ConfigError(
                f"a test cannot contain {listed(missing)}: names that classes use must be imports, plain values, or "
                "functions or classes with source; move them into a module or into the class"
            )
        if comments:
            raise ConfigError(f"a test cannot contain {'; '.join(one.removeprefix('# ') for one in comments)}")
        body = [*(input_lines(self.facts, None) if self.body is None else self.body), *self.assertion.lines]
        lines = [
            f'"""{in_a_line(self.says).replace(chr(92), "").replace(chr(34), chr(39))}"""',
            "",
            *import_lines(texts, body, self.external),
            *definition_lines(texts),
            self._comment,
            f"PARTS = {parts_text(self.facts['parts'])}",
            "",
            "",
            f"def {self.function}():",
            *(f"    {line}" for line in call_lines("with labengine.Lab", [*arguments, "parts=PARTS"], " as lab:")),
            *(f"        {line}" for line in body),
        ]
        return checked_source("\n".join(lines) + "\n")

    @property
    def _comment(self) -> str:
        if self.facts["parts"] is not None and self.right is not None and self.right.get("PARTS", "") is None:
            return "# With PARTS = None, the production classes, the test passes."
        if self.external is not None and self.external.text is not None:
            return f"# The test passes when {checked_name(self.external.text['name'])} is right."
        return f"# The test passes with {in_a_line(self.right_name)}."

    def seen_both_ways(self) -> str:
        """Return the file, after running it: red as it is, green with the right names.

        Raises NoTestError if it is not, or cannot be run.
        """
        red = self._played({})
        if red.ending == "lost":
            raise NoTestError(
                f"a test of this session would not end: {red.said}. labengine.find(...).to_test() writes tests that "
                "limit each step"
            )
        if red.ending == "passed":
            raise self._not_red()
        if self.right is not None and (green := self._played(self.right)).ending != "passed":
            raise self._not_green(green)
        return self.text()

    def _played(self, right: Mapping[str, Any], **known: Any) -> Played:
        """Run the test with other values of these names."""
        stand_in = self.stand_in

        def prepare(names: dict[str, Any]) -> None:
            names.update(right)
            if stand_in is not None:
                names["labengine"] = stand_in.on_tokens(names["labengine"])

        run = self if stand_in is None else replace(self, facts=stand_in.facts)
        return Script(run.text(), self.function, prepare, known).played()

    def _not_red(self) -> NoTestError:
        suggestion = self._suggestion()
        what = "no rule is broken here"
        if self.assertion is not NO_RULE:
            what = f"the assertion also holds with your classes ({in_a_line(' '.join(self.assertion.lines))})"
        if suggestion:
            return NoTestError(f"{what}: add an assertion, such as to_test(asserting={suggestion!r})", suggestion)
        alike = "" if suggestion is None else f", and {self.right_name} would decide the same on these requests"
        notes = notes_of_none(self.overrides) if suggestion is not None else []
        return NoTestError(
            " ".join([f"{what}{alike}: the test would always pass.", *notes])
            + f" Add requests for which the classes matter ({self._find_call} searches for them), or add an assertion, "
            "to_test(asserting=...)"
        )

    @property
    def _find_call(self) -> str:
        """The call that searches for requests on which the session's classes matter."""
        classes = (self.facts["parts"] or {"classes": {}})["classes"].values()
        arguments = [checked_name(cls["name"]) for cls in classes]
        arguments = arguments if len(arguments) < 2 else ["lab.parts"]
        if self.external is not None and self.external.text is not None:
            arguments.append(f"{'external=' * bool(arguments)}{checked_name(self.external.text['name'])}")
        if (name := self.facts["settings"].get("edition", LABENGINE.name)) != LABENGINE.name:
            arguments.append(f"against={plain_literal(name)}")
        return f"labengine.find({', '.join(arguments)})"

    def _not_green(self, green: Played) -> NoTestError:
        suggestion = self._suggestion() or ""
        hint = f", such as to_test(asserting={suggestion!r})" if suggestion else ", to_test(asserting=...)"
        return NoTestError(
            f"the test also fails with {self.right_name}: {green.said}. Add an assertion that holds there{hint}",
            suggestion,
        )

    def _suggestion(self) -> str | None:
        """Return an assertion that tells the run from the right one; empty if they are alike, None if unknown."""
        if self.right is None:
            return None
        looking = replace(self, assertion=Assertion(("SEEN.append(observed(lab))",)))
        runs = [looking._played(names, observed=observed) for names in ({}, self.right)]
        return telling(*(one.seen[0] for one in runs)) if all(one.seen for one in runs) else None


def session_test(session: Session, asserting: Asserting | None, other: Parts | None = None) -> str:
    """Return a test of a lab's session, seen both ways; see Lab.to_test.

    other: the right parts if the lab has no overrides; by default those of labengine's edition.
    """
    if isinstance(session.model, DrivenModel):
        return patch_test(session, session.model, asserting)
    settings, facts = session.settings, facts_of(session)
    refuse_dropped(facts)
    _refuse_what_no_test_repeats(settings)
    connector = settings.external if isinstance(settings.external, Connector) else None
    right, right_name = _right(facts, connector, other or LABENGINE)
    expected = "no rule is broken, and no step raises" if asserting is None else "as asserted"
    return RegressionTest(
        facts,
        says=f"{session.inspection.title}: {expected}.",
        assertion=NO_RULE if asserting is None else assertion_of(asserting),
        external=None if connector is None else tier_of(connector),
        right=right,
        right_name=right_name,
        stand_in=stand_in_of(session, facts),
        overrides=session.inspection.overrides,
    ).seen_both_ways()


def _refuse_what_no_test_repeats(settings: LabSettings) -> None:
    if settings.runner is not None:
        raise NoTestError(
            "a test checks decisions and cannot see the tensors that a runner computes: compare those with lab.rerun, "
            "or make the lab without runner="
        )
    if isinstance(settings.external, (str, PathLike)) and settings.external != "host":
        raise NoTestError(
            "a tier on disk still holds blocks of earlier runs, so a test would not repeat this one: make the lab with "
            'external="host"'
        )


def _right(facts: Mapping[str, Any], connector: Connector | None, other: Parts) -> tuple[dict[str, Any] | None, str]:
    """Return the names that make a test green, and a description. NoTestError for a lab without replaced classes."""
    tier = right_tier(connector)
    if facts["parts"] is not None:
        return {"PARTS": None, **tier}, "production's classes"
    if connector is not None and not type(connector).__module__.startswith("labengine."):
        return tier or None, " and ".join(cls.__name__ for cls in tier.values())
    settings = facts["settings"]
    if other is not edition(settings.get("edition", LABENGINE.name), settings.get("policy", "fcfs")):
        return {"PARTS": other}, f"the parts of {other.name}"
    raise NoTestError(
        "this lab has the production classes, with which a test always passes, so it would catch nothing. "
        "Override one of them, lab.rerun(YourClass).right.to_test(), or make the lab with parts="
    )
