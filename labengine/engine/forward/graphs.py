"""Decode steps as recorded graphs: a small step on a GPU is mostly kernel launches, and a graph launches all at once.

A graph has a fixed number of rows, so a step of decodes runs through the smallest graph that it fits into, with the
remaining rows padded (static_step.py). All other steps (prompts, chunks that do not sample, contexts beyond the tables'
width) run in other ways (pieces.py).

All sizes are recorded when the model is loaded, the largest first. So its memory serves the smaller ones, a failure is
reported before the first request, and no later step is slow because it is the first of its size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from threading import Lock
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.engine.attention import AttentionBackend
from labengine.engine.forward import Forward
from labengine.engine.forward.eager import EagerForward
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.step_tensors import StepTensors

RecordedForward = Callable[[], Tensor]
"""Repeats the recorded computation on its inputs' current content; the next call overwrites the result."""


class Recorder(Protocol):
    """Captures a computation over static tensors as one graph."""

    title: str
    """A name for its recordings in status()."""

    def record(self, run: Callable[[], Tensor]) -> RecordedForward:
        """Record `run`, which reads nothing back to the host. Raises RuntimeError if that is impossible."""
        ...


class RunAgain:
    """Replays by running again, on any device. Like a graph, it reads the static tensors' current content."""

    title = "replay over static tensors"

    def record(self, run: Callable[[], Tensor]) -> RecordedForward:
        """Run once, so that errors appear here, and return a function that runs again into the same memory."""
        result = run()
        return lambda: result.copy_(run())


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the device's one stream for captures; cuBLAS keeps a workspace per stream (32 MiB on sm_90) forever."""
    return torch.cuda.Stream(device)


_CAPTURING = Lock()
"""Held during a capture, as the stream serves one at a time."""


@contextmanager
def stream_restored(device: torch.device) -> Iterator[None]:
    """Restore the current stream at the end, because torch does not when a capture fails."""
    before = torch.cuda.current_stream(device)
    try:
        yield
    finally:
        torch.cuda.set_stream(before)


class CudaRecorder:
    """CUDA graphs in one memory pool, since they never run at the same time and their results are not kept."""

    title = "CUDA graphs"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._stream = capture_stream(device)
            self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], Tensor]) -> RecordedForward:
        """Run once to compile and load kernels, then capture."""
        with torch.cuda.device(self._device), _CAPTURING, stream_restored(self._device):
            self._warm_up(run)
            graph = torch.cuda.CUDAGraph()
            # Other threads of a notebook may use the GPU in the meantime, so only this thread's errors end a capture.
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
    """Runs decodes through graphs, and all other steps, or all steps if recording failed, through `others`."""

    def __init__(
        self, eager: EagerForward, groups: Sequence[GroupSpec], max_context: int, max_num_seqs: int, recorder: Recorder,
        device: torch.device, static_step: type[StaticStep] = StaticStep, others: Forward | None = None,
    ) -> None:  # fmt: skip
        """Record all sizes. max_context: longest context that the model's positions and the pool's blocks allow.

        others: runs all other steps; None: `eager`.
        """
        self._eager = eager
        self._others = others or eager
        self._static: StaticStep | None = static_step(groups, max_num_seqs, max_context, device)
        self._sizes = graph_sizes(max_num_seqs)
        self._recordings: dict[int, RecordedForward] = {}
        started = perf_counter()
        try:
            self._record(recorder, self._static)
        except RuntimeError as error:
            self._recordings = {}
            self._words = f"no {recorder.title}: {first_line(error)}"
        else:
            self._words = f"{recorder.title} for decodes of {_listed(self._sizes)}, in {perf_counter() - started:.1f} s"

    @torch.inference_mode()
    def __call__(self, step: StepTensors) -> Tensor:
        """Compute a step; see Forward."""
        if not self.takes(step):
            return self._others(step)
        assert self._static is not None
        self._static.load(step)
        size = self._sizes[bisect_left(self._sizes, step.num_requests)]
        return self._recordings[size]()[: step.num_requests]

    def takes(self, step: StepTensors) -> bool:
        """Return True for a step that is replayed."""
        return self._static is not None and bool(self._recordings) and self._static.has_room_for(step)

    @property
    def copies_steps(self) -> bool:
        """True if graphs copy their steps from the host to the device."""
        return self._static is not None and self._static.is_copied and bool(self._recordings)

    def argmax(self, logits: Tensor) -> None:
        """Return None: the sampler computes it."""

    def describe(self) -> dict[str, str]:
        """Return the recorded sizes, or why there are none, and the other steps' lines."""
        lines = self._others.describe()
        return {**lines, "forward": f"{self._words}; {lines['forward']}"}

    def release(self) -> None:
        """Release the graphs first, as they hold addresses of the other memory. A second call has no effect."""
        self._recordings = {}
        self._static = None
        self._others.release()

    @torch.inference_mode()
    def _record(self, recorder: Recorder, static: StaticStep) -> None:
        """Record all sizes, the largest first. Their logits are rows of one tensor (156 MB for 256 x 152k)."""
        vocab_size = self._eager.model.config.vocab_size
        logits = torch.empty(static.max_num_seqs, vocab_size, dtype=torch.float32, device=self._eager.kv.device)
        for size in reversed(self._sizes):
            self._recordings[size] = recorder.record(partial(self._eager, static.recorded_rows(size), logits[:size]))


def refusal(device: torch.device, backend: AttentionBackend) -> str | None:
    """Return why decodes cannot be recorded here, as half a sentence; None if they can."""
    if device.type != "cuda":
        return f"graphs are recorded on a GPU, but the model is on {device}"
    if not backend.is_capturable:
        return f"{backend.name} attention needs the host partway through"
    return None


def longest_context(max_model_len: int, groups: Sequence[GroupSpec], num_blocks: int) -> int:
    """Return the longest context of a request: the model's positions, or all blocks if a group keeps every token."""
    room = [num_blocks * group.block_size for group in groups if group.window is None]
    return min([max_model_len, *room])


def graph_sizes(max_num_seqs: int) -> list[int]:
    """Return 1, 2, 4, 8, then steps of 8, of 16 from 64 on, of 32 from 128 on ..., and max_num_seqs itself.

    Beyond 16 requests less than a third of a graph's rows are padding, and 512 requests need 23 graphs instead of 67.
    """
    sizes, size = [1, 2, 4], 8
    while size < max_num_seqs:
        sizes.append(size)
        size += max(8, 1 << (size.bit_length() - 3))
    return [*(size for size in sizes if size < max_num_seqs), max_num_seqs]


def _listed(sizes: Sequence[int]) -> str:
    """Return '1, 2, 4 and 8 requests', or for many sizes the first and the last."""
    if len(sizes) == 1:
        return f"{sizes[0]} request{'s' * (sizes[0] != 1)}"
    if len(sizes) <= 6:
        return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} requests"
    return f"{sizes[0]}, {sizes[1]}, {sizes[2]} ... {sizes[-1]} requests ({len(sizes)} sizes)"


def first_line(error: BaseException) -> str:
    """Return the first line of the error's message, else its type."""
    return (str(error) or type(error).__name__).splitlines()[0]
