"""Compiling on first use, and what happens where that cannot be."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch

from labengine.config import ConfigError
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.choice import choose_attention
from labengine.engine.native import compile as compiling
from labengine.engine.native import library
from labengine.engine.native.compile import CompileError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing remembered of what was compiled before."""
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path))
    compiling.compiled_library.cache_clear()
    yield tmp_path
    compiling.compiled_library.cache_clear()


def setting(dtype: torch.dtype = torch.float32) -> AttentionSetting:
    return AttentionSetting(torch.device("cpu"), dtype, 4, 2, 16, (16,))


def compiler(folder: Path, script: str) -> str:
    """A program that poses as one."""
    path = folder / "fake-cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_library_is_compiled_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = compiling.compiled_library()
    assert first.parent == cache / "native" and first.stat().st_size > 10_000
    assert "compiling CPU kernels" in capsys.readouterr().err
    compiling.compiled_library.cache_clear()
    before = first.stat().st_mtime_ns
    assert compiling.compiled_library() == first and first.stat().st_mtime_ns == before
    assert capsys.readouterr().err == ""
    assert [path.name for path in first.parent.iterdir()] == [first.name], "nothing else is left behind"


def test_other_sources_are_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = compiling._name(compiling.find_compilers())
    (tmp_path / "csrc").mkdir()
    for source in compiling.SOURCES.iterdir():
        (tmp_path / "csrc" / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(compiling, "SOURCES", tmp_path / "csrc")
    assert compiling._name(compiling.find_compilers()) == name
    (tmp_path / "csrc" / "vec.h").write_text("/* other */")
    assert compiling._name(compiling.find_compilers()) != name


def test_without_a_compiler_torch_computes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    compiling.compiled_library.cache_clear()
    monkeypatch.setattr(library, "library", compiling.compiled_library)
    backend, reason = choose_attention(None, setting())
    assert backend.name == "torch"
    assert reason.endswith("not cpu: no C compiler (install gcc or clang, or name one in $CC))")
    with pytest.raises(ConfigError, match=r"attention='cpu' cannot run here: no C compiler"):
        choose_attention("cpu", setting())


NO_SUCH_THING = "echo 'vec.h:1: error: no such thing' >&2; exit 1"


def test_a_compiler_that_fails_is_quoted(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first of them, where all fail."""
    monkeypatch.setenv("CC", compiler(tmp_path, NO_SUCH_THING))
    monkeypatch.setattr(compiling.shutil, "which", lambda name: name if name.endswith("fake-cc") else "false")
    with pytest.raises(CompileError, match=r"fake-cc could not compile the kernels: vec.h:1: error: no such thing"):
        compiling.compiled_library()
    assert list((cache / "native").iterdir()) == []


@pytest.mark.parametrize("script", [NO_SUCH_THING, None], ids=["it fails", "it is no program"])
def test_after_a_compiler_that_fails_the_next_is_tried(
    script: str | None, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And what that one compiled is found again: the first is not asked to compile twice."""
    path = Path(compiler(tmp_path, f"echo $# >>{tmp_path}/calls; {script}"))
    if script is None:
        path.write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("CC", str(path))
    compiled = compiling.compiled_library()
    assert compiled.stat().st_size > 10_000
    compiling.compiled_library.cache_clear()
    assert compiling.compiled_library() == compiled
    if script is not None:
        compilations = [line for line in (tmp_path / "calls").read_text().split() if line != "1"]
        assert len(compilations) == 1, "besides --version"


def test_all_words_of_cc_count(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (real, *_), *_ = compiling.find_compilers()
    wrapper = compiler(tmp_path, f'echo "$@" >>{tmp_path}/calls; exec "$@"')
    monkeypatch.setenv("CC", f"'{wrapper}' {real} -DAS_ASKED")
    assert compiling.find_compilers()[0] == [wrapper, real, "-DAS_ASKED"]
    assert compiling.compiled_library().stat().st_size > 10_000
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all(call.startswith(f"{real} -DAS_ASKED -") for call in calls) and "labengine.c" in calls[-1]


def test_a_wrapper_of_nothing_says_what_failed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "env no-such-compiler")
    monkeypatch.setattr(compiling.shutil, "which", lambda name: name if name == "env" else None)
    with pytest.raises(CompileError, match=r"env no-such-compiler could not compile the kernels: .*no-such-compiler"):
        compiling.compiled_library()


def test_cc_with_an_open_quote(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "'ccache gcc")
    with pytest.raises(CompileError, match=r"\$CC cannot be read \(No closing quotation\)"):
        compiling.compiled_library()


def test_a_cache_that_cannot_be_written_to(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "native").write_text("a file where a folder should be")
    with pytest.raises(CompileError, match="the kernels could not be compiled"):
        compiling.compiled_library()


@pytest.mark.parametrize(
    ("name", "asked", "why"),
    [
        ("cpu", setting(torch.float16), "it has kernels for float32 and bfloat16, not for float16"),
        ("nothing", setting(), "unknown; use one of flash_attn, triton, cpu, torch"),
    ],
)
def test_what_cannot_be_is_refused(name: str, asked: AttentionSetting, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        choose_attention(name, asked)


def test_float16_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, reason = choose_attention(None, setting(torch.float16))
    assert backend.name == "torch" and "not cpu: it has kernels for" in reason
