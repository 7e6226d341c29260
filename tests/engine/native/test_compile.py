"""Compiling on first use, and what happens where that cannot be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from ctrl_c import press_ctrl_c
from engine.native.fake_compilers import compiler, giving, num_calls, stub
from labengine.config import ConfigError
from labengine.engine.attention import AttentionSetting
from labengine.engine.backend_choice import choose_attention
from labengine.engine.native import compile as compiling
from labengine.engine.native import library as kernels
from labengine.engine.native.compile import CompileError
from waiting import wait_until

Compilers = Callable[..., None]


def setting(dtype: torch.dtype = torch.float32) -> AttentionSetting:
    return AttentionSetting(torch.device("cpu"), dtype, 4, 2, 16, (16,))


def test_kernels_are_compiled_once(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compilers(giving(tmp_path, image))
    kernels.library()
    (kept,) = cache.iterdir()
    before = kept.stat()
    assert before.st_size > 10_000 and before.st_mode & 0o022 == 0
    assert "compiling CPU kernels" in capsys.readouterr().err
    kernels._opened.cache_clear()
    kernels.library()
    after = kept.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    assert list(cache.iterdir()) == [kept]
    assert capsys.readouterr().err == "" and num_calls(tmp_path) == 1


def test_other_sources_and_other_compilers_are_other_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = Path(compiler(tmp_path, "exit 1"))
    name = compiling.image_name([(str(fake),)])
    assert compiling.image_name([(str(fake), "-O1")]) != name != compiling.image_name()
    os.utime(fake, ns=(0, 0))
    name, before = compiling.image_name([(str(fake),)]), name
    assert name != before, "the compiler was replaced"
    (tmp_path / "csrc").mkdir()
    for source in compiling.SOURCES.iterdir():
        (tmp_path / "csrc" / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(compiling, "SOURCES", tmp_path / "csrc")
    assert compiling.image_name([(str(fake),)]) == name
    (tmp_path / "csrc" / "vec.h").write_text("/* other */")
    assert compiling.image_name([(str(fake),)]) != name


def test_without_a_compiler_torch_computes_and_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    backend, reason = choose_attention(None, setting())
    assert backend.name == "torch"
    assert reason.endswith("not cpu: no C compiler (install gcc or clang, or name one in $CC))")
    with pytest.raises(ConfigError, match=r"attention='cpu' cannot run here: no C compiler"):
        choose_attention("cpu", setting())


NO_SUCH_THING = "echo 'vec.h:1: error: no such thing' >&2; exit 1"


def test_a_compiler_that_fails_is_quoted(cache: Path, compilers: Compilers, tmp_path: Path) -> None:
    """The first of them, where all fail."""
    compilers(compiler(tmp_path, NO_SUCH_THING), "/no/such/compiler")
    with pytest.raises(CompileError, match=r"fake-cc could not compile the kernels: vec.h:1: error: no such thing"):
        kernels.library()
    assert not cache.exists()


def nothing(folder: Path, image: bytes) -> str:
    return compiler(folder, "exit 0")


def garbage(folder: Path, image: bytes) -> str:
    return compiler(folder, 'echo "not a library" >"$out"')


def half(folder: Path, image: bytes) -> str:
    """Mapped, its pages behind the end are no memory at all."""
    return giving(folder, image[: len(image) // 2])


def without_a_symbol(folder: Path, image: bytes) -> str:
    return giving(folder, stub(folder, without="unpack_bf16"))


def with_a_wider_struct(folder: Path, image: bytes) -> str:
    return giving(folder, stub(folder, op="int64_t more;"))


def that_computes_nothing(folder: Path, image: bytes) -> str:
    return giving(folder, stub(folder))


def that_dies(folder: Path, image: bytes) -> str:
    return giving(folder, stub(folder, "__attribute__((constructor)) void die(void) { __builtin_trap(); }"))


LIES = {
    nothing: "fake-cc compiled nothing, and did not say so",
    garbage: "what fake-cc made of the kernels is no use: it cannot be loaded: ",
    half: "what fake-cc made of the kernels dies: Bus error",
    without_a_symbol: "what fake-cc made of the kernels is no use: it lacks a symbol: .*unpack_bf16",
    with_a_wider_struct: r"is no use: it was made of other sources: Op.kind is \[8, 4\] there, and \[0, 4\] here",
    that_computes_nothing: r"what fake-cc made of the kernels is no use: it computes \[0.0, 0.0",
    that_dies: "what fake-cc made of the kernels dies: (Illegal instruction|Trace)",
}
"""What a compiler may make although it returns 0, and what is said of it."""


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_compiler_that_lies_is_skipped(
    lie: Callable[[Path, bytes], str], image: bytes, cache: Path, compilers: Compilers, tmp_path: Path
) -> None:
    """Alone, torch computes and says why; nothing bad is kept. With another behind it, that one's kernels are used."""
    (tmp_path / "good").mkdir()
    lying, good = lie(tmp_path, image), giving(tmp_path / "good", image, "good-cc")
    compilers(lying)
    backend, reason = choose_attention(None, setting())
    assert backend.name == "torch" and not cache.exists()
    with pytest.raises(CompileError, match=LIES[lie]) as failure:
        kernels.library()
    assert f"not cpu: {failure.value}" in reason
    compilers(lying, good)
    assert choose_attention(None, setting())[0].name == "cpu"
    assert [kept.read_bytes() for kept in cache.iterdir()] == [image]


@pytest.mark.parametrize("is_program", [True, False])
def test_after_a_compiler_that_fails_the_next_is_tried(
    is_program: bool, image: bytes, cache: Path, compilers: Compilers, tmp_path: Path
) -> None:
    """And what that one compiled is found again: the first is not asked to compile twice."""
    (tmp_path / "good").mkdir()
    bad, good = compiler(tmp_path, NO_SUCH_THING), giving(tmp_path / "good", image)
    if not is_program:
        Path(bad).write_bytes(b"\x7fELF of another machine")
    compilers(bad, good)
    kernels.library()
    kernels._opened.cache_clear()
    kernels.library()
    assert num_calls(tmp_path) == is_program and num_calls(tmp_path / "good") == 1


def hanging(folder: Path) -> str:
    """A compiler whose child holds on to its output, too."""
    return compiler(folder, f"sleep 600 & echo $! >{folder}/pid; wait")


def has_begun(folder: Path) -> bool:
    """True once the compiler of hanging(folder) has started its child."""
    pid_file = folder / "pid"
    return pid_file.is_file() and pid_file.read_text().endswith("\n")


def assert_ended(pid_file: Path) -> None:
    """A killed process may have to wait for a core to die on."""
    with suppress(psutil.NoSuchProcess):
        child = psutil.Process(int(pid_file.read_text()))
        wait_until(lambda: child.status() == psutil.STATUS_ZOMBIE, "the end of the compiler's child")


def test_a_compiler_that_hangs_is_skipped(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its children end with it, and in this process it is not asked again."""

    class Begun(subprocess.Popen[bytes]):
        """The time it is given counts from the moment at which it hangs."""

        def wait(self, timeout: float | None = None) -> int:
            wait_until(lambda: has_begun(tmp_path), "the compiler to hang")
            return super().wait(timeout)

    monkeypatch.setattr(compiling.subprocess, "Popen", Begun)
    (tmp_path / "good").mkdir()
    hangs, good = hanging(tmp_path), giving(tmp_path / "good", image)
    monkeypatch.setattr(compiling, "COMPILE_SECONDS", 1)
    compilers(hangs)
    for _ in range(2):
        with pytest.raises(CompileError, match="fake-cc took more than 1 s"):
            kernels.library()
    assert num_calls(tmp_path) == 1
    assert_ended(tmp_path / "pid")
    monkeypatch.setattr(compiling, "COMPILE_SECONDS", 600)
    compilers(hangs, good)
    kernels.library()
    assert num_calls(tmp_path) == 1


def test_kernels_that_hang_are_not_kept(
    cache: Path, compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers(giving(tmp_path, stub(tmp_path, "__attribute__((constructor)) void hang(void) { for (;;); }")))
    monkeypatch.setattr(compiling, "PROBE_SECONDS", 1)
    with pytest.raises(CompileError, match="what fake-cc made of the kernels hangs"):
        kernels.library()
    assert not cache.exists()


def test_an_interrupted_compilation_leaves_nothing(
    image: bytes, cache: Path, compilers: Compilers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        """Ctrl-C is pressed in the first wait for the compiler, as soon as it hangs."""

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:
                wait_until(lambda: has_begun(tmp_path), "the compiler to hang")
                press_ctrl_c()
            return super().wait(timeout)

    (tmp_path / "aside").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    compilers(hanging(tmp_path))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(compiling.subprocess, "Popen", Interrupted)
        kernels.library()
    assert_ended(tmp_path / "pid")
    assert not cache.exists() and not list((tmp_path / "aside").iterdir())
    compilers(giving(tmp_path, image))
    kernels.library()


def test_all_words_of_cc_count(image: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrapper, real = compiler(tmp_path, 'exec "$@"', "wrapper"), giving(tmp_path, image)
    monkeypatch.setenv("CC", f"'{wrapper}' {real} -DAS_ASKED")
    assert compiling.find_compilers()[0] == (wrapper, real, "-DAS_ASKED")
    kernels.library()
    by_wrapper, by_real = (tmp_path / "calls").read_text().splitlines()
    assert by_wrapper.startswith(f"{real} -DAS_ASKED -") and "labengine.c" in by_real


def test_a_wrapper_of_nothing_says_what_failed(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrapper = compiler(tmp_path, 'exec "$@"', "wrapper")
    monkeypatch.setenv("CC", f"{wrapper} no-such-compiler")
    monkeypatch.setattr(compiling.shutil, "which", lambda name: name if name == wrapper else None)
    match = r"wrapper no-such-compiler could not compile the kernels: .*no-such-compiler"
    with pytest.raises(CompileError, match=match):
        kernels.library()


def test_cc_with_an_open_quote(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "'ccache gcc")
    with pytest.raises(CompileError, match=r"\$CC cannot be read \(No closing quotation\)"):
        kernels.library()


def test_none_are_compiled_on_windows(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.os, "name", "nt")
    monkeypatch.setattr(compiling.platform, "system", lambda: "Windows")
    with pytest.raises(CompileError, match="compiled on Linux and macOS only, not on Windows"):
        kernels.library()


def test_an_exception_of_windows_is_the_death_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that met an unknown instruction ends there with a large status, and says nothing."""
    monkeypatch.setattr(compiling, "_run", lambda *_: (0xC000001D, ""))
    with pytest.raises(CompileError, match="what the wheel's compiler made of the kernels dies: exception 0xc000001d"):
        compiling.check_image(b"", "the wheel's compiler")


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
