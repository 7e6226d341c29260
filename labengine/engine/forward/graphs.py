"""Decode steps as recorded graphs: a small step on a GPU is mostly launching kernels, and a graph launches all at once.

A graph has a fixed number of rows, so a step of decodes runs through the smallest one that it fits into, the rest of
its rows padded (static_step.py). Every other step runs as ever: prompts, chunks that do not sample, contexts beyond the
tables' width.

All sizes are recorded when the model is loaded, the largest first: the memory of one serves the smaller ones, a
failure is known, and told, before the first request comes, and no step later on is slow for being the first of its
size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.engine.attention import AttentionBackend
from labengine.engine.forward import Forward
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.step_tensors import StepTensors

Recording = Callable[[], Tensor]
"""Computes again what was recorded, from what its inputs hold now; the result is overwritten by the next call."""


class Recorder(Protocol):
    """Turns a computation over tensors that never move into one that launches as a whole."""

    def record(self, run: Callable[[], Tensor]) -> Recording:
        """Record `run`, which reads nothing back to the host. RuntimeError when that cannot be done."""
        ...


class CudaRecorder:
    """CUDA graphs, all in one memory pool: they never run at the same time, and nobody keeps their results."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], Tensor]) -> Recording:
        """Run once to compile and load kernels, then capture."""
        with torch.cuda.device(self._device):
            self._warm_up(run)
            graph = torch.cuda.CUDAGraph()
            # Other threads of a notebook may use the GPU meanwhile: only this one's mistakes end a capture.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                result = run()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    def _warm_up(self, run: Callable[[], Tensor]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run()
        torch.cuda.current_stream().wait_stream(self._stream)


class GraphedForward:
    """Decodes through graphs, everything else through `eager`; through it alone when recording failed."""

    def __init__(
        self, eager: Forward, groups: Sequence[GroupSpec], max_context: int, max_num_seqs: int, recorder: Recorder,
        device: torch.device,
    ) -> None:  # fmt: skip
        """Records all sizes. max_context: the longest a request can get, by the model's positions and the pool's."""
        self._eager = eager
        self._static: StaticStep | None = StaticStep(groups, max_num_seqs, max_context, device)
        self._sizes = graph_sizes(max_num_seqs)
        self._recordings: dict[int, Recording] = {}
        started = perf_counter()
        try:
            self._record(recorder, self._static)
        except RuntimeError as error:
            self._recordings = {}
            self._words = f"no CUDA graphs: {_first_line(error)}"
        else:
            self._words = f"CUDA graphs for decodes of {_listed(self._sizes)}, in {perf_counter() - started:.1f} s"

    @torch.inference_mode()
    def __call__(self, step: StepTensors) -> Tensor:
        """See Forward."""
        static = self._static
        if static is None or not self._recordings or not static.has_room_for(step):
            return self._eager(step)
        static.load(step)
        size = self._sizes[bisect_left(self._sizes, step.num_requests)]
        return self._recordings[size]()[: step.num_requests]

    def best(self, logits: Tensor) -> None:
        """The sampler finds out."""

    def describe(self) -> dict[str, str]:
        """Return the sizes recorded, or why there are none; else as the eager forward says."""
        lines = self._eager.describe()
        return {**lines, "forward": f"{self._words}; {lines['forward']}"}

    def release(self, *, keeps_weights: bool = False) -> None:
        """Graphs go first: they hold addresses of what goes after them. Twice is harmless."""
        self._recordings = {}
        self._static = None
        self._eager.release(keeps_weights=keeps_weights)

    @torch.inference_mode()
    def _record(self, recorder: Recorder, static: StaticStep) -> None:
        for size in reversed(self._sizes):
            self._recordings[size] = recorder.record(partial(self._eager, static.rows(size)))


def refusal(device: torch.device, backend: AttentionBackend) -> str | None:
    """Why decodes cannot be recorded here, as half a sentence; None when they can."""
    if device.type != "cuda":
        return f"graphs are recorded on a GPU, and the model is on {device}"
    if not backend.is_capturable:
        return f"attention by {backend.name} asks the host in between"
    return None


def longest_context(max_model_len: int, groups: Sequence[GroupSpec], num_blocks: int) -> int:
    """Return tokens that a request can get to.

    The model's positions, or all blocks, where a group keeps every token.
    """
    room = [num_blocks * group.block_size for group in groups if group.window is None]
    return min([max_model_len, *room])


def graph_sizes(max_num_seqs: int) -> list[int]:
    """1, 2, 4, 8, then in steps of 8, of 16 from 64 on, of 32 from 128 on ..., and max_num_seqs itself.

    Beyond 16 requests less than a third of a graph's rows is padding, and 512 requests need 23 graphs and not 67.
    """
    sizes, size = [1, 2, 4], 8
    while size < max_num_seqs:
        sizes.append(size)
        size += max(8, 1 << (size.bit_length() - 3))
    return [*(size for size in sizes if size < max_num_seqs), max_num_seqs]


def _listed(sizes: Sequence[int]) -> str:
    """'1, 2, 4 and 8 requests', or, of many sizes, the first and the last."""
    if len(sizes) == 1:
        return f"{sizes[0]} request{'s' * (sizes[0] != 1)}"
    if len(sizes) <= 6:
        return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} requests"
    return f"{sizes[0]}, {sizes[1]}, {sizes[2]} ... {sizes[-1]} requests ({len(sizes)} sizes)"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
