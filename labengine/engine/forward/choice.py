"""The choice of the fastest forward pass for the selected attention backend, and of its steps' staging."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from labengine.config import ConfigError, GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionBackend
from labengine.engine.attention.native import NativeAttention
from labengine.engine.attention.torch_static import StaticTorch
from labengine.engine.forward import Forward
from labengine.engine.forward.eager import EagerForward
from labengine.engine.forward.graphs import CudaRecorder, GraphedForward, Recorder, longest_context, refusal
from labengine.engine.forward.pieces import PiecewiseForward, longest_piece
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.step_limits import StepLimits
from labengine.engine.step_tensors import NewTokens, StepStaging, StepTensors
from labengine.engine.weights import Packing


def choose_forward(
    model: PagedModel,
    kv: KVTensors,
    groups: Sequence[GroupSpec],
    backend: AttentionBackend,
    reason: str,
    limits: StepLimits | None,
    static_step: type[StaticStep] = StaticStep,
    recorder: Recorder | None = None,
) -> Forward:
    """Return a native program for the CPU's kernels, graphs and pieces on a GPU, else the model module by module.

    model: loaded with choose_packing's packing. limits: the largest step for graphs; None for no graphs.
    static_step: the graphs' static tensors. recorder: records decodes only, on any device, if attention can be
    captured; None: CUDA graphs.
    """
    if _is_native(backend):
        from labengine.engine.forward.native import NativeForward

        return NativeForward(model, kv, groups, reason)
    eager = EagerForward(model, kv, backend, reason)
    if (needs := model.config.needs_modules) is not None:
        if recorder is not None:
            raise ConfigError(f"a runner that records decodes cannot compute {needs}: use labengine.ModelRunner")
        return eager
    if limits is None or not backend.is_capturable or (recorder is None and refusal(kv.device, backend) is not None):
        return eager
    longest = longest_context(limits.max_model_len, groups, kv.num_blocks)
    others = None
    if recorder is None:
        recorder = CudaRecorder(kv.device)
        if not isinstance(backend, StaticTorch):  # it reads and writes by rows, for decodes only; see StaticRunner
            others = PiecewiseForward(eager, groups, longest_piece(model, limits.max_num_batched_tokens), recorder)
    return GraphedForward(eager, groups, longest, limits.max_decodes, recorder, kv.device, static_step, others)


def choose_packing(backend: AttentionBackend) -> Packing | None:
    """Return the order of weights for this backend's forward pass; None for the files' order."""
    if not _is_native(backend):
        return None
    from labengine.engine.native.library import packed_pieces

    return packed_pieces


def _is_native(backend: AttentionBackend) -> bool:
    """Return False for a subclass too, since a program would not call its methods."""
    return type(backend) is NativeAttention


class GraphStaging:
    """Staging on the host for steps that graphs take, and on the device for all others."""

    def __init__(self, groups: Sequence[GroupSpec], device: torch.device, takes: Callable[[StepTensors], bool]) -> None:
        """takes: see GraphedForward.takes."""
        self._on_host = StepStaging(groups, torch.device("cpu"))
        self._on_device = StepStaging(groups, device)
        self._takes = takes

    def step_tensors(self, plan: StepPlan, new: NewTokens | None = None) -> StepTensors:
        """Expand a plan; see StepStaging. The few decodes that do not fit into the graphs are staged twice.

        The static step writes the late tokens of a step on the host.
        """
        if all(request.num_tokens == 1 for request in plan.scheduled):
            step = self._on_host.expanded(plan, new)
            if self._takes(step):
                return step
        return self._on_device.step_tensors(plan, new)


def choose_staging(forward: Forward, groups: Sequence[GroupSpec], device: torch.device) -> StepStaging | GraphStaging:
    """Return the staging for a forward pass; graphs that copy their steps take them from the host."""
    if isinstance(forward, GraphedForward) and forward.copies_steps:
        return GraphStaging(groups, device, forward.takes)
    return StepStaging(groups, device)
