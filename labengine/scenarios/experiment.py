"""An experiment: the same requests played in several columns, each an engine with one changed decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar

from labengine.config import ConfigError
from labengine.core.connector import Connector
from labengine.core.editions import edition
from labengine.core.parts import Parts, given_parts
from labengine.lab import Lab
from labengine.scenarios.verdict import Table
from labengine.scenarios.words import filled, words_of
from labengine.session.origin import Origin
from labengine.system.extras import require_extra


@dataclass(frozen=True)
class Column:
    """One engine of an experiment.

    parts: a class that replaces a part of the edition, or Parts with several. runner: name of a class in
    labengine.scenarios.runners, for a defect below the plan; empty for labengine's own runner. tier: makes an external
    tier for each lab; None to use the settings. says: a sentence on the column's decision and on its error, if any.
    For a scenario with its own file, name and says come from the TOML beside it.
    """

    edition: str
    parts: type | Parts | None = None
    runner: str = ""
    tier: Callable[[], Connector] | None = None
    name: str = ""
    says: str = ""

    @property
    def all_parts(self) -> Parts:
        """The edition's parts, with the column's replacements."""
        complete = edition(self.edition)
        return complete if self.parts is None else given_parts(self.parts).overriding(complete)

    def lab(self, model: str, settings: Mapping[str, Any]) -> Lab:
        """Return an empty lab of this column, without warnings: it breaks rules on purpose, as its story tells."""
        engine: dict[str, Any] = {"edition": self.edition, "parts": self.parts}
        if self.runner:
            require_extra("models", f"{self.name}, which replaces a real model's runner,")
            engine["runner"] = getattr(import_module("labengine.scenarios.runners"), self.runner)
        if self.tier is not None:
            engine["external"] = self.tier()
        lab = Lab(model, **{**settings, **engine})
        lab.session.violation_warnings.is_silent = True
        return lab


def settings(**keywords: Any) -> Mapping[str, Any]:
    """Return keywords of Lab as an experiment's settings."""
    return MappingProxyType(keywords)


class Experiment(ABC):
    """A question, the requests that answer it, and the figures to count."""

    question: ClassVar[str]
    """The table's question and title."""
    columns: ClassVar[tuple[Column, ...]]
    settings: ClassVar[Mapping[str, Any]]
    """Keywords of Lab: the pool, and other settings that the experiment needs."""
    finding: ClassVar[str] = ""
    """The answer in one or two sentences, with figures of the table as "{column name: figure name}".

    Values returned by `more` are "{name}".
    """
    figures: ClassVar[Mapping[str, Callable[[Lab], int]]]
    """The table's rows: a function for each that counts it in a played lab. Otherwise, override `measure`."""

    def __init_subclass__(cls) -> None:
        """Set the class's texts from the TOML file beside its module; see `words`."""
        super().__init_subclass__()
        known = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())}
        for name, value in words_of(cls, known).items():
            setattr(cls, name, value)

    @abstractmethod
    def play(self, lab: Lab) -> None:
        """Add the requests and take the steps, equally for every column."""

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the table's rows, counted in a played lab."""
        return {name: count(lab) for name, count in self.figures.items()}

    def answer(self, table: Table) -> str:
        """Return an answer in one or two sentences with this table's numbers; empty if there is none."""
        return filled(self.finding, table.columns, self.more(table)) if self.finding else ""

    def more(self, table: Table) -> Mapping[str, object]:
        """Return values that the finding names besides the table's figures."""
        return {}

    def settings_for(self, model: str) -> dict[str, Any]:
        """Return the settings for a model; a real model brings its own KV-cache groups."""
        return {name: value for name, value in self.settings.items() if name != "groups" or model == "simulated"}

    def column(self, name: str) -> Column:
        """Return the column of that name. Raises ConfigError for an unknown one."""
        known = {column.name: column for column in self.columns}
        if name not in known:
            raise ConfigError(f"no column {name!r}: choose from {', '.join(map(repr, known))}")
        return known[name]

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab of one column, for playing by hand."""
        return self.column(column).lab(model, self.settings_for(model))

    def played(self, column: str, model: str = "simulated") -> Lab:
        """Return a lab of one column, played to the end."""
        lab = self.lab(column, model)
        self.play(lab)
        self.note_origin(lab, column, self.play)
        return lab

    def note_origin(self, lab: Lab, column: str, play: Callable[[Lab], object]) -> None:
        """Note how a lab of a column was played, which its inputs do not show if `play` fills the tier by hand."""
        if lab.external is not None:
            make = partial(self._lab_on, column, str(lab.model))
            lab.session.origin = Origin(make, play, len(lab.inputs), lab.snapshot().step)

    def _lab_on(self, column: str, model: str, parts: Parts) -> Lab:
        """Return an empty lab of a column with other parts."""
        changed = copy(self)
        columns = (replace(known, parts=parts) if known.name == column else known for known in self.columns)
        vars(changed)["columns"] = tuple(columns)
        return changed.lab(column, model)

    def measured(self, column: str, model: str = "simulated") -> dict[str, int]:
        """Play one column and return its figures."""
        with self.played(column, model) as lab:
            return self.measure(lab)

    def table(self, model: str = "simulated") -> Table:
        """Play every column and return the table."""
        return Table(self.question, {column.name: self.measured(column.name, model) for column in self.columns})
