"""Attention that repeats a layer's kernels for the next one launches what Triton's own launch would."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from checkout import ROOT

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import standin_driver

from engine.plan_builder import Dealer, plan_of
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.triton import LOG2_E, LaunchOfStep, TritonAttention, TritonStep
from labengine.engine.attention.triton_tiles import Gpu
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import StepTensors, step_tensors

CPU = torch.device("cpu")
SETTING = AttentionSetting(CPU, torch.bfloat16, 4, 2, 16, (16,))
H100 = Gpu((9, 0), 132)
SCALE = 0.25


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[object]]]:
    """What reaches the launcher: grid and arguments, tensors by their addresses."""
    seen: list[list[object]] = []

    def launched(self: object, *args: object) -> None:
        seen.append([arg.data_ptr() if isinstance(arg, Tensor) else arg for arg in (*args[:3], *args[9:])])

    monkeypatch.setattr(standin_driver.StandinLauncher, "__call__", launched)
    with standin_driver.without_device():
        yield seen


def mixed_step() -> StepTensors:
    dealer = Dealer(64, 16)
    chunk, decode = dealer.request(list(range(300))), dealer.request(list(range(200)))
    decode.take(150)
    return step_tensors(plan_of(chunk.take(40), decode.take(1)), dealer.groups, CPU)


def layers(number: int, shift: int = 0) -> list[LayerKV]:
    size = 64 * 16 * 2 * 16
    memory = torch.zeros(2 * number, size + shift, dtype=torch.bfloat16)
    views = [row[shift:].view(64, 16, 2, 16) for row in memory]
    return [LayerKV(*views[2 * i : 2 * i + 2]) for i in range(number)]


@pytest.mark.parametrize("spans", [1, 2])
def test_the_same_kernels_with_the_same_arguments(spans: int, launches: list[list[object]]) -> None:
    """Keys whole, and cut into spans, which a second kernel joins."""
    backend, step = TritonAttention(SETTING, H100), mixed_step()
    backend.spans = spans
    queries = torch.zeros(41, 4, 16, dtype=torch.bfloat16)
    out, caches = torch.zeros_like(queries), layers(3)
    attention = backend.prepare(step, step.groups[0])
    assert isinstance(attention, TritonStep)
    for cache in caches:
        for launch in attention._launched:
            launch.launch(out, queries, cache, SCALE)
    by_triton = launches.copy()
    launches.clear()
    for cache in caches:
        attention.attend_into(out, queries, cache, SCALE)
    assert len(launches) == len(by_triton) == 6 * spans
    assert [len(launch) for launch in launches] == [len(launch) for launch in by_triton]
    ours, theirs = (set(map(sums_of, seen)) - {None} for seen in (launches, by_triton))
    for mine, tritons in zip(launches, by_triton, strict=True):
        assert [x for x in mine if x not in flat(ours)] == [x for x in tritons if x not in flat(theirs)]


def sums_of(launch: list[object]) -> tuple[object, ...] | None:
    """Addresses of the unfinished sums, the two arguments before the scale: each launch through Triton has its own."""
    place = launch.index(SCALE * LOG2_E) if SCALE * LOG2_E in launch else None
    return None if place is None else tuple(launch[place - 2 : place])


def flat(pairs: set[tuple[object, ...] | None]) -> set[object]:
    return {address for pair in pairs for address in pair or ()}


def test_repeats_happen(launches: list[list[object]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With another output, other queries or another alignment Triton looks at the arguments again."""
    backend, step = TritonAttention(SETTING, H100), mixed_step()
    backend.spans = 1
    through_triton: list[int] = []
    launch = LaunchOfStep.launch

    def noted(self: LaunchOfStep, *args: object) -> object:
        through_triton.append(len(launches))
        return launch(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LaunchOfStep, "launch", noted)
    queries = torch.zeros(41, 4, 16, dtype=torch.bfloat16)
    out, others = torch.zeros_like(queries), torch.zeros_like(queries)
    attention = backend.prepare(step, step.groups[0])
    first, second, third = layers(3)
    (odd,) = layers(1, shift=1)
    for arguments, expected in (
        ((out, queries, first, SCALE), 2),
        ((out, queries, second, SCALE), 0),
        ((out, queries, third, SCALE), 0),
        ((others, queries, third, SCALE), 2),
        ((others, others, third, SCALE), 2),
        ((others, others, odd, SCALE), 2),
        ((others, others, first, SCALE), 2),
        ((others, others, second, SCALE), 0),
        ((others, others, second, 0.5), 2),
    ):
        through_triton.clear()
        attention.attend_into(*arguments)
        assert len(through_triton) == expected
