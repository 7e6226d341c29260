"""A step on a CPU as one call: a team of threads runs the model's program."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from labengine.config import ConfigError, GroupSpec
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.native.layout import MAX_GROUPS, Step, program_of
from labengine.engine.native.library import aligned_empty, kernels_in_use, team
from labengine.engine.native.program import Buffer, Program
from labengine.engine.step_tensors import StepTensors


class NativeForward:
    """A forward pass for float32 and bfloat16. Its buffers grow with the largest step so far."""

    def __init__(self, model: PagedModel, kv: KVTensors, groups: Sequence[GroupSpec], reason: str) -> None:
        """model: has packed weights, which other forward passes may share."""
        if len(groups) > MAX_GROUPS:
            raise ConfigError(
                f"the CPU kernels support up to {MAX_GROUPS} KV-cache groups, but the model has {len(groups)}"
            )
        self._program = Program(model, kv, groups)
        self._ops = program_of(self._program.ops)
        self._dtype = model.norm.weight.dtype
        self._team = team(torch.get_num_threads())
        self._reason = reason
        self._step = Step()
        self._buffers = [aligned_empty(0, buffer.dtype) for buffer in self._program.buffers]
        self._scratch = aligned_empty(0, torch.uint8)
        self._rows_of_buffers: tuple[int, int] = (0, 0)
        """Number of tokens and sampling rows for which the pointers to buffers are valid."""
        self._views: dict[int, Tensor] = {}
        """Returned views of buffers, by number."""
        self._last_logits: tuple[Tensor | None, int] = (None, 0)

    def __call__(self, step: StepTensors) -> Tensor:
        """Compute a step; see Forward."""
        self._point_at(step)
        self._team.run(self._dtype, self._ops, self._step)
        return self._logits()

    def profile(self, step: StepTensors) -> tuple[Tensor, list[tuple[str, float]]]:
        """Compute a step; return the logits, and (name, seconds) of each op in order."""
        self._point_at(step)
        seconds = (ctypes.c_double * len(self._ops))()
        self._team.run(self._dtype, self._ops, self._step, seconds)
        return self._logits(), list(zip(self._program.names, seconds, strict=True))

    def argmax(self, logits: Tensor) -> Tensor | None:
        """Return the last step's argmax tokens; see Forward."""
        last, version = self._last_logits
        if logits is not last or logits._version != version:
            return None
        return self._view(self._program.argmax, (2, self._step.num_sampling))

    def describe(self) -> dict[str, str]:
        """Return lines on kernels and threads."""
        num_ops = len(self._program.names)
        kernels = kernels_in_use()
        threads = f"{self._team.num_threads} thread{'s' * (self._team.num_threads != 1)}"
        return {
            "attention": self._reason,
            "forward": f"native: one program of {num_ops} ops, {threads}, {kernels.instruction_set} {kernels.origin}",
        }

    def release(self) -> None:
        """Release the buffers and the ops."""
        self._ops, self._buffers, self._views, self._last_logits = program_of([]), [], {}, (None, 0)
        self._scratch = aligned_empty(0, torch.uint8)
        self._program.release()

    def _logits(self) -> Tensor:
        logits = self._view(self._program.logits, (self._step.num_sampling, self._program.logits.width))
        self._last_logits = logits, logits._version
        return logits

    def _view(self, buffer: Buffer, shape: tuple[int, int]) -> Tensor:
        """Return the buffer's first numbers in that shape: the same tensor as before, unless a caller changed it."""
        view = self._views.get(buffer.number)
        if view is None or view.shape != shape or view.data_ptr() != self._step.buffers[buffer.number]:
            view = self._buffers[buffer.number][: shape[0] * shape[1]].view(shape)
            self._views[buffer.number] = view
        return view

    def _point_at(self, step: StepTensors) -> None:
        native = self._step
        native.num_tokens, native.num_requests = step.num_tokens, step.num_requests
        native.num_sampling = step.sample_rows.shape[0]
        for name in ("token_ids", "positions", "query_starts", "contexts", "sample_rows"):
            setattr(native, name, getattr(step, name).data_ptr())
        for index, group in enumerate(step.groups):
            native.slots[index] = group.slots.data_ptr()
            native.tables[index] = group.block_tables.data_ptr()
            native.table_strides[index] = group.block_tables.stride(0)
        self._make_room()

    def _make_room(self) -> None:
        native = self._step
        if self._rows_of_buffers != (native.num_tokens, native.num_sampling):
            self._rows_of_buffers = 0, 0
            for buffer in self._program.buffers:
                needed = buffer.width * (native.num_sampling if buffer.is_sampling else native.num_tokens)
                if needed > self._buffers[buffer.number].numel():
                    self._buffers[buffer.number] = aligned_empty(needed, buffer.dtype)
                native.buffers[buffer.number] = self._buffers[buffer.number].data_ptr()
            self._rows_of_buffers = native.num_tokens, native.num_sampling
        needed = self._team.scratch_bytes(self._ops, native)
        if needed > self._scratch.numel():
            self._scratch = aligned_empty(needed, torch.uint8)
        native.scratch = self._scratch.data_ptr()
