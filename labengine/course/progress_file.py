"""The file of a reader's progress: read leniently, written under a lock, and never touched unless it is labengine's."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.record.files.file_access import replace_file

VERSION = 1
LOCK_SECONDS = 10.0
"""Seconds to wait for another writing process."""

_MOST = 1e15

NamedScore = tuple[str, float]
"""A scored run: the name of the reader's class and its score."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """The reader's attempts at one exercise. score: the best run's; None without a scored run.

    runs: the newest scored runs, oldest first.
    """

    passed: bool = False
    tries: int = 0
    hints: int = 0
    has_seen_solution: bool = False
    score: float | None = None
    runs: tuple[NamedScore, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """A file's content. note: a sentence on what is wrong with it, or empty. document: its JSON, for rewriting."""

    attempts: Mapping[str, Attempts]
    note: str
    document: dict[str, Any]


class NotOursError(ConfigError):
    """Raised if a path leads to anything but a progress file, which stays untouched."""


class DamagedError(ConfigError):
    """Raised for a progress file that is no longer valid JSON."""


class ProgressFile:
    """A progress file. is_default: this path is labengine's, so no other program has files there."""

    def __init__(self, path: Path, *, is_default: bool = False) -> None:
        self.path, self._is_default = path, is_default

    def read(self) -> ReadProgress:
        """Return the file's content, without unreadable entries; the file does not change."""
        try:
            document = self._document()
        except (ConfigError, OSError) as error:
            text = f"{self.path} cannot be read ({type(error).__name__})" if isinstance(error, OSError) else str(error)
            return ReadProgress({}, text, {})
        attempts = {}
        for name, entry in document["exercises"].items():
            try:
                attempts[name] = _attempts(entry)
            except (TypeError, ValueError):
                continue
        num_left_out = len(document["exercises"]) - len(attempts)
        note = f"{self.path}: {num_left_out} entries cannot be read; they were left unchanged." if num_left_out else ""
        return ReadProgress(attempts, note, document)

    def change(self, changes: Iterable[tuple[str, Callable[[Attempts], Attempts]]]) -> str:
        """Change entries under a lock and atomically; return a sentence if a damaged file was moved aside.

        Other entries and unknown fields stay unchanged. Raises ConfigError if the file is not labengine's, and OSError
        or filelock.Timeout if it cannot be written.
        """
        self._refuse_special()
        target = self.path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target):
            said = ""
            try:
                document = self._document()
            except DamagedError as error:
                aside = _free_name(target)
                target.rename(aside)
                said = f"{error} It was kept as {aside}, and a new file was started."
                document = _empty()
            for name, change in changes:
                document["exercises"][name] = _changed(document["exercises"].get(name), change)
            document["exercises"] = dict(sorted(document["exercises"].items()))
            replace_file(target, json.dumps(document, indent=1).encode())
        return said

    def _document(self) -> dict[str, Any]:
        """Return the file's JSON, or an empty document if there is no file."""
        self._refuse_special()
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return _empty()
        if not raw.strip():
            return _empty()
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            if self._is_default or raw.startswith(b'{\n "version":'):
                raise DamagedError(f"{self.path} is damaged.") from None
            raise NotOursError(f"{self.path} is not a progress file, so it was left unchanged.") from None
        if not isinstance(document, dict) or not isinstance(document.get("exercises"), dict):
            raise NotOursError(f"{self.path} belongs to another program, so it was left unchanged.")
        return document

    def _refuse_special(self) -> None:
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISREG(mode):
            raise NotOursError(f"{self.path} is not a regular file, so it was left unchanged.")


def _empty() -> dict[str, Any]:
    return {"version": VERSION, "exercises": {}}


def _changed(entry: Any, change: Callable[[Attempts], Attempts]) -> dict[str, Any]:
    """Return a changed entry, with fields of newer versions kept; a value that is not an entry stays, too."""
    try:
        before = Attempts() if entry is None else _attempts(entry)
    except (TypeError, ValueError):
        before = Attempts()
        entry = {"unreadable": entry}
    after = change(before)
    return {**(entry or {}), **asdict(after), "runs": [list(run) for run in after.runs]}


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in count())
    return next(name for name in names if not name.exists() and not name.is_symlink())


def _locked(path: Path) -> AbstractContextManager[object]:
    """Return a lock on a file between processes; a browser has only one process."""
    if sys.platform == "emscripten":
        return nullcontext()
    from filelock import FileLock

    return FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_SECONDS)


def _attempts(entry: Any) -> Attempts:
    """Parse an entry of the file. Raises TypeError or ValueError for an invalid one."""
    if not isinstance(entry, dict):
        raise TypeError("an entry must be a JSON object")
    known = {name: entry[name] for name in _IS_VALID if name in entry}
    for name, value in known.items():
        if not _IS_VALID[name](value):
            raise ValueError(f"{name} is {value!r}")
    runs = tuple((name, score) for name, score in known.pop("runs", ()))
    return Attempts(**known, runs=runs)


def _is_number(value: Any) -> bool:
    """Return True for a finite number: Python's JSON also has NaN, Infinity and 1e9999."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_MOST < value < _MOST


def _is_count(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _is_run(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_number(value[1])


_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "passed": lambda value: isinstance(value, bool),
    "tries": _is_count,
    "hints": _is_count,
    "has_seen_solution": lambda value: isinstance(value, bool),
    "score": lambda value: value is None or _is_number(value),
    "runs": lambda value: isinstance(value, list) and all(map(_is_run, value)),
}
"""By field of Attempts."""
