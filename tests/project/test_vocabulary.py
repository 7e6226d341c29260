"""Old words of the code and their plain ones: no file name and no part of an identifier is an old word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PLAIN_WORDS = {
    "apart": "difference, separate",
    "around": "wrapper",
    "beat": "caption",
    "beats": "captions",
    "bench": "view source",
    "benches": "view sources",
    "best": "argmax, fastest",
    "beyond": "limit",
    "chosen": "selected",
    "desk": "session",
    "disappointed": "failed",
    "given": "inputs, settings",
    "hearing": "subscribed",
    "hopeless": "failed",
    "joint": "pair",
    "later": "follow-up",
    "level": "aligned",
    "meet": "barrier",
    "over": "overriding, finished",
    "rest": "boundary, remaining",
    "shrink": "rescale",
    "sight": "visible",
    "stand": "show",
    "standing": "shown",
    "stands": "shown",
    "tell": "describe, report",
    "teller": "describer",
    "telling": "description",
    "tellings": "descriptions",
    "tells": "describes",
    "told": "described, reported, text",
    "turn": "rotation; exclusive",
    "turned": "rotated",
    "turns": "rotations; fair lock",
    "virtue": "advantage",
    "whole": "complete, all",
    "wish": "command",
    "wishes": "commands",
}
"""Each old word, and what to say instead."""

FIELD_TERMS = {
    "byte_level",
    "byte_level_tokenizer",
    "ByteLevel",
    "WordLevel",
    "setLevel",
    "StandInDevice",
    "VLLM_LOGGING_LEVEL",
    "F_SEAL_SHRINK",
    "is_over",
    "mouseover",
    "pointerover",
    "onmouseover",
    "dragover",
    "hoverover",
}
"""Identifiers of the field, of a library or of the platform that contain such a word."""

LIBRARY_NAMES = {
    "ast": {"level"},
    "hypothesis": {"given", "shrink"},
    "pip._internal.network": {"LazyZipOverHTTP"},
    "pytest": {"allow_module_level"},
}
"""Names of a library, allowed in Python files that import it."""

EXEMPT = ("labengine/deprecated.py", "tests/project/test_vocabulary.py", "tests/test_deprecated.py")
"""Files that name old words on purpose."""

SOURCES = {
    "labengine": (".py", ".c", ".h"),
    "widgets": (".py", ".js", ".ts"),
    "vllm_tap": (".py",),
    "tests": (".py", ".js", ".ts"),
    "benchmarks": (".py",),
    "tools": (".py", ".js", ".mjs"),
    "docs": (".py",),
}
"""Folders that are read, and the kinds of files in them."""

SHARED_CLASS_NAMES: dict[str, str] = {}
"""Names that several classes have, each with the reason."""

_OTHER_TEXT = re.compile(r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`", re.DOTALL)
"""Comments and strings of C, JavaScript and TypeScript."""


def words_of(identifier: str) -> list[str]:
    """Split an identifier in snake_case or CamelCase into lower-case words."""
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3 \2\4", identifier)
    return re.findall(r"[a-z]+", spaced.lower())


def identifiers_of(path: Path) -> Iterator[str]:
    """Yield the file's name and every identifier in it, without keywords, comments and strings."""
    yield path.name.partition(".")[0]
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from re.findall(r"[A-Za-z_]\w*", _OTHER_TEXT.sub(" ", text))
        return
    for node in ast.walk(ast.parse(text)):
        for _, value in ast.iter_fields(node):
            if isinstance(value, str) and not isinstance(node, ast.Constant):
                yield value


def old_words_of(path: Path) -> dict[str, str]:
    """Return the old words of a file, each with one identifier that contains it."""
    found = {}
    identifiers = set(identifiers_of(path))
    imported = [names for library, names in LIBRARY_NAMES.items() if library in identifiers]
    for identifier in identifiers.difference(FIELD_TERMS, *imported):
        found.update({word: identifier for word in words_of(identifier) if word in PLAIN_WORDS})
    return found


@pytest.mark.parametrize("folder", SOURCES)
def test_no_identifier_and_no_file_name_is_an_old_word(folder: str, project_root: Path) -> None:
    wrong = []
    for path in sorted((project_root / folder).rglob("*")):
        name = path.relative_to(project_root).as_posix()
        if path.suffix not in SOURCES[folder] or name in EXEMPT or "node_modules" in path.parts or ".min." in name:
            continue
        found = old_words_of(path)
        wrong += [f"{name}: {identifier} has {word!r} ({PLAIN_WORDS[word]})" for word, identifier in found.items()]
    assert wrong == []


def test_no_class_name_exists_twice(project_root: Path) -> None:
    found: dict[str, list[str]] = {}
    for package in ("labengine", "widgets/labengine_widgets"):
        for path in sorted((project_root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(path.relative_to(project_root).as_posix())
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and name not in SHARED_CLASS_NAMES} == {}


def test_a_name_of_a_library_is_allowed_where_it_is_imported(tmp_path: Path) -> None:
    test, other = tmp_path / "test_it.py", tmp_path / "other.py"
    test.write_text("from hypothesis import given", encoding="utf-8")
    other.write_text("given = 1", encoding="utf-8")
    assert set(old_words_of(test)) == set() and set(old_words_of(other)) == {"given"}


def test_identifiers_are_split_into_words(tmp_path: Path) -> None:
    assert words_of("HTMLTeller") == ["html", "teller"] and words_of("_told_by2Bench") == ["told", "by", "bench"]
    assert words_of("overriding") == ["overriding"], "only complete words count"
    script = tmp_path / "wishes.ts"
    script.write_text("const beat = 'desk'; // bench\n/* told */ `${virtue}`", encoding="utf-8")
    assert set(old_words_of(script)) == {"wishes", "beat"}
