"""Text of a file that hides other text reaches no terminal, no cell and no script: every field, and every way out."""

from __future__ import annotations

import gzip
import json
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.core.parts import Parts
from labengine.lab import Lab
from labengine.session.saved.trace import Trace
from labengine.session.saved.trace import open as open_trace

HIDING = "\x1b[2K\x1b[1A \x1b]0;title\x07 \x9b2J \u202etxt.exe\u2066 \u200b\ufeff \r \x0b \u2028 \x7f"
"""Escape sequences, an OSC, a C1, direction marks, nothing wide, line ends that are none."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The lines of a saved lab's file, parsed: a part of the user's raises in it."""

    class Rude(BlockPool):
        """Raises at a hit."""

        def touch(self, block_ids: Sequence[int]) -> None:
            if block_ids:
                raise RuntimeError("touched")
            super().touch(block_ids)

    path = tmp_path_factory.mktemp("hidden") / "run.lab"
    with Lab("simulated", parts=Parts(name="rude", block_pool=Rude), num_blocks=12, block_size=4) as lab:
        for _ in range(2):
            lab.add(token_ids=range(1, 10), max_tokens=2, cache_salt="salt")
            try:
                lab.run()
            except RuntimeError:
                break
        lab.save(path)
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).split(b"\n")]


Path_ = tuple[int | str, ...]


def texts(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Yield where texts are, the header's kinds and hashes left out."""
    if isinstance(value, str):
        yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from texts(child, (*at, name))


def hidden_in(text: str) -> set[str]:
    """Return the characters of a text that hide others."""
    kept = text.replace("\n", "").replace("\t", "")
    return {one for one in kept if unicodedata.category(one) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")}


def changed(lines: list[Any], places: Sequence[Path_]) -> bytes:
    """Return the file with hiding text at some places."""
    lines = json.loads(json.dumps(lines))
    for *way, last in places:
        at = lines
        for name in way:
            at = at[name]  # type: ignore[call-overload]
        at[last] += HIDING  # type: ignore[call-overload]
    return gzip.compress(b"\n".join(json.dumps(line).encode() for line in lines))


WAYS_OUT: dict[str, Callable[[Trace], object]] = {
    "repr": repr,
    "summary": Trace.summary,
    "title": lambda trace: trace.title,
    "note": lambda trace: trace.note,
    "crash": lambda trace: trace.crash,
    "violations": lambda trace: "\n".join(map(str, trace.violations)),
    "why": lambda trace: "\n".join(str(trace.why(event=number)) for number in range(0, trace.timeline.end, 5)),
    "why(block)": lambda trace: trace.why(block=0),
    "why(request)": lambda trace: trace.why(request=0),
    "goto": lambda trace: repr(trace.goto("crash")),
    "to_code": Trace.to_code,
    "names": lambda trace: trace.request_names.values(),
    "seams": lambda trace: json.dumps(trace.view_source().seams(), ensure_ascii=False),
    "picture": lambda trace: trace.show()._repr_mimebundle_()[0]["text/plain"],
    "tokens": lambda trace: "".join(map(trace.token_text, range(20))),
}


def refuse_hidden(path: Path, capsys: pytest.CaptureFixture[str], *, everywhere: bool = True) -> None:
    """Go every way out, and assert that nothing hidden comes."""
    for command in ("open", "doctor", "conform", "attach") if everywhere else ("open",):
        main([command, str(path)])
        printed = capsys.readouterr()
        assert hidden_in(printed.out + printed.err) == set(), command
    try:
        trace = open_trace(path)
    except ConfigError as error:
        assert hidden_in(str(error)) == set()
        return
    with trace, warnings.catch_warnings(record=True) as warned:
        for name, way_out in WAYS_OUT.items():
            try:
                text = str(way_out(trace))
            except (ConfigError, LookupError) as error:
                text = str(error)
            assert hidden_in(text) == set(), name
    assert hidden_in(" ".join(str(one.message) for one in warned)) == set()


def test_nothing_hidden_comes_out_of_a_file_with_hiding_texts_everywhere(
    saved: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.lab"
    for number in range(1, len(saved)):
        path.write_bytes(changed(saved, [(number, *at) for at in texts(saved[number])]))
        refuse_hidden(path, capsys)


def test_nothing_hidden_comes_out_of_facts_one_by_one(
    saved: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.lab"
    for at in list(texts(saved[1]))[::25]:
        path.write_bytes(changed(saved, [(1, *at)]))
        refuse_hidden(path, capsys, everywhere=False)


@pytest.mark.sweep
def test_nothing_hidden_comes_out_of_any_field(
    saved: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.lab"
    for at in texts(saved):
        path.write_bytes(changed(saved, [at]))
        refuse_hidden(path, capsys)


def test_a_line_that_hides_itself_is_refused_and_named(saved: list[Any], tmp_path: Path) -> None:
    lines = json.loads(json.dumps(saved))
    definitions = lines[1]["parts"]["classes"]["block_pool"]["definitions"]
    definitions[0] += "\nimport os  # \x1b[2K\x1b[1A"
    path = tmp_path / "run.lab"
    path.write_bytes(gzip.compress(b"\n".join(json.dumps(line).encode() for line in lines)))
    with open_trace(path) as trace, pytest.raises(ConfigError, match="has U\\+001B in its source"):
        trace.rerun(trust=True)
    with open_trace(path) as trace, pytest.raises(ConfigError, match="hides text"):
        trace.to_code()


def test_text_in_other_scripts_stays_usable(tmp_path: Path) -> None:
    name = "עברית عربى 👩\u200d👩\u200d👧 日本"
    with Lab("simulated", parts=Parts(name=name), num_blocks=12, block_size=4) as lab:
        lab.save(tmp_path / "run.lab")
        assert "עברית" in repr(open_trace(tmp_path / "run.lab")) and "日本" in lab.to_code()
