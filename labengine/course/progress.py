"""The reader's progress: one small JSON file on the reader's machine. Nothing is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from labengine.atomic_write import write_atomically
from labengine.course.check_result import TextTable, boxed, marked

VARIABLE = "LABENGINE_PROGRESS"
"""Environment variable with the path of another file."""
_VERSION = 1
_EDGE = "#888888"
_MAX_RUNS = 12
"""Scored runs that are kept of one exercise."""

NamedScore = tuple[str, float]
"""A scored run: the name of the reader's class, and its score."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """What the reader did with one exercise. score: of the newest scored run; None without one.

    runs: the newest scored runs, oldest first.
    """

    passed: bool = False
    tries: int = 0
    hints: int = 0
    has_seen_solution: bool = False
    score: float | None = None
    runs: tuple[NamedScore, ...] = ()


_unsaved: dict[str, Attempts] = {}
"""Progress of this process that could not be written, by exercise."""


def progress_path() -> Path:
    """Return LABENGINE_PROGRESS, else XDG_DATA_HOME/labengine/progress.json, else the same in ~/.local/share."""
    if path := os.environ.get(VARIABLE):
        return Path(path).expanduser()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "labengine" / "progress.json"


@dataclass(frozen=True, repr=False)
class ProgressTable(Mapping[str, Attempts]):
    """The reader's progress by exercise. note: a sentence about the file, if something is wrong with it."""

    attempts: Mapping[str, Attempts]
    note: str = ""

    def __getitem__(self, name: str) -> Attempts:
        return self.attempts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attempts)

    def __len__(self) -> int:
        return len(self.attempts)

    @property
    def headline(self) -> str:
        """How many are passed, in a sentence."""
        if not self.attempts:
            return "No exercise was tried yet: `labengine.exercise(NAME)` shows one."
        num_passed = sum(one.passed for one in self.attempts.values())
        tried = f"{num_passed} of {len(self.attempts)} tried exercises passed"
        return f"{tried}. Kept in {progress_path()}; nothing is sent."

    @property
    def table(self) -> TextTable | None:
        """A row per exercise, with a column of scores if there is a score; None without any."""
        if not self.attempts:
            return None
        rows = [(name, *_cells(one)) for name, one in sorted(self.attempts.items())]
        rows = [("exercise", "passed", "tries", "hints", "solution", "score"), *rows]
        has_scores = any(one.score is not None for one in self.attempts.values())
        return TextTable(rows if has_scores else [row[:-1] for row in rows])

    def __repr__(self) -> str:
        return "\n".join(str(part) for part in (self.headline, self.table, self.note) if part)

    def _repr_html_(self) -> str:
        note = f"<p>{marked(self.note)}</p>" if self.note else ""
        table = "" if self.table is None else self.table.html()
        return boxed(f"<p>{marked(self.headline)}</p>{table}{note}", _EDGE)


def progress() -> ProgressTable:
    """Return the reader's progress: a table of the exercises that were tried, kept on this machine only."""
    attempts, note = _read(progress_path())
    if _unsaved and not note:
        note = f"{progress_path()} cannot be written: what is new is known to this process alone."
    return ProgressTable({**attempts, **_unsaved}, note)


def note_check(name: str, *, is_passed: bool, run: NamedScore | None = None) -> None:
    """Count a try, with its scored run if there is one. An exercise once passed stays passed."""
    before = _of(name)
    runs = before.runs if run is None or before.runs[-1:] == (run,) else (*before.runs, run)[-_MAX_RUNS:]
    _write(
        name,
        replace(
            before,
            passed=before.passed or is_passed,
            tries=before.tries + 1,
            score=before.score if run is None else run[1],
            runs=runs,
        ),
    )


def note_hint(name: str, num_hints: int) -> None:
    """Note that so many hints were shown."""
    before = _of(name)
    if num_hints > before.hints:
        _write(name, replace(before, hints=num_hints))


def note_solution(name: str) -> None:
    """Note that the solution was shown."""
    _write(name, replace(_of(name), has_seen_solution=True))


def _of(name: str) -> Attempts:
    return progress().get(name, Attempts())


def _cells(one: Attempts) -> tuple[str, ...]:
    passed, seen = "yes" if one.passed else "not yet", "seen" if one.has_seen_solution else ""
    return passed, str(one.tries), str(one.hints), seen, "" if one.score is None else f"{one.score:g}"


def _read(path: Path) -> tuple[dict[str, Attempts], str]:
    """Return what the file holds, and a sentence if it is damaged. Entries that cannot be read are left out."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = content["exercises"]
        return {str(name): _attempts(entry) for name, entry in entries.items()}, ""
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"{path} cannot be read ({type(error).__name__}): {VARIABLE} can name another file."
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, f"{path} is damaged; the next check puts it aside as {_aside(path).name} and begins a new one."


def _attempts(entry: Any) -> Attempts:
    """Return an entry of the file. Raises TypeError or ValueError for one that is none."""
    if not isinstance(entry, dict):
        raise TypeError("an entry is a JSON object")
    known = {field.name: entry[field.name] for field in fields(Attempts) if field.name in entry}
    for name, value in known.items():
        if name == "runs":
            known[name] = _runs(value)
            continue
        is_number = _is_number(value)
        if name in ("passed", "has_seen_solution"):
            is_valid = isinstance(value, bool)
        else:
            is_valid = (name == "score" and (is_number or value is None)) or (isinstance(value, int) and is_number)
        if not is_valid:
            raise ValueError(f"{name} is {value!r}")
    return Attempts(**known)


def _runs(value: Any) -> tuple[NamedScore, ...]:
    """Return the runs of an entry. Raises ValueError for what are none."""
    if not isinstance(value, list) or not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and _is_number(one[1]) for one in value
    ):
        raise ValueError(f"runs is {value!r}")
    return tuple((name, score) for name, score in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _write(name: str, attempts: Attempts) -> None:
    """Write one exercise's attempts beside the others; where that fails, keep them in this process."""
    path = progress_path()
    try:
        others, note = _read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if note:
            path.replace(_aside(path))
        entries = {**others, **_unsaved, name: attempts}
        content = {"version": _VERSION, "exercises": {key: asdict(entries[key]) for key in sorted(entries)}}
        write_atomically(path, json.dumps(content, indent=1).encode())
        _unsaved.clear()
    except OSError:
        _unsaved[name] = attempts


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")
