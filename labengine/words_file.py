"""A TOML file of texts beside the code: read once; a wrong name in it is an error that gives its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from labengine.config import ConfigError


@dataclass(frozen=True)
class WordsFile:
    """A TOML file, and the tables in it by name."""

    path: Path
    text: str
    tables: Mapping[str, Mapping[str, Any]]

    def refuse(self, word: str, message: str) -> NoReturn:
        """Raise ConfigError with the line of the word."""
        lines = self.text.splitlines()
        number = next((n for n, line in enumerate(lines, 1) if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line)), 1)
        raise ConfigError(f"{self.path.name}, line {number}: {message}")

    def refuse_unknown(self, words: Iterable[str], known: Collection[str], what: str) -> None:
        """Raise ConfigError for the first unknown word, with the nearest known one."""
        for word in words:
            if word not in known:
                near = get_close_matches(word, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(sorted(known))}."
                self.refuse(word, f"unknown {what} {word!r}.{hint}")


@cache
def words_file(path: Path) -> WordsFile | None:
    """Return the file, or None if it does not exist. Raises ConfigError, with its name, for invalid TOML."""
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    try:
        return WordsFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name}: {error}") from error
