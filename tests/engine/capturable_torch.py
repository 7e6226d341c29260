"""What graphs need, without a GPU: a backend that takes padding, and a recorder that counts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.attention.flash_attn import torch_store
from labengine.engine.forward.graphs import RecordedForward
from labengine.engine.forward.graphs import RunAgain as Replay
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors


class CapturableStep(StepAttention):
    """Token by token, from lengths and tables as they are when it attends."""

    def __init__(self, step: StepTensors, group: GroupTensors) -> None:
        self._step = step
        self._group = group

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        torch_store(keys, values, cache, self._group.slots)

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        out = torch.zeros_like(queries)
        starts = self._step.query_starts.tolist()
        for request, context in enumerate(self._step.contexts.tolist()):
            for row in range(starts[request], starts[request + 1]) if context else ():
                end = context - starts[request + 1] + row + 1
                first = 0 if self._group.window is None else max(0, end - self._group.window)
                out[row] = self._attended(queries[row], request, torch.arange(first, end), cache, scale)
        return out

    def _attended(self, query: Tensor, request: int, positions: Tensor, cache: LayerKV, scale: float) -> Tensor:
        size = self._group.block_size
        slots = self._group.block_tables[request][positions // size].long() * size + positions % size
        group = len(query) // cache.keys.shape[2]
        keys, values = (
            pool.flatten(0, 1)[slots].repeat_interleave(group, dim=1).float() for pool in (cache.keys, cache.values)
        )
        weights = (torch.einsum("hd,khd->hk", query.float(), keys) * scale).softmax(-1)
        return torch.einsum("hk,khd->hd", weights, values).to(query.dtype)


class CapturableTorch(AttentionBackend):
    """What a backend for graphs does on the device, on the CPU: nothing but tensors decides what it computes."""

    name = "capturable"
    advantage = "for tests"
    is_capturable = True

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        return None

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        return CapturableStep(step, group)


class RunAgain(Replay):
    """The replay without a GPU, counted; the recording fails where it is asked to."""

    title = "CUDA graphs"

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.recorded: list[int] = []
        self.replayed: list[int] = []

    def record(self, run: Callable[[], Tensor]) -> RecordedForward:
        if len(self.recorded) == self.fails_at:
            raise RuntimeError("operation not permitted when stream is capturing\nsecond line")
        rows: list[int] = []

        def counted() -> Tensor:
            result = run()
            rows.append(len(result))
            return result

        recorded = super().record(counted)
        self.recorded.append(rows[0])

        def replay() -> Tensor:
            self.replayed.append(rows[0])
            return recorded()

        return replay
