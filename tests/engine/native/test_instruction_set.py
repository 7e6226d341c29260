"""LABENGINE_CPU: the instructions that the kernels are compiled for."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from labengine.config import ConfigError
from labengine.engine.attention import AttentionSetting
from labengine.engine.backend_choice import choose_attention
from labengine.engine.native import compile as compiling
from labengine.engine.native import instruction_set
from labengine.engine.native.instruction_set import INSTRUCTION_SETS, instruction_set_name, requested_instruction_set


@pytest.fixture(autouse=True)
def nothing_opened(cache: Path) -> Iterator[None]:
    """No kernels were opened, and no set was asked for."""
    requested_instruction_set.cache_clear()
    yield
    requested_instruction_set.cache_clear()


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with AVX2, and no more."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    features = " ".join(INSTRUCTION_SETS["x86-64-v3"].needs)
    monkeypatch.setattr(instruction_set, "processor", lambda: f"flags\t\t: fpu sse2 {features}\nmodel name\t: Zen 3")


@pytest.mark.usefixtures("processor")
def test_the_highest_one_is_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABENGINE_CPU", raising=False)
    assert (instruction_set_name(), requested_instruction_set().flags) == ("x86-64-v3", ("-march=native",))
    requested_instruction_set.cache_clear()
    monkeypatch.setenv("LABENGINE_CPU", "x86-64-v2")
    assert (instruction_set_name(), requested_instruction_set().flags) == ("x86-64-v2", ("-march=x86-64-v2",))


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("avx2", r"native, x86-64-v2, x86-64-v3, .* got 'avx2'"),
        ("x86-64-v4", r"=x86-64-v4 .* avx512bw, avx512cd, avx512dq,"),
    ],
)
def test_what_does_not_run_here_is_refused_before_anything_is_compiled(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABENGINE_CPU", asked)
    with pytest.raises(ConfigError, match=said):
        choose_attention(None, AttentionSetting(torch.device("cpu"), torch.float32, 4, 2, 16, (16,)))


def test_each_set_has_kernels_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for isa in INSTRUCTION_SETS.values():
        if not isa.lacking():
            monkeypatch.setenv("LABENGINE_CPU", isa.name)
            requested_instruction_set.cache_clear()
            names.add(compiling.installed_file())
    monkeypatch.delenv("LABENGINE_CPU")
    requested_instruction_set.cache_clear()
    assert len({*names, compiling.installed_file()}) == sum(not isa.lacking() for isa in INSTRUCTION_SETS.values()) + 1


@pytest.mark.skipif(instruction_set.machine() != "x86_64", reason="the names are those of x86-64")
def test_on_windows_torch_reports_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = frozenset().union(*(isa.needs for isa in INSTRUCTION_SETS.values() if isa.machine == "x86_64"))
    here = instruction_set.features() & needed
    monkeypatch.setattr(sys, "platform", "win32")
    assert instruction_set.features() == here
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert instruction_set.features() == frozenset(), "an older torch tells nothing, and no set is claimed"
