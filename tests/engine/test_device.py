"""Device and dtype on a machine with GPUs, played by a stand-in for torch.cuda."""

from __future__ import annotations

import pytest
import torch

from labengine.engine.device import choose_device, choose_dtype, sent

T4, A100 = (7, 5), (8, 0)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Two GPUs; `current` is this thread's."""
    state = {"current": 1}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: state["current"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    return state


@pytest.mark.parametrize(
    ("requested", "line"), [("cuda", "cuda:1 (asked for)"), (None, "cuda:1 (GPU 1)"), ("cuda:0", "cuda:0 (asked for)")]
)
def test_a_gpu_has_its_number_from_the_load_on(gpus: dict[str, int], requested: str | None, line: str) -> None:
    """A background thread's current device is 0, whatever the notebook has set in its own."""
    device, reason = choose_device(requested)
    gpus["current"] = 0
    assert str(device) == line.split()[0] and reason == line


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
