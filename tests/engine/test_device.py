"""Device and dtype on a machine with GPUs, played by a stand-in for torch.cuda."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from labengine import Lab, ModelRunner
from labengine.engine import model_runner
from labengine.engine.device import choose_device, choose_dtype, sent
from labengine.engine.step_tensors import StepTensors
from labengine.scenarios import tiny_model as tiny
from waiting import wait_until

T4, A100 = (7, 5), (8, 0)
CPU = torch.device("cpu")


class Gpus(threading.local):
    """Two GPUs. As in CUDA each thread has a current one: 0 until the thread sets another."""

    current = 0

    def set_device(self, index: int) -> None:
        self.current = index

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        """Make a GPU current for a while; one without a number is the current one."""
        before = self.current
        self.current = before if device.index is None else device.index
        yield
        self.current = before


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    gpus = Gpus()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: gpus.current)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    monkeypatch.setattr(torch.cuda, "set_device", gpus.set_device)
    monkeypatch.setattr(torch.cuda, "device", gpus.device)
    return gpus


@pytest.fixture
def selected(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that were chosen for models. Their memory is the host's, all else is as chosen."""
    devices: list[torch.device] = []

    def select_device(requested: str | torch.device | None) -> tuple[torch.device, str]:
        device, reason = choose_device(requested)
        devices.append(device)
        return CPU, reason

    def select_dtype(requested: str | torch.dtype | None, device: torch.device, *, fits_float16: bool) -> object:
        return choose_dtype(requested, devices[-1], fits_float16=fits_float16)

    monkeypatch.setattr(model_runner, "choose_device", select_device)
    monkeypatch.setattr(model_runner, "choose_dtype", select_dtype)
    return devices


@pytest.mark.parametrize(
    ("requested", "line"), [("cuda", "cuda:1 (asked for)"), (None, "cuda:1 (GPU 1)"), ("cuda:0", "cuda:0 (asked for)")]
)
def test_a_gpu_has_its_number_from_the_load_on(gpus: Gpus, requested: str | None, line: str) -> None:
    torch.cuda.set_device(1)
    device, reason = choose_device(requested)
    torch.cuda.set_device(0)
    assert str(device) == line.split()[0] and reason == line


@pytest.mark.parametrize("requested", ["cuda", None])
def test_a_background_thread_launches_on_the_device_of_the_load(
    requested: str | None, gpus: Gpus, selected: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A background thread's current device is 0, whatever the notebook has set in its own."""
    torch.cuda.set_device(1)
    lab = Lab(tiny.tiny_model(), device=requested, dtype="float32", num_blocks=24, block_size=4)
    runner = lab.session.model.runner
    assert isinstance(runner, ModelRunner)
    launched: list[tuple[bool, int]] = []
    compute = runner._forward

    class Noted:
        argmax, describe, release = compute.argmax, compute.describe, compute.release

        def __call__(self, step: StepTensors) -> Tensor:
            launched.append((threading.current_thread() is threading.main_thread(), torch.cuda.current_device()))
            return compute(step)

    monkeypatch.setattr(runner, "_forward", Noted())
    monkeypatch.setattr(runner.kv_tensors, "device", selected[-1])
    lab.add(token_ids=[5, 9, 14], max_tokens=3, ignore_eos=True)
    lab.start()
    wait_until(lambda: not lab.is_running)
    assert lab.background_error is None
    torch.cuda.set_device(0)
    lab.add(token_ids=[5, 9, 14], max_tokens=1)
    lab.run()
    assert launched == [(False, 1)] * 3 + [(True, 1)]
    assert torch.cuda.current_device() == 0, "the notebook's own is left as it is"


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("llama", "float16 (sm_75 has no bfloat16)"),
        ("gemma3", "float32 (sm_75 has no bfloat16, and this model's activations exceed float16)"),
    ],
)
def test_a_t4_computes_in_a_dtype_that_the_model_fits(
    family: str,
    line: str,
    tiny_model: Callable[..., Path],
    selected: list[torch.device],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: T4)
    with Lab(tiny_model(family), num_blocks=24, block_size=4) as lab:
        assert lab.status()["dtype"] == line
        runner = lab.session.model.runner
        assert isinstance(runner, ModelRunner)
        assert str(runner.model.norm.weight.dtype) == f"torch.{line.split()[0]}"
    assert selected == [torch.device("cuda:0")]


@pytest.mark.parametrize(
    ("capability", "fits_float16", "dtype", "line"),
    [
        (A100, True, torch.bfloat16, "bfloat16 (the default on cuda)"),
        (A100, False, torch.bfloat16, "bfloat16 (the default on cuda)"),
        (T4, True, torch.float16, "float16 (sm_75 has no bfloat16)"),
        (
            T4, False, torch.float32,
            "float32 (sm_75 has no bfloat16, and this model's activations exceed float16)",
        ),
    ],
)  # fmt: skip
def test_the_default_dtype_is_one_that_the_gpu_computes_in(
    capability: tuple[int, int], fits_float16: bool, dtype: torch.dtype, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_dtype(None, torch.device("cuda:0"), fits_float16=fits_float16) == (dtype, line)
    asked = choose_dtype("bfloat16", torch.device("cuda:0"), fits_float16=fits_float16)
    assert asked == (torch.bfloat16, "bfloat16 (asked for)")


def test_what_is_sent_to_a_gpu_is_pinned_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy from pageable memory waits for the device: one per step would end the overlap with scheduling."""
    calls: list[object] = []

    def pinned(values: torch.Tensor) -> torch.Tensor:
        calls.append("pinned")
        return values

    def moved(values: torch.Tensor, device: torch.device, *, non_blocking: bool = False) -> torch.Tensor:
        calls.append((str(device), non_blocking))
        return values

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    values = torch.arange(3)
    assert sent(values, torch.device("cpu")) is values and calls == []
    sent(values, torch.device("cuda:1"))
    assert calls == ["pinned", ("cuda:1", True)]
