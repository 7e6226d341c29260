"""Tokens by labengine's Triton kernels: two launches for greedy rows, three for drawn ones, five with top-k or top-p.

They move 2.1 times the bytes of drawn logits; torch's ops for the same tokens are 21, and move 24 times these bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labengine.engine.trial_launch import launch_refusal

CHUNK = 2048
"""Number of logits per program."""
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
BLOCK = 4096
"""Number of logits that the one program of a cut row takes at a time: several chunks."""
COLLECTING = {"num_warps": 16, "enable_fp_fusion": False}
CUTTING = {"num_warps": 8, "enable_fp_fusion": False}
ROOM = 1024
"""Maximum number of candidates of a row with top-k or top-p; torch handles a larger top-k."""
MORE = 2
"""The mark under a row's token if top-p reaches beyond its candidates, so that torch has to draw."""
MIN_CAPABILITY = (7, 5)
LARGE_VOCABULARY = 262_144
"""Gemma 3's vocabulary, whose rows need the most chunks, and so the most registers and shared memory."""
LARGEST_ROOT = 2.0**126
"""It and its inverse are normal numbers of float32."""


def refusal(device: torch.device) -> str | None:
    """Return why the kernels cannot run on a device, as half a sentence; None if they can."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    if device.type != "cuda":
        return f"it needs a CUDA GPU, but the device is {device}"
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        return "it needs compute capability {}.{}, but the GPU has {}.{}".format(*MIN_CAPABILITY, *capability)
    return _trial(device)


def roots(temperatures: Sequence[float]) -> NDArray[np.float64]:
    """Return the square roots of log2(e) / temperature; temperatures > 0.

    The kernels multiply by a root twice, and take a power of 2. The root of any temperature that matters is a float32
    number; its square need not be one. Roots are limited to LARGEST_ROOT and its inverse, where any two logits have
    weights of 1 and 0, or of 1 and 1.
    """
    found = math.sqrt(math.log2(math.e)) / np.sqrt(np.asarray(temperatures, np.float64))
    return np.clip(found, 1 / LARGEST_ROOT, LARGEST_ROOT)


def sample(logits: Tensor, draws: Tensor | None, *, cuts: bool = False) -> Tensor:
    """Return one token per row, and under it whether the row's logits are finite, or MORE: int64 [2, rows].

    logits: float32 [rows, vocab_size], a row's numbers contiguous. draws: float64 [4, rows], `roots` of the rows'
    temperatures, 0 for greedy, a number in [0, 1) for each, top-k (0 for rows that are not cut, vocab_size where there
    is only top-p; else at most ROOM) and top-p; None when all rows are greedy. cuts: a row is cut by top-k or top-p.
    """
    from labengine.engine.sampler_kernels import choose_kernel, survey_kernel, weigh_kernel

    num_rows, size = logits.shape
    num_chunks = -(-size // CHUNK)
    sizes = logits.stride(0), size, num_chunks
    maxima = logits.new_empty(num_rows, num_chunks)
    places = torch.empty(num_rows, num_chunks, dtype=torch.int32, device=logits.device)
    sums = None if draws is None else logits.new_empty(num_rows, num_chunks)
    sampled = torch.empty(2, num_rows, dtype=torch.int64, device=logits.device)
    cut = {"CHUNK": CHUNK, **OPTIONS}
    padded = _padded(num_chunks)
    survey_kernel[num_chunks, num_rows](logits, maxima, places, *sizes, **cut)
    if draws is not None:
        weigh_kernel[num_chunks, num_rows](logits, maxima, draws, sums, *sizes, num_rows, PADDED=padded, **cut)
    choose_kernel[(num_rows,)](logits, maxima, places, draws, sums, sampled, *sizes, num_rows, PADDED=padded, **cut)
    if cuts and draws is not None and sums is not None:
        _cut(logits, maxima, draws, sums, sampled)
    return sampled


def _cut(logits: Tensor, maxima: Tensor, draws: Tensor, sums: Tensor, sampled: Tensor) -> None:
    """Draw the rows with top-k or top-p from their likeliest tokens."""
    from labengine.engine.sampler_cut_kernels import collect_kernel, cut_kernel

    (num_rows, size), num_chunks = logits.shape, maxima.shape[1]
    candidates = torch.empty(num_rows, ROOM, dtype=torch.int64, device=logits.device)
    counts = torch.empty(num_rows, dtype=torch.int32, device=logits.device)
    sizes, cut = (size, num_chunks, num_rows), {"PADDED": _padded(num_chunks), "ROOM": ROOM}
    row_stride = logits.stride(0)
    collect_kernel[(num_rows,)](
        logits, maxima, draws, candidates, counts, row_stride, *sizes, BLOCK=BLOCK, CHUNK=CHUNK, **cut, **COLLECTING
    )
    cut_kernel[(num_rows,)](candidates, counts, draws, sums, sampled, *sizes, **cut, **CUTTING)


def _padded(num_chunks: int) -> int:
    return 1 << (num_chunks - 1).bit_length()


@cache
def _trial(device: torch.device) -> str | None:
    """Launch a greedy row, a drawn row and one with top-k; return why they fail, if they do."""

    def launch() -> None:
        logits = torch.zeros(3, LARGE_VOCABULARY, device=device)
        numbers = [[0.0, 1.0, 1.0], [0.0, 0.5, 0.5], [0.0, 0.0, 2.0], [1.0, 1.0, 1.0]]
        sample(logits, None)
        sample(logits, torch.tensor(numbers, dtype=torch.float64, device=device), cuts=True)

    return launch_refusal(device, launch)
