"""CUDA graphs are captured on one stream per device, which is never left current: stand-ins for torch.cuda's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import Tensor

from labengine.engine.forward import graphs
from labengine.engine.forward.graphs import CudaRecorder

HERE = torch.device("cuda:0")


class FakeStream:
    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self.waited_for: list[FakeStream] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waited_for.append(other)


class FakeCuda:
    """The current stream, and graphs that repeat what was run during their capture."""

    def __init__(self) -> None:
        self.default = self.current = FakeStream()
        self.captured_on: list[FakeStream] = []

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def graph(self, graph: object, *, stream: FakeStream, **_: object) -> Iterator[None]:
        """As torch does it: a capture that fails, inside or at its end, skips the line that restores the stream."""
        before, self.current = self.current, stream
        self.captured_on.append(stream)
        yield
        self.current = before

    def set_stream(self, stream: FakeStream) -> None:
        self.current = stream


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    parts: dict[str, object] = {
        "Stream": FakeStream,
        "stream": fake.stream,
        "graph": fake.graph,
        "current_stream": lambda device=None: fake.current,
        "set_stream": fake.set_stream,
        "device": lambda device: nullcontext(),
        "graph_pool_handle": object,
        "CUDAGraph": object,
    }
    for name, part in parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    graphs.capture_stream.cache_clear()
    yield fake
    graphs.capture_stream.cache_clear()


def test_all_runners_of_a_device_capture_on_one_stream(cuda: FakeCuda) -> None:
    """cuBLAS keeps a workspace for every stream that it was ever called on."""
    for device in (HERE, HERE, torch.device("cuda:1")):
        CudaRecorder(device).record(lambda: torch.ones(1))
    first, second, other = cuda.captured_on
    assert first is second and first is not other
    assert (first.device, other.device) == (HERE, torch.device("cuda:1"))
    assert cuda.current is cuda.default and cuda.default.waited_for == [first, first, other]


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_capture_that_fails_leaves_the_callers_stream_current(cuda: FakeCuda, fails_at: int) -> None:
    """At 1 the warm-up fails, at 2 the capture; and the next capture is not locked out."""
    recorder, run = CudaRecorder(HERE), failing(fails_at)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        recorder.record(run)
    assert cuda.current is cuda.default
    recorder.record(run)
    assert cuda.current is cuda.default


def failing(at: int) -> Callable[[], Tensor]:
    calls = []

    def run() -> Tensor:
        calls.append(1)
        if len(calls) == at:
            raise RuntimeError("operation not permitted when stream is capturing")
        return torch.ones(1)

    return run
