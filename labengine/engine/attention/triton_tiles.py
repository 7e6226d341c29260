"""How the Triton kernels cut attention up: tile shapes per GPU and model, the list of tiles, and how many spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from labengine.engine.attention import AttentionSetting

MIN_ROWS = 16
"""Rows of the smallest matrix that tensor cores multiply."""
STEP_BYTES = 16 * 1024
"""Of the keys that one step of a decode's walk loads, at most."""
MAX_SPANS = 64


@dataclass(frozen=True, slots=True)
class Gpu:
    """What tiles depend on: compute capability, and streaming multiprocessors."""

    capability: tuple[int, int]
    num_sms: int

    @classmethod
    def of(cls, device: torch.device) -> Gpu:
        """Return the device's own figures; of a CPU, where kernels are interpreted, those of a small GPU."""
        if device.type != "cuda":
            return cls((8, 0), 8)
        return cls(
            torch.cuda.get_device_capability(device), torch.cuda.get_device_properties(device).multi_processor_count
        )

    @property
    def has_tensor_cores(self) -> bool:
        """That Triton uses: it has given up Turing's."""
        return self.capability >= (8, 0)

    @property
    def has_much_shared_memory(self) -> bool:
        """160 KiB and more for one program: A100, H100 and their kin; 64 to 100 elsewhere."""
        major, _ = self.capability
        return self.capability in ((8, 0), (8, 7)) or 9 <= major < 12


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows and keys of a tile, its warps, the steps its copies run ahead (stages), and how many of it an SM holds."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int
    per_sm: int
    least_steps: int = 4
    """A span shorter than this is not worth a program."""

    def queries(self, group: int) -> int:
        """Of a tile in which `group` heads share a KV head."""
        return max(1, self.rows // group)


def power_of_two(size: int) -> int:
    """Return the smallest that holds `size`."""
    return 1 << (size - 1).bit_length()


def padded_dim(head_dim: int) -> int:
    """Return columns of a tile."""
    return max(MIN_ROWS, power_of_two(head_dim))


def decode_shape(gpu: Gpu, setting: AttentionSetting) -> TileShape:
    """One query's heads. Several small programs per SM, each with copies under way: decoding is reading memory."""
    rows = max(MIN_ROWS, power_of_two(setting.num_heads // setting.num_kv_heads))
    key_bytes = padded_dim(setting.head_dim) * setting.dtype.itemsize
    step_bytes = STEP_BYTES if gpu.has_tensor_cores else STEP_BYTES // 4
    keys = max(16, min(128, step_bytes // key_bytes))
    stages = 3 if gpu.has_much_shared_memory else 2
    return TileShape(rows, keys, num_warps=4, num_stages=stages, per_sm=3, least_steps=max(2, 256 // keys))


def prefill_shape(gpu: Gpu, setting: AttentionSetting) -> TileShape:
    """Many queries. One or two programs per SM with large matrices: prefill is multiplying."""
    group = power_of_two(setting.num_heads // setting.num_kv_heads)
    dim = padded_dim(setting.head_dim)
    if setting.dtype.itemsize > 2 or not gpu.has_tensor_cores:  # what counts are registers
        return TileShape(max(32, group), 32 if dim <= 128 else 16, num_warps=4, num_stages=2, per_sm=1)
    if dim > 128 or not gpu.has_much_shared_memory:
        num_warps = 8 if dim > 128 else 4
        return TileShape(max(64, group), 64 if dim <= 64 else 32, num_warps, num_stages=2, per_sm=1)
    return TileShape(max(128, group), 64, num_warps=8, num_stages=3, per_sm=1)


def num_spans(gpu: Gpu, shape: TileShape, num_tiles: int, longest: int) -> int:
    """Into how many spans each tile's keys are cut, so that num_tiles programs become enough to fill the GPU.

    num_tiles: tiles times KV heads. longest: an upper bound of the keys that a tile reads.
    """
    wanted = gpu.num_sms * shape.per_sm // num_tiles
    worthwhile = -(-longest // (shape.keys * shape.least_steps))
    return max(1, min(wanted, worthwhile, MAX_SPANS))


def query_tiles(
    query_lens: Sequence[int], context_lens: Sequence[int], requests: Sequence[int], queries: int, window: int | None
) -> NDArray[np.int32]:
    """(request, first query) of all tiles of some requests, [num_tiles, 2]; those with most keys to read come first."""
    chosen = np.array(requests, dtype=np.int32)
    lengths, contexts = np.array(query_lens, dtype=np.int32)[chosen], np.array(context_lens, dtype=np.int32)[chosen]
    counts = -(-lengths // queries)
    index = np.arange(counts.sum(), dtype=np.int32) - np.repeat(np.cumsum(counts, dtype=np.int32) - counts, counts)
    starts = index * queries
    ends = np.repeat(contexts - lengths, counts) + np.minimum(starts + queries, np.repeat(lengths, counts))
    reads = ends if window is None else np.minimum(ends, window + queries)
    order = np.argsort(-reads, kind="stable")
    return np.stack((np.repeat(chosen, counts), starts), axis=1)[order]
