"""Small steps of a model's own heads, blocks and windows, to find out whether an attention backend can run them."""

from __future__ import annotations

from itertools import product

import torch

from labengine.engine.attention import AttentionBackend, AttentionSetting
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors

MIXED, DECODES = (2, 1), (1, 1)
"""Tokens of each request: a chunk of a prompt beside a decode, and decodes alone."""


def take_trial_steps(backend: AttentionBackend) -> None:
    """Write and attend once per kind of step and group, in a pool of two blocks."""
    setting = backend.setting
    for block_size in setting.block_sizes:
        shape = (2, 2, block_size, setting.num_kv_heads, setting.head_dim)
        cache = LayerKV(*torch.zeros(shape, dtype=setting.dtype, device=setting.device))
        for window, query_lens in product(setting.windows, (MIXED, DECODES)):
            _take(backend, _step(setting, block_size, window, query_lens), cache)


def _take(backend: AttentionBackend, step: StepTensors, cache: LayerKV) -> None:
    """Queries, keys and values are slices of one matrix, as a layer has them: strides decide how kernels load."""
    setting = backend.setting
    queries, keys = setting.num_heads, setting.num_heads + setting.num_kv_heads
    shape = sum(step.query_lens), keys + setting.num_kv_heads, setting.head_dim
    heads = torch.zeros(shape, dtype=setting.dtype, device=setting.device)
    attention = backend.prepare(step, step.groups[0])
    attention.write(heads[:, queries:keys], heads[:, keys:], cache)
    attention.attend(heads[:, :queries], cache, setting.head_dim**-0.5)


def _step(setting: AttentionSetting, block_size: int, window: int | None, query_lens: tuple[int, ...]) -> StepTensors:
    """Return a step of two requests, whose contexts begin with it; both have blocks 0 and 1."""

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
