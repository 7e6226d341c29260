"""A stand-in for a GPU: its memory is the host's, and copies that nobody waits for are made as late as is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

CUDA = torch.device("cuda:1")


class LateGpu:
    """Copies out of pinned memory, and into it, are queued until the host waits for an event recorded behind them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue: list[tuple[Tensor, Tensor]] = []
        self.num_copied = 0
        """Copies that are over, and out of the queue."""
        self.sizes: list[int] = []
        """Numbers of each copy."""
        self._pinned: list[int] = []
        self._copy = torch.Tensor.copy_
        monkeypatch.setattr(torch, "zeros", self._allocating(torch.zeros))
        monkeypatch.setattr(torch, "zeros_like", self._allocating(torch.zeros_like))
        monkeypatch.setattr(torch, "empty_like", self._allocating(torch.empty_like))
        monkeypatch.setattr(torch.Tensor, "to", self._moved)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda values: self._pinned_copy(values))
        monkeypatch.setattr(torch.Tensor, "copy_", self._copied())
        monkeypatch.setattr(torch.cuda, "Event", lambda: LateEvent(self))
        monkeypatch.setattr(torch.cuda, "current_stream", self._stream_of)

    def finish(self, num_copies: int | None = None) -> None:
        """Make the first copies since the beginning, if they are not made yet; None: all."""
        while self.queue and (num_copies is None or self.num_copied < num_copies):
            target, source = self.queue.pop(0)
            self._copy(target, source)
            self.num_copied += 1

    def _allocating(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function that allocates on the host instead of a GPU, and records pinned memory."""

        def allocate(*args: Any, pin_memory: bool = False, **settings: Any) -> Tensor:
            result = function(*args, **{name: value for name, value in settings.items() if value != CUDA})
            if pin_memory:
                self._pinned.append(result.untyped_storage().data_ptr())
            return result

        return allocate

    @staticmethod
    def _stream_of(device: object) -> object:
        assert device == CUDA
        return object()

    def _pinned_copy(self, values: Tensor) -> Tensor:
        pinned = values.clone()
        self._pinned.append(pinned.untyped_storage().data_ptr())
        return pinned

    @staticmethod
    def _moved(values: Tensor, device: object, *, copy: bool = False, non_blocking: bool = False) -> Tensor:
        assert device == CUDA and (copy or non_blocking), "the host would wait for it"
        return torch.empty_like(values).copy_(values, non_blocking=non_blocking)

    def _copied(self) -> Callable[..., Tensor]:
        def copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
            if not non_blocking:
                return self._copy(target, source)
            both = {tensor.untyped_storage().data_ptr() for tensor in (target, source)}
            assert both & {*self._pinned}, "the host would wait for it"
            self.queue.append((target, source))
            self.sizes.append(len(source))
            return target

        return copy


class OnTheGpu(Tensor):
    """A tensor that says that it is on the stand-in: `tensor.as_subclass(OnTheGpu)`."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA


class LateEvent:
    """torch.cuda.Event on the stand-in."""

    def __init__(self, gpu: LateGpu) -> None:
        self._gpu, self._num_copies = gpu, 0

    def record(self, stream: object) -> None:
        self._num_copies = self._gpu.num_copied + len(self._gpu.queue)

    def synchronize(self) -> None:
        self._gpu.finish(self._num_copies)
