"""The reader's progress: the figures kept of each exercise, and their table. Nothing is sent."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labengine.config import ConfigError, checked_path
from labengine.course.check_result import TextTable, boxed, marked
from labengine.course.progress_file import Attempts, NamedScore, ProgressFile
from labengine.record.files.file_access import replace_file

VARIABLE = "LABENGINE_PROGRESS"
"""Environment variable that names a different file."""
_EDGE = "#888888"
_HEADS = ("exercise", "passed", "tries", "hints", "solution", "best score")
_MAX_RUNS = 12
"""Scored runs kept for each exercise."""

Change = Callable[[Attempts], Attempts]

_unsaved: list[tuple[str, Change]] = []
"""Changes that could not be written yet, oldest first: an exercise's name, and a function that changes its entry."""
_warned: set[str] = set()
"""Notes already shown in this process."""


def progress_path() -> Path:
    """Return LABENGINE_PROGRESS, else XDG_DATA_HOME/labengine/progress.json, else the same in ~/.local/share."""
    if path := os.environ.get(VARIABLE):
        return Path(path).expanduser()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "labengine" / "progress.json"


def _file() -> ProgressFile:
    return ProgressFile(progress_path(), is_default=not os.environ.get(VARIABLE))


@dataclass(frozen=True, repr=False)
class ProgressTable(Mapping[str, Attempts]):
    """The reader's progress by exercise. note: a sentence on what is wrong with the file, or empty."""

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
        """A sentence on the number of passed exercises."""
        if not self.attempts:
            return "You have not tried an exercise yet: `labengine.exercise(NAME)` shows one."
        num_passed = sum(one.passed for one in self.attempts.values())
        tried = f"{num_passed} of {len(self.attempts)} tried exercises passed"
        return f"{tried}. Kept in {progress_path()}; nothing is sent."

    @property
    def table(self) -> TextTable | None:
        """A row per exercise, with a column of scores if there are any; None without exercises."""
        if not self.attempts:
            return None
        rows = [(name, *_cells(one)) for name, one in sorted(self.attempts.items())]
        rows = [_HEADS, *rows]
        has_scores = any(one.score is not None for one in self.attempts.values())
        return TextTable(rows if has_scores else [row[:-1] for row in rows])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a CSV file that can be handed in: a row per exercise. An existing file is replaced."""
        text = io.StringIO()
        rows = [(name, *_cells(one)) for name, one in sorted(self.attempts.items())]
        csv.writer(text).writerows([_HEADS, *rows])
        replace_file(checked_path("path", path), text.getvalue().encode())

    def __repr__(self) -> str:
        return "\n".join(str(part) for part in (self.headline, self.table, self.note) if part)

    def _repr_html_(self) -> str:
        note = f"<p>{marked(self.note)}</p>" if self.note else ""
        table = "" if self.table is None else self.table.html()
        return boxed(f"<p>{marked(self.headline)}</p>{table}{note}", _EDGE)


def progress() -> ProgressTable:
    """Return the reader's progress: a table of the exercises tried so far, kept only on this machine."""
    found = _file().read()
    attempts, note = dict(found.attempts), found.note
    for name, change in _unsaved:
        attempts[name] = change(attempts.get(name, Attempts()))
    if _unsaved and not note:
        note = f"{progress_path()} cannot be written, so for now new progress is kept only in this process."
    return ProgressTable(attempts, note)


def note_check(
    name: str, *, is_passed: bool, run: NamedScore | None = None, better: Callable[[float, float], float] | None = max
) -> None:
    """Count a try, with its scored run if there is one. A passed exercise stays passed.

    better: picks the score to keep of two; None for a run whose score does not count.
    """

    def counted(before: Attempts) -> Attempts:
        runs = before.runs if run is None or before.runs[-1:] == (run,) else (*before.runs, run)[-_MAX_RUNS:]
        score = before.score
        if run is not None and better is not None:
            score = run[1] if score is None else better(score, run[1])
        return replace(
            before,
            passed=before.passed or is_passed,
            tries=before.tries + 1,
            score=score,
            runs=runs,
        )

    _change(name, counted)


def note_hint(name: str, num_hints: int) -> None:
    """Note the number of hints shown."""
    _change(name, lambda before: replace(before, hints=max(before.hints, num_hints)))


def note_solution(name: str) -> None:
    """Note that the solution was shown."""
    _change(name, lambda before: replace(before, has_seen_solution=True))


def _change(name: str, change: Change) -> None:
    """Change one exercise's attempts in the file, or only in this process until the file can be written."""
    _unsaved.append((name, change))
    try:
        said = _file().change(_unsaved)
        _unsaved.clear()
    except (ConfigError, NotImplementedError, OSError) as error:
        said = f"For now, new progress is kept only in this process: {error}"
    if said and said not in _warned:
        _warned.add(said)
        warnings.warn(said, stacklevel=2)


def _cells(one: Attempts) -> tuple[str, ...]:
    passed, seen = "yes" if one.passed else "not yet", "seen" if one.has_seen_solution else ""
    return passed, str(one.tries), str(one.hints), seen, "" if one.score is None else f"{one.score:g}"
