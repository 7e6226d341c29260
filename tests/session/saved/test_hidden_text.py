"""Hidden text: invisible characters of a saved file never get out, and its code reads as it runs."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from check.mutations import FreesWithoutRepointing
from hidden_texts import HIDING, hidden_in
from json_places import Place, places, value_at, with_texts, with_value
from labengine import Lab, Parts
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.core.free_queue import FreeQueue
from labengine.record.files.parsing import TraceError
from labengine.session.saved.trace import Trace
from labengine.session.source_text import checked_import, checked_name

PROMPT = "Once upon a time there was a king who had a daughter"
FACTS = 1
"""The line of a file with a run's facts."""


class Raises(FreeQueue):
    """Raises at its second call in a lab."""

    def take(self, num_blocks: int) -> list[int]:
        if len(self) < 16:
            raise KeyError("a part's text")
        return super().take(num_blocks)


def violating(path: Path) -> None:
    parts = Parts(name="mine", full_attention_group=FreesWithoutRepointing)
    with Lab("simulated", num_blocks=16, block_size=4, parts=parts) as lab:
        for _ in "AB":
            lab.add(PROMPT, max_tokens=6, cache_salt="salt")
        lab.add("x y z", max_tokens=2, extra_keys={"lora": "a"})
        with pytest.warns(UserWarning):
            for _ in range(5):
                lab.step()
        lab.abort(2)
        lab.save(path)


def crashing(path: Path) -> None:
    with Lab("simulated", num_blocks=16, block_size=4, parts=Parts(free_queue=Raises)) as lab:
        lab.add(PROMPT, max_tokens=9)
        lab.add("another prompt of some words that is here", max_tokens=9)
        with pytest.raises(KeyError):
            for _ in range(20):
                lab.step()
        lab.save(path)


RUNS: dict[str, Callable[[Path], None]] = {"violation": violating, "crash": crashing}


@pytest.fixture(scope="module", params=RUNS)
def lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return the lines of a saved run in which something goes wrong."""
    return saved_lines(request.param, tmp_path_factory.mktemp("runs"))


def saved_lines(run: str, folder: Path) -> list[bytes]:
    RUNS[run](path := folder / "run.lab")
    return gzip.decompress(path.read_bytes()).split(b"\n")


def with_line(lines: list[bytes], number: int, document: Any, path: Path) -> Path:
    changed = [*lines[:number], json.dumps(document).encode(), *lines[number + 1 :]]
    path.write_bytes(gzip.compress(b"\n".join(changed), 1))
    return path


def commands(path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    for command in ("open", "doctor", "attach", "conform"):
        main([command, str(path)])
        said = capsys.readouterr()
        yield command, said.out + said.err


def texts_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every output of an opened trace, its code last."""
    trace = labengine.open(path)
    yield "trace", "\n".join((repr(trace), trace.title, trace.edition, trace.note, str(trace.crash)))
    yield "violations", "\n".join((*map(str, trace.violations), *map(repr, trace.violations)))
    yield "names", repr(trace.request_names)
    yield "doctor", repr(labengine.doctor(trace))
    subjects: list[tuple[str, int]] = [("block", i) for i in range(8)]
    subjects += [("request", i) for i in trace.fold().requests]
    subjects += [("event", i) for i in range(0, trace.timeline.end, 3)]
    for name, number in subjects:
        try:
            yield "why", str(trace.why(**{name: number}))
        except ValueError as error:
            yield "why", str(error)
    yield "seams", json.dumps(trace.view_source().seams(), ensure_ascii=False)
    yield "picture", trace.show()._repr_mimebundle_()[0]["text/plain"]
    yield "tokens", "".join(map(trace.token_text, range(20)))
    yield "moves", f"{trace.goto(1)}{trace.back()!r}{trace.forward()!r}"
    yield "code", trace.to_code()


def leaks_of(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return hidden characters in any output of a file, and code that is not Python."""
    leaks = [f"{name}: {found}" for name, text in commands(path, capsys) if (found := hidden_in(text))]
    try:
        for name, text in texts_of(path):
            leaks += [f"{name}: {found}"] if (found := hidden_in(text)) else []
            if name == "code":
                ast.parse(text)
    except ConfigError as error:
        leaks += [f"refusal: {found}"] if (found := hidden_in(str(error))) else []
    return leaks


def kind_of(place: Place) -> Place:
    """Return a place without high indexes and names of events and classes, below which all are read in the same way."""
    return tuple("*" if (one > 6 if isinstance(one, int) else one[:1].isupper()) else one for one in place)


def hostile(document: Any, seen: set[Place], line: int) -> Iterator[tuple[Place, Any]]:
    """Yield copies of a line with one hiding text or name, of each kind that is not seen yet; and with all of them."""
    for place in places(document):
        kind = line, *kind_of(place)
        if kind in seen:
            continue
        seen.add(kind)
        value = value_at(document, place)
        if isinstance(value, str):
            yield place, with_value(document, place, value[:3] + HIDING + value[3:])
        if isinstance(place[-1], str):
            copy = with_value(document, place, value)
            parent = value_at(copy, place[:-1])
            parent[f"{place[-1]}{HIDING}"] = parent.pop(place[-1])
            yield place, copy
    yield ("all texts",), with_texts(document, lambda text: text + HIDING)


def test_nothing_of_the_facts_hides(lines: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(lines[FACTS])
    facts |= {name: facts[name] + HIDING for name in ("title", "edition")}
    facts |= {"note": HIDING, "num_violations": HIDING, "request_names": {"0": HIDING, "9" * 5_000: HIDING}}
    facts["code"] = with_texts(facts["code"], lambda text: f"{text}{HIDING}")
    path = with_line(lines, FACTS, facts, tmp_path / "run.lab")
    assert "x·[2K·[1A" in labengine.open(path).title
    assert leaks_of(path, capsys) == []


def test_nothing_of_the_events_hides(lines: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = next(i for i, line in enumerate(lines) if i > FACTS + 2 and b"RequestAdded" not in line and b"[[" in line)
    for i in range(number, len(lines) - 1):
        document = json.loads(lines[i])
        if document is not None:
            changed = with_texts(document, lambda text: text if text.isalnum() else text + HIDING)
            path = with_line(lines, i, changed, tmp_path / "run.lab")
            assert leaks_of(path, capsys) == []


@pytest.mark.sweep
def test_no_text_of_a_file_hides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, num_tried, found = set[Place](), 0, []
    for lines in (saved_lines(run, tmp_path) for run in RUNS):
        for number, line in enumerate(lines):
            for place, document in hostile(json.loads(line), seen, number):
                path = with_line(lines, number, document, tmp_path / "run.lab")
                found += [f"line {number}, {place}: {leak}" for leak in leaks_of(path, capsys)]
                num_tried += 1
    assert num_tried > 300 and found == []


# -- code --------------------------------------------------------------------------------------------------------------


def trace_with(lines: list[bytes], path: Path, what: str, text: str) -> Trace:
    """Return a trace with a text among a class's imports or definitions."""
    facts = json.loads(lines[FACTS])
    next(iter(facts["parts"]["classes"].values()))[what].append(text)
    return labengine.open(with_line(lines, FACTS, facts, path))


REFUSED = (
    "x = 1\x1b[2K\x1b[1A",
    "x = r'\x1b'",
    "x = '\\\x1b'",
    "if True:\n\x0c    x = 1",
    "\u202ex = 1",
    "x\u3164 = 1",
    "x = '\x00'",
    "'''\u202e",
    "x = [\u2028]",
    "x\ufe00 = 1",
    "x = '\U000e0100'",
    "# \xa0",
    f"x = 1{' ' * 200}; y = 2",
    "x = 1\n" + "\n" * 3_000 + "y = 2",
)


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_a_file_whose_code_hides_something_is_neither_shown_nor_run(
    text: str, lines: list[bytes], tmp_path: Path
) -> None:
    trace = trace_with(lines, tmp_path / "run.lab", "definitions", text)
    for call in (trace.to_code, lambda: trace.rerun(trust=True)):
        with pytest.raises(ConfigError, match="hides text"):
            call()
    assert repr(trace) and trace.why(block=0), "it can be looked at"


@pytest.mark.parametrize(
    "line", ["import os\nprint(1)", "print(1)", "# coding: utf-7", "import os; print(1)", "import os \x1b", "", 7]
)
def test_an_import_is_an_import(line: object, lines: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not an import"):
        checked_import(line)
    with pytest.raises(TraceError):
        trace_with(lines, tmp_path / "run.lab", "imports", line).to_code()  # type: ignore[arg-type]


def test_a_title_names_no_encoding(lines: list[bytes], tmp_path: Path) -> None:
    """A file's first comment may say how Python decodes it: in utf-7, comments and texts would be other code."""
    facts = {**json.loads(lines[FACTS]), "title": "-*- coding: utf-7 -*- coding=utf-7 +AAo-print(1)"}
    code = labengine.open(with_line(lines, FACTS, facts, tmp_path / "run.lab")).to_code()
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    compile(script.read_bytes(), "script", "exec")
    assert (
        "coding :" in code
        and "coding =" in code
        and ast.dump(ast.parse(script.read_bytes())) == ast.dump(ast.parse(code))
    )


@pytest.mark.parametrize("name", ["\u3164", "a\uffa0", "a\ufe0f", "a b", "", "1a"])
def test_a_name_is_seen(name: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        checked_name(name)


def test_text_in_other_scripts_stays_usable(tmp_path: Path) -> None:
    name = "עברית عربى 👩\u200d👩\u200d👧 日本"
    with Lab("simulated", parts=Parts(name=name), num_blocks=12, block_size=4) as lab:
        lab.save(tmp_path / "run.lab")
        assert "עברית" in repr(labengine.open(tmp_path / "run.lab")) and "日本" in lab.to_code()


def test_a_text_that_hides_something_is_escaped_in_code() -> None:
    salt = f"a{HIDING} {' ' * 200}; b"
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        lab.add(salt, max_tokens=1, cache_salt=salt)
        code = lab.to_code()
    assert hidden_in(code) == "" and " " * 80 not in code
    assert any(isinstance(one, ast.Constant) and one.value == salt for one in ast.walk(ast.parse(code)))
