"""The texts of experiments: sentences, dated facts and settings, in a TOML file beside the module with their code.

Each table of the file holds attributes of the class with its name. docs/add-a-scenario.md has an example.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import labengine.events
from labengine.config import ConfigError, GroupSpec
from labengine.events import Event
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.words_file import WordsFile, words_file

T = TypeVar("T")

_FIGURE = re.compile(r"\{([^{}:]+): ([^{}]+)\}")
"""A table's figure in a sentence: "{column name: figure name}"."""

_OTHER = re.compile(r"\{(\w+)\}")
"""Another value in a sentence: "{name}", as returned by `more`."""

_TEST = re.compile(r"(\w+)(>?=)(\S+)")
"""A stop's test of an event's field: "request_id=0", "num_tokens>=1"."""


@dataclass(frozen=True, slots=True)
class GuideStop:
    """A sentence, shown at the first event of a kind that passes the test, on either side of a comparison.

    A story reaches its stops in order: each considers only events after the previous stop.
    """

    sentence: str
    kind: type[Event]
    test: Callable[[Any], bool] = lambda event: True
    question: str = ""
    """A question about the number of used blocks at the step's end, to predict here; continuing answers it."""
    about_slots: bool = False
    """True if the sentence is about slots: the story's block tables then show each slot."""

    def matches(self, event: Event) -> bool:
        """Return True if the sentence belongs to this event."""
        return isinstance(event, self.kind) and self.test(event)


class Words(WordsFile):
    """The texts of a module's experiments: tables by class name."""

    def attributes(self, name: str, columns: Iterable[Any], known: Collection[str]) -> dict[str, Any]:
        """Return the attributes of class `name`.

        columns: the Column objects in its code, without their texts. known: names of attributes that it may have.
        """
        table = dict(self.tables.get(name, {}))
        self.refuse_unknown(table, {*known, "story"}, "attribute")
        if "columns" in table:
            table["columns"] = self._columns(table["columns"], tuple(columns))
        if "settings" in table:
            table["settings"] = _settings(table["settings"])
        if "report" in table:
            table["report"] = self._made(Report, _with_thread(table["report"]))
        if "conclusion" in table:
            passages = tuple(map(self._passage, table["conclusion"].get("passages", ())))
            table["conclusion"] = self._made(Conclusion, {**table["conclusion"], "passages": passages})
        if "wrong_event" in table:
            table["wrong_event"] = self._stop(*table["wrong_event"])
        if "guide" in table:
            table["guide"] = tuple(self._stop(*row) for row in table["guide"])
            table["sentences"] = tuple(stop.sentence for stop in table["guide"][: table.pop("story", None)])
        return {key: _as_tuple(value) for key, value in table.items()}

    def _made(self, kind: type[T], values: Mapping[str, Any]) -> T:
        self.refuse_unknown(values, [field.name for field in fields(kind)], f"field of {kind.__name__}")  # type: ignore[arg-type]
        try:
            return kind(**{key: _as_tuple(value) for key, value in values.items()})
        except TypeError as error:
            self.refuse(kind.__name__.lower(), f"{error}")

    def _columns(self, rows: list[list[str]], columns: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the columns, with these texts for those that have no name yet."""
        num_unnamed = sum(not column.name for column in columns)
        if len(rows) != num_unnamed:
            self.refuse("columns", f"the code has {num_unnamed} columns, and this file has {len(rows)}")
        left = iter(rows)
        return tuple(
            one if one.name else replace(one, **dict(zip(("name", "says"), next(left), strict=True))) for one in columns
        )

    def _passage(self, row: list[Any]) -> CodePassage | ThreadPassage:
        if len(row) == 2:
            return ThreadPassage(source=row[0], says=row[1])
        version, file, line, text, says = row
        return CodePassage(version=version, file=file, line=line, text=text, says=says)

    def _stop(self, at: str, sentence: str, question: str = "") -> GuideStop:
        """Return a stop. at: an event's kind, tests of its fields, and "slots": "BlockCached request_id=0 slots"."""
        name, *words = at.split()
        tests = [self._test(word) for word in words if word != "slots"]
        kinds = {kind.__name__: kind for kind in vars(labengine.events).values() if _is_event(kind)}
        self.refuse_unknown([name], kinds, "event")
        self.refuse_unknown(
            [field for field, _, _ in tests], [field.name for field in fields(kinds[name])], f"field of {name}"
        )
        return GuideStop(sentence, kinds[name], partial(_passes, tests), question, about_slots="slots" in words)

    def _test(self, word: str) -> tuple[str, str, str]:
        if (found := _TEST.fullmatch(word)) is None:
            self.refuse(word, f"{word!r} is not a test of a field: write field=value, field>=number or slots")
        field, sign, value = found.groups()
        return field, sign, value


def words_of(cls: type, known: Collection[str]) -> dict[str, Any]:
    """Return a class's attributes from the file beside its module; none if there is no such file.

    known: names of attributes that it may have. Raises ConfigError, with file and line, for other names.
    """
    words = _words_beside(sys.modules.get(cls.__module__))
    if words is None:
        return {}
    columns = vars(cls).get("columns", ())
    attributes = words.attributes(cls.__name__, columns, known)
    for name in attributes.keys() & vars(cls).keys() - {"columns"}:
        words.refuse(name, f"{cls.__name__} has {name!r} here and in its code: remove one of them")
    return attributes


def refuse_unused(module: ModuleType) -> None:
    """Raise ConfigError for a table in the file beside a module whose name is not one of the module's classes."""
    if words := _words_beside(module):
        words.refuse_unknown(words.tables, vars(module), "class")


def filled(template: str, columns: Mapping[str, Mapping[str, int]], more: Mapping[str, object]) -> str:
    """Fill a sentence with a table's figures, "{column: figure}", and other values, "{name}".

    Raises ConfigError for unknown names.
    """

    def figure(found: re.Match[str]) -> str:
        column, name = found.groups()
        if column not in columns or name not in columns[column]:
            known = [f"{{{one}: {figure}}}" for one, figures in columns.items() for figure in figures]
            raise ConfigError(f"no figure {found[0]} in the table: it has {', '.join(known)}")
        return str(columns[column][name])

    def other(found: re.Match[str]) -> str:
        if found[1] not in more:
            raise ConfigError(f"no {found[0]} outside the table: known are {', '.join(more) or 'none'}")
        return str(more[found[1]])

    return _OTHER.sub(other, _FIGURE.sub(figure, template))


def _words_beside(module: ModuleType | None) -> Words | None:
    file = getattr(module, "__file__", None)
    words = words_file(Path(file).with_suffix(".toml")) if file else None
    return None if words is None else Words(words.path, words.text, words.tables)


def _named(column: Any, name: str, says: str) -> Any:
    return replace(column, name=name, says=says)


def _is_event(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Event)


def _passes(tests: Iterable[tuple[str, str, str]], event: Any) -> bool:
    return all(
        str(getattr(event, field)) == value if sign == "=" else getattr(event, field) >= int(value)
        for field, sign, value in tests
    )


def _settings(table: Mapping[str, Any]) -> Mapping[str, Any]:
    settings = dict(table)
    if "groups" in settings:
        settings["groups"] = tuple(GroupSpec(*row) for row in settings["groups"])
    return MappingProxyType(settings)


def _with_thread(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report's fields; its thread, "vllm-project/vllm pull request 42289", becomes three of them."""
    rest = {key: value for key, value in report.items() if key != "thread"}
    repository, _, thread = report.get("thread", "").partition(" ")
    kind, _, number = thread.rpartition(" ")
    return {"repository": repository, "kind": kind, "number": number, **rest}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
