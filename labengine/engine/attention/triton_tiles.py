"""The division of attention into Triton programs: tile shapes per GPU and model, list of tiles, number of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from labengine.engine.attention import AttentionSetting

MIN_ROWS = 16
"""Number of rows of the smallest matrix that tensor cores multiply."""
STEP_BYTES = 16 * 1024
"""Maximum bytes of keys that one step of a decode loads, together with as many bytes of values."""
MAX_SPANS = 64


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU properties on which tiles depend."""

    capability: tuple[int, int]
    num_sms: int

    @classmethod
    def of(cls, device: torch.device) -> Gpu:
        """Return the device's properties; for a CPU, where kernels are interpreted, those of a small GPU."""
        if device.type != "cuda":
            return cls((8, 0), 8)
        return cls(
            torch.cuda.get_device_capability(device), torch.cuda.get_device_properties(device).multi_processor_count
        )

    @property
    def has_tensor_cores(self) -> bool:
        """True if Triton can use the tensor cores; it no longer supports Turing's."""
        return self.capability >= (8, 0)

    @property
    def has_much_shared_memory(self) -> bool:
        """True for 160 KiB and more per program, as on A100 and H100; other GPUs have 64 to 100 KiB."""
        major, _ = self.capability
        return self.capability in ((8, 0), (8, 7)) or 9 <= major < 12


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile's rows and keys, warps, the steps by which copies run ahead (stages), and tiles per SM."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int
    per_sm: int
    min_steps: int = 4
    """Length in steps of the shortest span that is worth a program."""

    def queries(self, group: int) -> int:
        """Return the number of queries of a tile in which `group` heads share a KV head."""
        return max(1, self.rows // group)


def power_of_two(size: int) -> int:
    """Return the smallest power of 2 that is at least `size`."""
    return 1 << (size - 1).bit_length()


def padded_dim(head_dim: int) -> int:
    """Return the number of columns of a tile."""
    return max(MIN_ROWS, power_of_two(head_dim))


def decode_shape(gpu: Gpu, setting: AttentionSetting) -> TileShape:
    """Return the shape for decodes: several small programs per SM, because memory is the limit."""
    rows = max(MIN_ROWS, power_of_two(setting.num_heads // setting.num_kv_heads))
    key_bytes = padded_dim(setting.head_dim) * setting.dtype.itemsize
    step_bytes, stages = _decode_copies(gpu)
    keys = max(16, min(128, step_bytes // key_bytes))
    num_warps = 8 if setting.dtype.itemsize > 2 and setting.head_dim > 64 else 4
    return TileShape(rows, keys, num_warps, num_stages=stages, per_sm=3, min_steps=max(2, 256 // keys))


def _decode_copies(gpu: Gpu) -> tuple[int, int]:
    """Return the bytes of keys in a step and the stages with which three programs share an SM's memory.

    A program holds the keys and values of stages - 1 steps, and a few KiB more.
    """
    if not gpu.has_tensor_cores:
        return STEP_BYTES // 4, 2
    if not gpu.has_much_shared_memory:  # 100 KiB per SM
        return STEP_BYTES // 2, 2
    return STEP_BYTES, 3 if gpu.capability >= (9, 0) else 2  # 228 KiB, and 164


def prefill_shape(gpu: Gpu, setting: AttentionSetting) -> TileShape:
    """Return the shape for prompts: one or two programs with large matrices per SM, as multiplication is the limit."""
    group = power_of_two(setting.num_heads // setting.num_kv_heads)
    dim = padded_dim(setting.head_dim)
    if setting.dtype.itemsize > 2 or not gpu.has_tensor_cores:  # registers are the limit
        num_warps = 4 if dim <= 64 else 8
        keys = 32 if dim * setting.dtype.itemsize <= 256 else 16
        return TileShape(max(32, group), keys, num_warps, num_stages=2, per_sm=1)
    if dim > 128 or not gpu.has_much_shared_memory:
        num_warps = 8 if dim > 128 else 4
        return TileShape(max(64, group), 64 if dim <= 64 else 32, num_warps, num_stages=2, per_sm=1)
    return TileShape(max(128, group), 64, num_warps=8, num_stages=3, per_sm=1)


def num_spans(gpu: Gpu, shape: TileShape, num_tiles: int, longest: int) -> int:
    """Return the number of spans of each tile's keys, so that there are enough programs to fill the GPU.

    num_tiles: tiles times KV heads. longest: an upper bound of the keys that a tile reads.
    """
    wanted = gpu.num_sms * shape.per_sm // num_tiles
    worthwhile = -(-longest // (shape.keys * shape.min_steps))
    return max(1, min(wanted, worthwhile, MAX_SPANS))


def query_tiles(
    query_lens: Sequence[int], context_lens: Sequence[int], requests: Sequence[int], queries: int, window: int | None
) -> NDArray[np.int32]:
    """Return (request, first query) of all tiles of some requests, [num_tiles, 2], in descending order of keys read."""
    selected = np.array(requests, dtype=np.int32)
    lengths, contexts = np.array(query_lens, dtype=np.int32)[selected], np.array(context_lens, dtype=np.int32)[selected]
    if queries == 1 and all(query_lens[request] == 1 for request in requests):  # decodes; the same, with less to do
        reads = contexts if window is None else np.minimum(contexts, window + 1)
        return np.stack((selected, np.zeros_like(selected)), axis=1)[np.argsort(-reads, kind="stable")]
    counts = -(-lengths // queries)
    index = np.arange(counts.sum(), dtype=np.int32) - np.repeat(np.cumsum(counts, dtype=np.int32) - counts, counts)
    starts = index * queries
    ends = np.repeat(contexts - lengths, counts) + np.minimum(starts + queries, np.repeat(lengths, counts))
    reads = ends if window is None else np.minimum(ends, window + queries)
    order = np.argsort(-reads, kind="stable")
    return np.stack((np.repeat(selected, counts), starts), axis=1)[order]
