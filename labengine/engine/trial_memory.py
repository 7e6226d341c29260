"""The memory that steps need beside weights and KV pool, measured by taking the largest steps on a trial pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from labengine.config import ConfigError, GroupSpec, SamplingParams
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.engine.step_limits import StepLimits

WITH_TOP_P = SamplingParams(temperature=1.0, top_p=1 - 1e-12)
"""The settings whose sampling needs the most memory: torch sorts nearly all tokens, on any device."""


def largest_plans(groups: Sequence[GroupSpec], limits: StepLimits, longest: int) -> list[StepPlan]:
    """Return a step of one chunk, a step in which as many chunks as possible share the tokens, and one of decodes.

    longest: tokens of a request. Each context is that long, as a backend may gather the keys and values that it reads.
    All positions are in block 0 of the pool, as only the memory of the steps matters.
    """
    num_tokens = limits.max_num_batched_tokens
    num_chunks = min(limits.max_num_seqs, num_tokens)
    return [
        _plan(groups, [min(num_tokens, longest)], longest),
        _plan(groups, [min(num_tokens // num_chunks, longest)] * num_chunks, longest),
        _plan(groups, [1] * limits.max_decodes, longest),
    ]


def _plan(groups: Sequence[GroupSpec], lengths: Sequence[int], context: int) -> StepPlan:
    return StepPlan(tuple(_chunk(groups, number, length, context) for number, length in enumerate(lengths)))


def _chunk(groups: Sequence[GroupSpec], number: int, length: int, context: int) -> ScheduledRequest:
    """Return the last tokens of a request whose context ends with them."""
    tables = tuple((0,) * -(-context // group.block_size) for group in groups)
    runs = tuple(((0, 0, 1),) if group.kind == "state" else _runs(length, group.block_size) for group in groups)
    return ScheduledRequest(number, (0,) * length, context - length, tables, runs, True, True, WITH_TOP_P, number)


def _runs(length: int, block_size: int) -> tuple[SlotRun, ...]:
    return tuple((0, 0, min(block_size, length - start)) for start in range(0, length, block_size))


def most_bytes(device: torch.device, work: Callable[[], object]) -> int:
    """Return the peak number of bytes that `work` takes on a GPU, by torch or beside it.

    Raises ConfigError if the GPU has too few.
    """
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    reserved, beside = torch.cuda.memory_reserved(device), _beside_torch(device)
    try:
        work()
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the largest step does not fit into the memory that the weights leave free on {device}: lower "
            f"max_num_batched_tokens, max_num_seqs or max_model_len, or set num_blocks ({error})"
        ) from error
    by_torch = torch.cuda.max_memory_reserved(device) - reserved
    return by_torch + max(0, _beside_torch(device) - beside)


def _beside_torch(device: torch.device) -> int:
    """Return the bytes in use that torch has not reserved: kernels, graphs, libraries, other processes."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)
