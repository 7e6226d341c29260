"""Paged attention by the CPU kernels in engine/native: every slot is read in place, without a gather.

In a complete step that runs as one native program (forward/native.py), attention is one of its ops. Here it is a
separate program, for a model that runs module by module.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors


class NativeStep(StepAttention):
    """One step and group, as a program of a single op."""

    def __init__(self, step: StepTensors, group: GroupTensors) -> None:
        from labengine.engine.native.layout import Step

        self._tensors = (step, group)  # keeps alive the memory that pointers refer to
        self._slots = group.slots.long()
        self._group = group
        self._step = Step(
            num_tokens=step.num_tokens,
            num_requests=step.num_requests,
            query_starts=step.query_starts.data_ptr(),
            contexts=step.contexts.data_ptr(),
        )
        self._step.tables[0] = group.block_tables.data_ptr()
        self._step.table_strides[0] = group.block_tables.stride(0)

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the KV with torch."""
        cache.keys.view(-1, *keys.shape[1:]).index_copy_(0, self._slots, keys)
        cache.values.view(-1, *values.shape[1:]).index_copy_(0, self._slots, values)

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend with a native program."""
        from labengine.engine.native.layout import Op, OpKind, program_of
        from labengine.engine.native.library import aligned_empty, team

        num_tokens, num_heads, head_dim = queries.shape
        num_kv_heads = cache.keys.shape[2]
        heads = queries.new_empty(num_tokens, num_heads + 2 * num_kv_heads, head_dim)
        heads[:, :num_heads] = queries
        out = queries.new_empty(num_tokens, num_heads, head_dim)
        op = Op(
            kind=OpKind.ATTEND,
            in_=0,
            out=1,
            scale=scale,
            keys=cache.keys.data_ptr(),
            values=cache.values.data_ptr(),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            block_size=self._group.block_size,
            window=self._group.window or 0,
        )
        ops, members = program_of([op]), team(torch.get_num_threads())
        self._step.buffers[0], self._step.buffers[1] = heads.data_ptr(), out.data_ptr()
        scratch = aligned_empty(members.scratch_bytes(ops, self._step), torch.uint8)
        self._step.scratch = scratch.data_ptr()
        members.run(queries.dtype, ops, self._step)
        return out


class NativeAttention(AttentionBackend):
    """C, compiled for this machine on first use: float32 and bfloat16, any block size, window and head_dim."""

    name = "cpu"
    advantage = "native kernels for this machine"

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """Refuse devices other than a CPU, layers and dtypes without kernels, and machines without a compiler."""
        if setting.device.type != "cpu":
            return f"it runs on a CPU, but the model is on {setting.device}"
        if setting.needs_modules is not None:
            return f"it cannot compute {setting.needs_modules}"
        from labengine.engine.native.compile import CompileError
        from labengine.engine.native.library import SUFFIXES, library

        if setting.dtype not in SUFFIXES:
            names = " and ".join(str(dtype).removeprefix("torch.") for dtype in SUFFIXES)
            return f"it has kernels for {names}, not for {str(setting.dtype).removeprefix('torch.')}"
        try:
            library()
        except (CompileError, OSError) as error:
            return str(error)
        return None

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Keep pointers to the step's tensors."""
        return NativeStep(step, group)
