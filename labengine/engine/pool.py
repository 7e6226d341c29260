"""The plan of a KV pool: its block layout, its attention backend and its size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from labengine.config import GroupSpec
from labengine.engine.attention import AttentionBackend, AttentionSetting
from labengine.engine.backend_choice import choose_attention
from labengine.engine.kv_tensors import bytes_of_a_block
from labengine.engine.model_config import ModelConfig
from labengine.engine.pool_size import fitting_blocks, require_memory, trial_blocks
from labengine.engine.step_limits import StepLimits

STATES_HELD = 2
"""Maximum number of blocks of a state group that a running request holds."""


@dataclass(frozen=True)
class PoolPlan:
    """A pool that is not allocated yet. num_blocks None: as many as fit, known once the weights are loaded."""

    groups: tuple[GroupSpec, ...]
    layer_groups: tuple[int, ...]
    """KV-cache group of each layer of the model."""
    device: torch.device
    block_size: int
    block_bytes: int
    backend: AttentionBackend
    attention_reason: str
    num_blocks: int | None
    reason: str = "asked for"
    """Reason for the number of blocks."""

    @classmethod
    def planned(
        cls,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        block_size: int,
        num_blocks: int | None,
        attention: str | type[AttentionBackend] | None,
    ) -> PoolPlan:
        """Plan a pool. Raises ConfigError, before any weights are loaded, if it cannot fit or no backend serves it."""
        groups, layer_groups = config.kv_groups(block_size)
        heads = config.num_heads, config.num_kv_heads, config.head_dim
        windows = tuple(dict.fromkeys(group.window for group in groups if group.kind != "state"))
        setting = AttentionSetting(device, dtype, *heads, (block_size,), windows, config.needs_modules)
        backend, reason = choose_attention(attention, setting)
        kv_heads = config.num_kv_heads, config.head_dim
        block_bytes = bytes_of_a_block(layer_groups, block_size, *kv_heads, dtype, config.states)
        if num_blocks is not None:
            require_memory(num_blocks, block_size, block_bytes, device)
        return cls(groups, layer_groups, device, block_size, block_bytes, backend, reason, num_blocks)

    def for_trial(self, max_model_len: int) -> PoolPlan:
        """Return the plan of a small pool, to measure the memory that steps need beside it."""
        num_blocks = trial_blocks(self.block_size, self.block_bytes, self.device, max_model_len)
        return replace(self, num_blocks=num_blocks, reason="for a trial")

    def sized(self, limits: StepLimits, step_bytes: int = 0) -> PoolPlan:
        """Return the plan with a number of blocks.

        On a CPU it has no more blocks than max_num_seqs requests of max_model_len tokens can use. step_bytes: see
        fitting_blocks.
        """
        if self.num_blocks is not None:
            return self
        num_state_groups = sum(group.kind == "state" for group in self.groups)
        kv_blocks = (len(self.groups) - num_state_groups) * -(-limits.max_model_len // self.block_size)
        enough = limits.max_num_seqs * (kv_blocks + STATES_HELD * num_state_groups)
        num_blocks, reason = fitting_blocks(self.block_size, self.block_bytes, self.device, enough, step_bytes)
        return replace(self, num_blocks=num_blocks, reason=reason)
