"""A stand-in for CUDA on a machine without a GPU: the host takes every decision as on one, and the device does nothing.

`cuda_replaced()` patches torch, so that production code for `device="cuda"` runs unchanged:

* Every tensor says that it is on cuda:0; its memory is the host's. Copies between host and device are copies of the
  host's memory; pinned memory is plain memory.
* Triton kernels are compiled and specialized for sm_90, and their launches do nothing (standin_driver.py).
* A CUDA graph is "captured" by running once; its replay does nothing. Streams and events do nothing.
* torch.nn.functional.linear allocates its result, and computes nothing. All other ops of torch run on the CPU.
* Tokens are the number of the graph's launch that they come from, in a range: `Marks` finds the launch of a token that
  the host reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

from standin_driver import without_device

CUDA = torch.device("cuda:0")
MEMORY = 16 * 2**30
"""Bytes that the device says it has, all of them free."""
FIRST_TOKEN, NUM_TOKENS = 8, 64
"""Tokens of the launches: n % NUM_TOKENS + FIRST_TOKEN. Special tokens are below."""
FACTORIES = ("arange", "as_tensor", "empty", "empty_like", "full", "ones", "tensor", "zeros", "zeros_like")


class Marks:
    """The launches of graphs and the readings of their tokens, in order: ("launch", 1), ("read", 1) ..."""

    def __init__(self) -> None:
        self.num_launches = 0
        self.order: list[tuple[str, int]] = []

    @property
    def token(self) -> int:
        """The token of the last launch."""
        return self.num_launches % NUM_TOKENS + FIRST_TOKEN

    def launch(self) -> None:
        self.num_launches += 1
        self.order.append(("launch", self.num_launches))

    def read(self, token: object) -> None:
        """Note that the tokens of the last launch with this token have been read."""
        if isinstance(token, int) and FIRST_TOKEN <= token < FIRST_TOKEN + NUM_TOKENS:
            number = self.num_launches - (self.num_launches - (token - FIRST_TOKEN)) % NUM_TOKENS
            self.order.append(("read", number))


class StandinGraph:
    """torch.cuda.CUDAGraph: its replay does nothing."""

    marks: Marks

    def replay(self) -> None:
        self.marks.launch()

    def pool(self) -> tuple[int, int]:
        return (0, 1)


class StandinEvent:
    """torch.cuda.Event."""

    def __init__(self, **_: object) -> None:
        pass

    def record(self, stream: object = None) -> None:
        pass

    def wait(self, stream: object = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class StandinStream:
    """torch.cuda.Stream."""

    cuda_stream = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        pass

    def wait_event(self, event: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record_event(self, event: StandinEvent | None = None) -> StandinEvent:
        return event or StandinEvent()


class Statistics(dict[str, int]):
    """torch.cuda.memory_stats: nothing is in use."""

    def __missing__(self, key: str) -> int:
        return 0


def _without_device(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a torch function that allocates in plain memory of the host, whatever is asked for."""

    def allocate(*args: Any, pin_memory: bool = False, device: object = None, **settings: Any) -> Tensor:
        if device == "meta":
            settings["device"] = device
        return function(*args, **settings)

    return allocate


def _is_a_gpu(value: object) -> bool:
    return (isinstance(value, str) and value.startswith("cuda")) or (
        isinstance(value, torch.device) and value.type == "cuda"
    )


def _moving(move: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return Tensor.to without a GPU; a move between host and device is a copy."""

    def to(values: Tensor, *args: Any, non_blocking: bool = False, **settings: Any) -> Tensor:
        if _is_a_gpu(settings.get("device")):
            del settings["device"]
            settings.setdefault("copy", True)
        if args and _is_a_gpu(args[0]):
            args = args[1:]
            settings.setdefault("copy", True)
        if args or len(settings) > ("copy" in settings):
            return move(values, *args, **settings)
        return values.clone() if settings.get("copy") else values

    return to


def _linear(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return hidden.new_empty(*hidden.shape[:-1], weight.shape[0])


def _attributes(marks: Marks) -> Iterator[tuple[Any, str, Any]]:
    """Yield owner, name and stand-in."""
    for name in FACTORIES:
        yield torch, name, _without_device(getattr(torch, name))
    move, tolist = Tensor.to, Tensor.tolist

    def read(values: Tensor) -> Any:
        numbers = tolist(values)
        first = numbers[0] if isinstance(numbers, list) and numbers else None
        marks.read(first[0] if isinstance(first, list) and first else first)
        return numbers

    yield Tensor, "to", _moving(move)
    yield Tensor, "cuda", lambda values, *_, **__: values.clone()
    yield Tensor, "pin_memory", lambda values, *_: values.clone()
    yield Tensor, "tolist", read
    yield Tensor, "device", property(lambda values: CUDA)
    yield Tensor, "is_cuda", property(lambda values: True)
    cuda = torch.cuda
    yield cuda, "CUDAGraph", type("CUDAGraph", (StandinGraph,), {"marks": marks})
    yield cuda, "Event", StandinEvent
    yield cuda, "Stream", StandinStream
    stream = StandinStream()
    for name in ("current_stream", "default_stream"):
        yield cuda, name, lambda *_: stream
    for name in ("graph", "stream", "device"):
        yield cuda, name, lambda *_, **__: nullcontext()
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats", "set_device", "set_stream"):
        yield cuda, name, lambda *_: None
    for name in ("memory_reserved", "max_memory_reserved", "memory_allocated", "current_device"):
        yield cuda, name, lambda *_: 0
    yield cuda, "graph_pool_handle", lambda: (0, 1)
    yield cuda, "mem_get_info", lambda *_: (MEMORY, MEMORY)
    yield cuda, "memory_stats", lambda *_: Statistics()
    yield cuda, "is_available", lambda: True
    yield cuda, "device_count", lambda: 1
    yield cuda, "get_device_name", lambda *_: "a stand-in for an H100"
    yield cuda, "get_device_capability", lambda *_: (9, 0)
    properties = type("Properties", (), {"multi_processor_count": 132, "major": 9, "minor": 0, "total_memory": MEMORY})
    yield cuda, "get_device_properties", lambda *_: properties()
    yield torch.nn.functional, "linear", _linear


def _labengines(marks: Marks) -> Iterator[tuple[Any, str, Any]]:
    """Yield labengine's names that are replaced: the product, and the sampling of kernels that do not run."""
    from labengine.engine import modules, triton_sampler

    sample = triton_sampler.sample

    def sampled(logits: Tensor, draws: Tensor | None, *, cuts: bool = False) -> Tensor:
        tokens = sample(logits, draws, cuts=cuts)
        tokens[0].fill_(marks.token)
        tokens[1].fill_(1)
        return tokens

    yield modules, "linear", _linear
    yield triton_sampler, "sample", sampled


@contextmanager
def cuda_replaced() -> Iterator[Marks]:
    """Stand in for CUDA, and yield the marks of launches and reads."""
    from labengine.engine import triton_sampler

    marks = Marks()
    with ExitStack() as patched:
        patched.enter_context(without_device())
        triton_sampler._trial.cache_clear()
        for owner, name, value in [*_labengines(marks), *_attributes(marks)]:
            patched.enter_context(patch.object(owner, name, value))
        yield marks
    triton_sampler._trial.cache_clear()
