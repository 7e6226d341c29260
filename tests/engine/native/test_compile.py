"""Compiling on first use, caching the result, and failures of both."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import CDLL, c_int64
from pathlib import Path

import pytest
import torch

from engine.native.fake_compilers import compiler, giving, num_calls
from labengine.config import ConfigError
from labengine.engine.attention import AttentionSetting
from labengine.engine.backend_choice import choose_attention
from labengine.engine.native import __main__ as command
from labengine.engine.native import compile as compiling
from labengine.engine.native import library as kernels
from labengine.engine.native.compile import CompileError
from labengine.engine.native.layout import layout_numbers

Compilers = Callable[..., None]


def setting(dtype: torch.dtype = torch.float32) -> AttentionSetting:
    return AttentionSetting(torch.device("cpu"), dtype, 4, 2, 16, (16,))


def in_a_new_process() -> CDLL:
    kernels._opened.cache_clear()
    return kernels.library()


def test_structs_are_laid_out_as_the_compiler_does() -> None:
    library = kernels.library()
    count = c_int64.in_dll(library, "labengine_layout_count").value
    assert layout_numbers() == list((c_int64 * count).in_dll(library, "labengine_layout"))


def test_kernels_are_compiled_once(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compilers(giving(tmp_path, image))
    kernels.library()
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == image and kept.stat().st_mode & 0o022 == 0
    assert "compiling CPU kernels" in capsys.readouterr().err
    in_a_new_process()
    assert list(cache.iterdir()) == [kept]
    assert capsys.readouterr().err == "" and num_calls(tmp_path) == 1


def test_other_sources_and_another_cc_are_other_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    installed, cached = compiling.installed_file().name, compiling.cached_file().name
    monkeypatch.setenv("CC", "clang -O1")
    assert compiling.cached_file().name != cached and compiling.installed_file().name == installed
    (tmp_path / "csrc").mkdir()
    for source in compiling.SOURCES.iterdir():
        (tmp_path / "csrc" / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(compiling, "SOURCES", tmp_path / "csrc")
    assert compiling.installed_file().name == installed
    (tmp_path / "csrc" / "vec.h").write_text("/* other */")
    assert compiling.installed_file().name != installed


def test_without_a_compiler_torch_computes_and_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    backend, reason = choose_attention(None, setting())
    assert backend.name == "torch"
    assert reason.endswith("not cpu: no C compiler (install gcc or clang, or name one in $CC))")
    with pytest.raises(ConfigError, match=r"attention='cpu' .*no C compiler"):
        choose_attention("cpu", setting())


NO_SUCH_THING = "echo 'vec.h:1: error: no such thing' >&2; exit 1"


def test_a_compiler_that_fails_is_quoted(cache: Path, compilers: Compilers, tmp_path: Path) -> None:
    """The first of them, where all fail."""
    compilers(compiler(tmp_path, NO_SUCH_THING), "/no/such/compiler")
    with pytest.raises(CompileError, match=r"fake-cc could not compile the kernels: vec.h:1: error: no such thing"):
        kernels.library()
    assert not cache.exists()


@pytest.mark.parametrize("is_program", [True, False])
def test_after_a_compiler_that_fails_the_next_is_tried(
    is_program: bool, image: bytes, cache: Path, compilers: Compilers, tmp_path: Path
) -> None:
    (tmp_path / "good").mkdir()
    bad, good = compiler(tmp_path, NO_SUCH_THING), giving(tmp_path / "good", image)
    if not is_program:
        Path(bad).write_bytes(b"\x7fELF of another machine")
    compilers(bad, good)
    kernels.library()
    assert num_calls(tmp_path) == is_program and num_calls(tmp_path / "good") == 1


@pytest.mark.parametrize(("script", "said"), [("exit 0", "No such file"), ('echo x >"$out"', "they cannot be loaded")])
def test_a_compiler_that_makes_no_library(
    script: str, said: str, cache: Path, compilers: Compilers, tmp_path: Path
) -> None:
    compilers(compiler(tmp_path, script))
    backend, reason = choose_attention(None, setting())
    assert backend.name == "torch" and said in reason


def test_kept_kernels_that_do_not_load_are_compiled_again(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path
) -> None:
    compilers(giving(tmp_path, image))
    cache.mkdir(parents=True)
    compiling.cached_file().write_bytes(b"garbage")
    kernels.library()
    assert compiling.cached_file().read_bytes() == image


def test_a_cache_that_cannot_be_written_to(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernels serve this process."""
    compilers(giving(tmp_path, image))
    cache.parent.mkdir()
    cache.write_text("a file where a folder should be")
    kernels.library()
    assert "every process will compile them: " in capsys.readouterr().err


def test_kernels_in_the_package_serve_those_without_a_compiler(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers(giving(tmp_path, image))
    assert command.main() == 0
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    monkeypatch.setenv("CC", "another")
    assert kernels.kernels_in_use().origin == "compiled here"
    assert not cache.exists()


def test_all_words_of_cc_count(image: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrapper, real = compiler(tmp_path, 'exec "$@"', "wrapper"), giving(tmp_path, image)
    monkeypatch.setenv("CC", f"'{wrapper}' {real} -DAS_ASKED")
    assert compiling.find_compilers()[0] == (wrapper, real, "-DAS_ASKED")
    kernels.library()
    by_wrapper, by_real = (tmp_path / "calls").read_text().splitlines()
    assert by_wrapper.startswith(f"{real} -DAS_ASKED -") and "labengine.c" in by_real


def test_cc_with_an_open_quote(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "'ccache gcc")
    with pytest.raises(CompileError, match=r"\$CC .*No closing quotation"):
        kernels.library()


def test_none_are_compiled_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        patch.setattr(compiling.platform, "system", lambda: "Windows")
        with pytest.raises(CompileError, match="Windows"):
            compiling.find_compilers()


@pytest.mark.parametrize(
    ("name", "asked", "why"),
    [
        ("cpu", setting(torch.float16), "float32 and bfloat16, not for float16"),
        ("nothing", setting(), "flash_attn, triton, cpu, torch"),
    ],
)
def test_what_cannot_be_is_refused(name: str, asked: AttentionSetting, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        choose_attention(name, asked)
