"""Paged attention by labengine's Triton kernels: any block size, any GPU that Triton compiles for, CUDA graphs.

Decodes and chunks of prompts may be mixed; each kind has a different tile shape. Nothing is read back from the device.
A launch depends on host values only, and the programs read the rest themselves.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import product
from typing import Any

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.attention.triton_tiles import (
    Gpu,
    TileShape,
    decode_shape,
    num_spans,
    padded_dim,
    power_of_two,
    prefill_shape,
    query_tiles,
)
from labengine.engine.device import sent
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors
from labengine.engine.trial_launch import launch_refusal

MAX_HEAD_DIM = 256
MIN_CAPABILITY = {torch.float16: (7, 5), torch.bfloat16: (8, 0), torch.float32: (7, 5)}
LOG2_E = math.log2(math.e)
SPANS_AT_ONCE = 16
"""Number of spans that the joining kernel loads at a time."""


def is_interpreted() -> bool:
    """Return True if Triton's environment variable makes it interpret kernels in Python, on any device."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@dataclass(frozen=True, slots=True)
class Launch:
    """Tiles of one shape. tiles: int32 [num_tiles, 2], request and first query; None if tile i is row i, a decode."""

    shape: TileShape
    queries: int
    tiles: Tensor | None
    num_tiles: int
    num_spans: int


Repeat = Callable[[Tensor, Tensor], object]
"""Repeats launches with other keys and values."""


class LaunchOfStep:
    """One of a step's launches, for layer after layer."""

    def __init__(self, step: StepTensors, group: GroupTensors, launch: Launch) -> None:
        self._step = step
        self._group = group
        self._launch = launch
        self._last: tuple[Tensor, Tensor, float] | None = None
        """Output, queries and scale for which `_repeat` launches."""
        self._repeat: Repeat | None = None

    def attend(self, out: Tensor, queries: Tensor, cache: LayerKV, scale: float) -> None:
        """Attend from this launch's tiles. The next layers with the same output and queries repeat the kernels.

        Triton's own launch takes several times as long on the host, because it inspects each argument again.
        """
        # A kernel is compiled for addresses that are multiples of 16, or for any.
        is_aligned = (cache.keys.data_ptr() | cache.values.data_ptr()) % 16 == 0
        last = self._last
        if last is not None and last[0] is out and last[1] is queries and last[2] == scale and is_aligned:
            assert self._repeat is not None
            self._repeat(cache.keys, cache.values)
            return
        self._last, self._repeat = None, self.launch(out, queries, cache, scale)
        if self._repeat is not None and is_aligned:
            self._last = out, queries, scale

    def launch(self, out: Tensor, queries: Tensor, cache: LayerKV, scale: float) -> Repeat | None:
        """Launch through Triton; return a function that repeats it with other keys and values, if possible."""
        from labengine.engine.attention.triton_kernels import attend_kernel, join_kernel

        launch, shape, tables = self._launch, self._launch.shape, self._group.block_tables
        _, _, num_kv_heads, head_dim = cache.keys.shape
        group_size = queries.shape[1] // num_kv_heads
        is_split = launch.num_spans > 1
        rows = (launch.num_tiles, num_kv_heads, launch.num_spans, launch.queries * group_size) if is_split else (0,)
        # Allocated here and not kept by `attend`, because in a recorded CUDA graph the memory belongs to the graph.
        sums = torch.empty(*rows, head_dim, dtype=torch.float32, device=queries.device)
        totals = torch.empty(*rows, 2, dtype=torch.float32, device=queries.device)
        where = (self._step.contexts, self._step.query_starts, launch.tiles, out, sums, totals)
        numbers = (scale * LOG2_E, queries.stride(0), tables.stride(0), launch.num_spans)
        # Constants are in the order of the kernels' parameters, for the repeats.
        heads = {
            "NUM_KV_HEADS": num_kv_heads,
            "GROUP": group_size,
            "HEAD_DIM": head_dim,
            "PADDED": padded_dim(head_dim),
        }
        window = {"WINDOW": self._group.window or 0, "QUERIES": launch.queries}
        span = {"KEYS": shape.keys, "LEAST": shape.min_steps}
        widen = is_interpreted() and queries.dtype == torch.bfloat16
        size = {"BLOCK_SIZE": self._group.block_size}
        constants = {**heads, **size, **window, "ROWS": shape.rows, **span, "IS_SPLIT": is_split, "WIDEN": widen}
        options = {"num_warps": shape.num_warps, "num_stages": shape.num_stages, "enable_fp_fusion": True}
        grid = (num_kv_heads, launch.num_spans, launch.num_tiles)
        behind_kv = (tables, *where, *numbers)
        kernel = attend_kernel[grid](queries, cache.keys, cache.values, *behind_kv, **constants, **options)
        attend = _repeated(kernel, grid, constants)
        if not is_split:
            return attend and (lambda keys, values: attend(queries, keys, values, *behind_kv))
        constants = {**heads, **window, **span, "SPANS": SPANS_AT_ONCE}
        grid = (launch.queries * group_size, num_kv_heads, launch.num_tiles)
        joined = (*where, launch.num_spans)
        join = _repeated(join_kernel[grid](*joined, **constants, num_warps=4, enable_fp_fusion=True), grid, constants)
        if attend is None or join is None:
            return None
        return lambda keys, values: (attend(queries, keys, values, *behind_kv), join(*joined))


def _repeated(kernel: Any, grid: tuple[int, int, int], constants: dict[str, int]) -> Callable[..., object] | None:
    """Return a function that launches a compiled kernel, given the arguments before its constants.

    None under the interpreter, which compiles nothing, and before Triton 3.6: older ones take other arguments.
    """
    if kernel is None or not _launches_compiled_kernels():
        return None
    launch, values = kernel[grid], tuple(constants.values())
    return lambda *arguments: launch(*arguments, *values)


@cache
def _launches_compiled_kernels() -> bool:
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (3, 6)


class TritonStep(StepAttention):
    """One step's launches, the same for all layers."""

    def __init__(self, step: StepTensors, group: GroupTensors, launches: list[Launch]) -> None:
        self._group = group
        self._launches = launches
        self._launched = [LaunchOfStep(step, group, launch) for launch in launches]

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the KV by a kernel."""
        write_kv(keys, values, cache, self._group.slots)

    @property
    def plain_slots(self) -> Tensor | None:
        """The slots, unless a subclass writes differently."""
        return self._group.slots if type(self).write is TritonStep.write else None

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend launch by launch."""
        queries = _with_contiguous_rows(queries)
        out = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
        for launch in self._launched:
            launch.launch(out, queries, cache, scale)
        return out

    def attend_into(self, out: Tensor, queries: Tensor, cache: LayerKV, scale: float) -> None:
        """Attend without a copy, unless a subclass attends differently."""
        if type(self).attend is not TritonStep.attend:
            super().attend_into(out, queries, cache, scale)
            return
        queries = _with_contiguous_rows(queries)
        for launch in self._launched:
            launch.attend(out, queries, cache, scale)


class TritonAttention(AttentionBackend):
    """labengine's own kernels, compiled on first use."""

    name = "triton"
    advantage = "our own kernels: any block size, CUDA graphs"
    is_capturable = True
    spans: int | None = None
    """Number of spans of each tile's keys; None: as many as fill the GPU."""

    def __init__(self, setting: AttentionSetting, gpu: Gpu | None = None) -> None:
        """gpu: the properties to choose tiles for; None: those of the setting's device."""
        super().__init__(setting)
        self._gpu = gpu or Gpu.of(setting.device)
        self._group_size = setting.num_heads // setting.num_kv_heads
        self.decode_shape = decode_shape(self._gpu, setting)
        self.prefill_shape = prefill_shape(self._gpu, setting)

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """Refuse unsupported settings, and machines on which a trial launch of these kernels fails."""
        refusal = cls.unsupported(setting)
        return refusal if refusal is not None or is_interpreted() else _trial(cls, setting)

    @classmethod
    def unsupported(cls, setting: AttentionSetting) -> str | None:
        """Return why the setting is unsupported, found without a launch; None if it is supported.

        Interpreted kernels need no GPU.
        """
        if find_spec("triton") is None:
            return "Triton is not installed (pip install triton)"
        if setting.head_dim > MAX_HEAD_DIM:
            return f"heads of {setting.head_dim} are larger than {MAX_HEAD_DIM}"
        if setting.dtype not in MIN_CAPABILITY:
            return f"it computes only in {', '.join(str(dtype).removeprefix('torch.') for dtype in MIN_CAPABILITY)}"
        if is_interpreted():
            return None
        if setting.device.type != "cuda":
            return f"it needs a CUDA GPU, but the device is {setting.device}"
        return cls._capability_refusal(setting)

    @classmethod
    def _capability_refusal(cls, setting: AttentionSetting) -> str | None:
        has, needs = torch.cuda.get_device_capability(setting.device), MIN_CAPABILITY[setting.dtype]
        if has >= needs:
            return None
        name = str(setting.dtype).removeprefix("torch.")
        return "{} needs compute capability {}.{}, but the GPU has {}.{}".format(name, *needs, *has)

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Cut the batch into tiles. Decodes alone need neither a list of tiles nor a copy to the device."""
        if step.is_decode:
            launches = [self._launch(self.decode_shape, 1, None, step.num_requests, group)]
        else:
            decodes = [request for request, length in enumerate(step.query_lens) if length == 1]
            chunks = [request for request, length in enumerate(step.query_lens) if length > 1]
            queries = self.prefill_shape.queries(self._group_size)
            launches = [
                self._listed(self.prefill_shape, queries, chunks, step, group),
                *([self._listed(self.decode_shape, 1, decodes, step, group)] if decodes else []),
            ]
        return TritonStep(step, group, launches)

    def _listed(
        self, shape: TileShape, queries: int, requests: list[int], step: StepTensors, group: GroupTensors
    ) -> Launch:
        tiles = query_tiles(step.query_lens, step.context_lens, requests, queries, group.window)
        return self._launch(shape, queries, sent(torch.from_numpy(tiles), group.slots.device), len(tiles), group)

    def _launch(
        self, shape: TileShape, queries: int, tiles: Tensor | None, num_tiles: int, group: GroupTensors
    ) -> Launch:
        longest = group.block_tables.shape[1] * group.block_size
        if group.window is not None:
            longest = min(longest, group.window + queries)
        spans = self.spans or num_spans(self._gpu, shape, num_tiles * self.setting.num_kv_heads, longest)
        return Launch(shape, queries, tiles, num_tiles, spans)


def try_kernels(backend: TritonAttention) -> None:
    """Launch each kernel that a step may launch, with whole keys and with spans."""
    for spans in (1, 2):
        backend.spans = spans
        take_trial_steps(backend)


@cache
def _trial(backend: type[TritonAttention], setting: AttentionSetting) -> str | None:
    return launch_refusal(setting.device, lambda: try_kernels(backend(setting)))


def write_kv(keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
    """Copy rows [num_tokens, num_kv_heads, head_dim] to their slots, int32 [num_tokens]; below 0 is not written."""
    from labengine.engine.attention.triton_kernels import write_kernel

    keys, values = _with_contiguous_rows(keys), _with_contiguous_rows(values)
    size = keys.shape[1] * keys.shape[2]
    write_kernel[(keys.shape[0],)](
        keys,
        values,
        cache.keys,
        cache.values,
        slots,
        keys.stride(0),
        values.stride(0),
        SIZE=size,
        PADDED=power_of_two(size),
        enable_fp_fusion=True,
        num_warps=4,
    )


def _with_contiguous_rows(heads: Tensor) -> Tensor:
    """Return the heads [num_tokens, heads, head_dim] with each token contiguous; tokens may be strided."""
    _, _, head_dim = heads.shape
    return heads if heads.stride()[1:] == (head_dim, 1) else heads.contiguous()


MIXED, DECODES = (2, 1), (1, 1)
"""Tokens of each request in the trial steps: a chunk of a prompt beside a decode, and decodes alone."""


def take_trial_steps(backend: AttentionBackend) -> None:
    """Write and attend once per kind of step and group, in a pool of two blocks."""
    setting = backend.setting
    for block_size in setting.block_sizes:
        shape = (2, 2, block_size, setting.num_kv_heads, setting.head_dim)
        cache = LayerKV(*torch.zeros(shape, dtype=setting.dtype, device=setting.device))
        for window, query_lens in product(setting.windows, (MIXED, DECODES)):
            _take(backend, _step(setting, block_size, window, query_lens), cache)


def _take(backend: AttentionBackend, step: StepTensors, cache: LayerKV) -> None:
    """Queries, keys and values are slices of one matrix, as in a layer, because strides decide how kernels load."""
    setting = backend.setting
    queries, keys = setting.num_heads, setting.num_heads + setting.num_kv_heads
    shape = sum(step.query_lens), keys + setting.num_kv_heads, setting.head_dim
    heads = torch.zeros(shape, dtype=setting.dtype, device=setting.device)
    attention = backend.prepare(step, step.groups[0])
    attention.write(heads[:, queries:keys], heads[:, keys:], cache)
    attention.attend(heads[:, :queries], cache, setting.head_dim**-0.5)


def _step(setting: AttentionSetting, block_size: int, window: int | None, query_lens: tuple[int, ...]) -> StepTensors:
    """Return the first step of two requests; both have blocks 0 and 1."""

    def row(*numbers: int) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=setting.device)

    positions = [position for length in query_lens for position in range(length)]
    return StepTensors(
        token_ids=row(*[0] * len(positions)),
        positions=row(*positions),
        query_lens=query_lens,
        context_lens=query_lens,
        query_starts=row(0, query_lens[0], sum(query_lens)),
        contexts=row(*query_lens),
        sample_rows=row(query_lens[0] - 1, sum(query_lens) - 1),
        groups=(GroupTensors(block_size, window, row(*positions), row(0, 1, 0, 1).view(2, 2)),),
    )
