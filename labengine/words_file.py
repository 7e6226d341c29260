"""A TOML file of words that stands beside code: read once, and a wrong name in it is refused with its line."""

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
        """Raise ConfigError with the line in which the word stands."""
        lines = self.text.splitlines()
        number = next((n for n, line in enumerate(lines, 1) if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", line)), 1)
        raise ConfigError(f"{self.path.name}, line {number}: {message}")

    def refuse_unknown(self, words: Iterable[str], known: Collection[str], what: str) -> None:
        """Raise ConfigError for the first word that is not known, with the nearest that is."""
        for word in words:
            if word not in known:
                near = get_close_matches(word, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" There are {', '.join(sorted(known))}."
                self.refuse(word, f"there is no {what} {word!r}.{hint}")


@cache
def words_file(path: Path) -> WordsFile | None:
    """Return the file; None where there is none. Raises ConfigError, with its name, for text that is no TOML."""
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    try:
        return WordsFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name}: {error}") from error
