"""Kernels from a platform's wheel: used without a compiler, and refused if they do not fit."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.native.fake_compilers import giving, num_calls
from labengine.engine.native import compile as compiling
from labengine.engine.native import instruction_set
from labengine.engine.native import library as kernels
from labengine.engine.native.compile import CompileError
from labengine.engine.native.instruction_set import (
    INSTRUCTION_SETS,
    requested_instruction_set,
    runnable_instruction_sets,
)

MACHINES = {"x86_64": ("x86-64-v3", "x86-64-v4"), "aarch64": ("aarch64", "aarch64-bf16")}


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Two sets that this processor is said to have, the slower one first; the kernels named so are of this machine."""
    slower, faster = MACHINES[instruction_set.machine()]
    monkeypatch.setattr(instruction_set, "features", lambda: INSTRUCTION_SETS[faster].needs)
    monkeypatch.delenv("LABENGINE_CPU", raising=False)
    requested_instruction_set.cache_clear()
    yield slower, faster
    requested_instruction_set.cache_clear()


@pytest.fixture
def wheel(image: bytes, cache: Path, sets: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a wheel with kernels for both sets, on a machine without a compiler."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    monkeypatch.setattr(kernels, "PREBUILT", folder)
    monkeypatch.setattr(kernels, "find_compilers", no_compilers)
    for name in sets:
        (folder / f"{name}.so").write_bytes(image)
    return folder


def no_compilers() -> list[compiling.Command]:
    raise CompileError("no C compiler")


def used() -> tuple[str, str]:
    """Return instruction set and origin of the kernels that a new process would use."""
    kernels._opened.cache_clear()
    found = kernels.kernels_in_use()
    return found.instruction_set, found.origin


def test_the_fastest_set_that_the_processor_has_is_used(
    wheel: Path, sets: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert used() == (sets[1], "from labengine's wheel")
    monkeypatch.setattr(instruction_set, "features", lambda: INSTRUCTION_SETS[sets[0]].needs)
    assert used() == (sets[0], "from labengine's wheel")
    assert capsys.readouterr().err == ""


def test_the_set_of_the_variable_is_used(wheel: Path, sets: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABENGINE_CPU", sets[0])
    requested_instruction_set.cache_clear()
    assert used()[0] == sets[0]


def test_a_compiler_that_works_goes_before_them(
    wheel: Path, sets: tuple[str, str], image: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows this very processor."""
    monkeypatch.setattr(kernels, "find_compilers", lambda: [(giving(tmp_path, image),)])
    assert used() == (sets[1], "compiled here")


def test_a_compiler_that_fails_is_not_the_end(
    wheel: Path, sets: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a Mac without Xcode."""
    monkeypatch.setattr(kernels, "find_compilers", lambda: [(giving(tmp_path, b"garbage"),)])
    assert used() == (sets[1], "from labengine's wheel")
    assert num_calls(tmp_path) == 1


def test_what_does_not_load_is_refused_and_said(
    wheel: Path, sets: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    slower, faster = sets
    (wheel / f"{faster}.so").write_bytes(b"MZ, as Windows begins its libraries")
    kept = (wheel / f"{slower}.so").rename(wheel / "aside")
    refusal = f"kernels for {faster} cannot be used: they cannot be loaded: "
    with pytest.raises(CompileError) as raised:
        used()
    assert str(raised.value).startswith("no C compiler; ") and refusal in str(raised.value)
    kept.rename(wheel / f"{slower}.so")
    capsys.readouterr()
    assert used() == (slower, "from labengine's wheel")
    assert refusal in capsys.readouterr().err


def test_intel_widens_bf16_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("LABENGINE_CPU", raising=False)
    requested_instruction_set.cache_clear()
    features = " ".join(INSTRUCTION_SETS["x86-64-v4-bf16"].needs)
    for maker, fastest in (("Intel(R) Xeon(R)", ["x86-64-v4"]), ("AMD EPYC 9654", ["x86-64-v4-bf16", "x86-64-v4"])):
        monkeypatch.setattr(instruction_set, "processor", lambda m=maker: f"flags : {features}\nmodel name : {m}")
        names = [isa.name for isa in runnable_instruction_sets()]
        assert names == [*fastest, "x86-64-v3", "x86-64-v2"]
    requested_instruction_set.cache_clear()


def test_a_mac_is_asked_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("LABENGINE_CPU", raising=False)
    requested_instruction_set.cache_clear()
    m1 = {"FEAT_RDM", "FEAT_LSE", "armv8_crc32"}
    for found, names in ((m1, ["aarch64"]), (m1 | {"FEAT_BF16"}, ["aarch64-bf16", "aarch64"])):
        monkeypatch.setattr(instruction_set, "_apple_has", found.__contains__)
        assert [isa.name for isa in runnable_instruction_sets()] == names
    requested_instruction_set.cache_clear()
