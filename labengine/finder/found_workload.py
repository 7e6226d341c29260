"""A finding: a workload on which parts go wrong, to play and to describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from html import escape
from textwrap import indent
from typing import Any, ClassVar
from weakref import WeakSet

from labengine.config import ConfigError, shown
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.finder.judged_alone import EXIT, LOST
from labengine.finder.judgement import GRAVE, Judgement
from labengine.finder.no_return import PointOfNoReturn, point_of_no_return
from labengine.finder.operations import TakeStep
from labengine.finder.repeats import RepeatError
from labengine.finder.report import SearchReport
from labengine.finder.sandbox import Kind
from labengine.finder.search import Found
from labengine.finder.suspects import base_of
from labengine.isolation.alone import ending_of
from labengine.isolation.endings import OF_THE_USER, interrupts_named, refusing_copies
from labengine.isolation.limits import ends_soon
from labengine.lab import Lab
from labengine.record.wording import counted
from labengine.session.saved.tier import base_connector

_DERIVED = ("hash_block_size", "num_drafts", "drafter")
"""Settings of an engine that a lab derives from others."""
MORE_STEPS = 20
"""Number of steps that show a run without an end."""


class FoundWorkload:
    """The smallest workload found on which parts go wrong; each returned lab plays it from the beginning."""

    def __init__(self, found: Found, judgement: Judgement, report: SearchReport) -> None:
        self.report = report
        self.is_shortest = found.is_shortest
        """True if all shorter workloads in its scope were tried, and none has this error."""
        self._case = found.case
        self._finding = found.finding
        self._judgement = judgement
        self._elsewhere: WeakSet[Lab] = WeakSet()
        self._ended: WeakSet[Lab] = WeakSet()

    @property
    def kind(self) -> Kind:
        """The kind of error: rule, raises, liveness, worse or differs."""
        return self._finding.kind

    @property
    def rule(self) -> str:
        """The broken rule, or the name of the exception; empty for other kinds."""
        return self._finding.rule

    @property
    def message(self) -> str:
        """The error in a sentence."""
        return self._finding.message

    @property
    def operations(self) -> tuple[str, ...]:
        """The workload, one line of Python per operation."""
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
        """The edition to compare with: the parts' own edition, else the one given as `against`."""
        return self._judgement.suspects.base or self._judgement.suspects.reference

    def point_of_no_return(self) -> PointOfNoReturn:
        """Return the last moment from which some continuation still ends well. Raises ConfigError for other kinds.

        Only for rule, raises and liveness: a run that is worse or differs does not end badly.
        """
        if self.kind not in GRAVE:
            raise ConfigError(f"a run that {self._HEADLINES[self.kind]} ends well: it has no point of no return")
        if self.rule in (EXIT, LOST):
            raise ConfigError("the workload ends its process, so other continuations cannot be tried in this one")
        return point_of_no_return(self._case, self._judgement)

    # -- playing it ----------------------------------------------------------------------------------------------------

    def lab(self, parts: Parts | None = None) -> Lab:
        """Return a lab in which the workload has been played, with these or other parts. Close it when done."""
        lab = self._empty_lab(self.parts if parts is None else parts)
        self.play(lab)
        return lab

    def play(self, lab: Lab) -> None:
        """Do the workload in an empty lab. An exception of the last operation, which is the finding, is suppressed.

        An endless operation is ended after a second. An operation that ends its process is left out.
        """
        for act in self.acts:
            act(lab)

    @property
    def acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """The operations as functions of a lab. The last one, and steps that show an endless run, do not raise."""
        plays = [operation.play for operation in self._case.workload]
        if self._runs_to_the_end:
            return (*plays, Lab.run)
        if self.rule in (EXIT, LOST):
            return tuple(plays[:-1])
        more = [TakeStep().play] * (MORE_STEPS if self.rule == "liveness" else 0)
        return (*plays[:-1], *map(self._without_raising, (*plays[-1:], *more)))

    def num_elsewhere(self, lab: Lab) -> int:
        """Return 1 if the last fork or rewind of a played lab ended in a different state, else 0."""
        return int(lab in self._elsewhere)

    @property
    def ends_process(self) -> bool:
        """True if the last operation ends its process."""
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

    @property
    def reference_tier(self) -> Callable[[], Connector] | None:
        """Return the maker of the reference's external tier; None if it is the same as the parts' tier."""
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

    # -- its text ------------------------------------------------------------------------------------------------------

    _HEADLINES: ClassVar[Mapping[Kind, str]] = {
        "rule": "breaks a rule",
        "raises": "raises",
        "liveness": "never ends",
        "worse": "is worse",
        "differs": "decides differently",
    }

    @property
    def headline(self) -> str:
        """One line: the parts and their error."""
        rule = f" ({self.rule})" if self.kind == "rule" else ""
        length = counted(len(self.operations), "operation")
        shortest = ", the fewest in its scope" if self.is_shortest else ""
        what = "ends the process" if self.ends_process else f"{self._HEADLINES[self.kind]}{rule}"
        return f"{self._who} {what} after {length}{shortest}."

    @property
    def _who(self) -> str:
        maker = self._judgement.suspects.make_connector
        return self.parts.name if maker is None else f"{self.parts.name} with {name_of(maker)}"

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
            settings["external"] = _Code(f"{name_of(maker)}()")
        elif tier is not None:
            settings["external"] = _Code(tier.code)
        return settings


class _Code(str):
    """Text that is its own repr."""

    def __repr__(self) -> str:
        return str(self)


def name_of(maker: Callable[[], Connector]) -> str:
    """Return the name of a maker of connectors."""
    return str(getattr(maker, "__name__", shown(maker)))


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
