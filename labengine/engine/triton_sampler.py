"""Greedy and drawn tokens by labengine's Triton kernels: two launches for a batch, three if any row is drawn.

They move 2.1 times the bytes of drawn logits; torch's ops for the same tokens are 24, and move 27 times these bytes.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from labengine.engine.trial_launch import launch_refusal

CHUNK = 2048
"""Logits of one program."""
NUM_WARPS = 4
MIN_CAPABILITY = (7, 5)


def refusal(device: torch.device) -> str | None:
    """Return why the kernels cannot run on a device, as half a sentence; None when they can."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    if device.type != "cuda":
        return f"it needs a CUDA GPU, and the device is {device}"
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        return "it needs compute capability {}.{}, and the GPU has {}.{}".format(*MIN_CAPABILITY, *capability)
    return _trial(device)


def sample(logits: Tensor, draws: Tensor | None) -> Tensor:
    """Return one token per row, and under it whether the row's logits are finite: int64 [2, rows].

    logits: float32 [rows, vocab_size], a row's numbers contiguous. draws: float64 [2, rows], the rows' temperatures, 0
    for greedy, and a number in [0, 1) for each; None when all rows are greedy.
    """
    from labengine.engine.sampler_kernels import choose_kernel, survey_kernel, weigh_kernel

    num_rows, size = logits.shape
    num_chunks = -(-size // CHUNK)
    sizes = logits.stride(0), size, num_chunks
    maxima = logits.new_empty(num_rows, num_chunks)
    places = torch.empty(num_rows, num_chunks, dtype=torch.int32, device=logits.device)
    sums = None if draws is None else torch.empty(num_rows, num_chunks, dtype=torch.float64, device=logits.device)
    sampled = torch.empty(2, num_rows, dtype=torch.int64, device=logits.device)
    cut = {"CHUNK": CHUNK, "num_warps": NUM_WARPS}
    padded = 1 << (num_chunks - 1).bit_length()
    survey_kernel[num_chunks, num_rows](logits, maxima, places, *sizes, **cut)
    if draws is not None:
        weigh_kernel[num_chunks, num_rows](logits, maxima, draws, sums, *sizes, PADDED=padded, **cut)
    choose_kernel[(num_rows,)](logits, maxima, places, draws, sums, sampled, *sizes, num_rows, PADDED=padded, **cut)
    return sampled


@cache
def _trial(device: torch.device) -> str | None:
    """Return why a greedy and a drawn row fail."""

    def launch() -> None:
        logits = torch.zeros(2, 3, device=device)
        for draws in (None, torch.tensor([[0.0, 1.0], [0.0, 0.5]], dtype=torch.float64, device=device)):
            sample(logits, draws)

    return launch_refusal(device, launch)
