"""One op of the native kernels, run over torch tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labengine.engine.native.layout import Op, OpKind, Step, program_of
from labengine.engine.native.library import team
from labengine.engine.step_tensors import StepTensors


def run_op(kind: OpKind, step: StepTensors, buffers: dict[str, Tensor], *, num_threads: int = 1, **fields: Any) -> None:
    """Run one op. buffers: by the op's word for them: in_, other, out; tensors among the fields become pointers."""
    for tensor in buffers.values():
        assert tensor.is_contiguous()
    numbers = {name: number for number, name in enumerate(buffers)}
    pointers = {name: field.data_ptr() if isinstance(field, Tensor) else field for name, field in fields.items()}
    op = Op(kind=kind, **{"in_": -1, "other": -1, "out": -1, **numbers, **pointers})
    dtype = next(tensor.dtype for name, tensor in buffers.items() if kind == OpKind.EMBED or name in ("in_", "other"))
    c_step = native_step(step)
    for number, tensor in enumerate(buffers.values()):
        c_step.buffers[number] = tensor.data_ptr()
    ops, crew = program_of([op]), team(num_threads)
    scratch = torch.full((crew.scratch_bytes(ops, c_step) // 4 + 16,), torch.nan)
    c_step.scratch = scratch.data_ptr()
    crew.run(dtype, ops, c_step)


def native_step(step: StepTensors) -> Step:
    """The step as C reads it; `step` has to outlive it."""
    tensors = ("token_ids", "positions", "query_starts", "contexts", "sample_rows")
    c_step = Step(
        num_tokens=step.num_tokens,
        num_requests=step.num_requests,
        num_sampling=len(step.sample_rows),
        **{name: getattr(step, name).data_ptr() for name in tensors},
    )
    for number, group in enumerate(step.groups):
        c_step.slots[number] = group.slots.data_ptr()
        c_step.tables[number] = group.block_tables.data_ptr()
        c_step.table_strides[number] = group.block_tables.stride(0)
    return c_step
