"""The parts of a decoder layer, as a paged engine wants them: a flat batch of tokens, attention through a backend."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.model_config import ModelConfig
from labengine.engine.modules import Linear, RMSNorm
from labengine.engine.ops import Activation, Ops
from labengine.engine.rope import Rotation


@dataclass(frozen=True, slots=True)
class LayerStep:
    """What one layer needs to know of the step: how tokens are turned, where KV is, and who computes."""

    rotation: Rotation
    cache: LayerKV
    attention: StepAttention
    ops: Ops


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x)), with gate and up in one matrix."""

    def __init__(self, config: ModelConfig, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.gate_up = Linear(config.hidden_size, config.intermediate_size, config.intermediate_size)
        self.down = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """[num_tokens, hidden_size] to the same."""
        out: Tensor = self.down(step.ops.gated(self.gate_up(hidden), self.activation))
        return out


class Attention(nn.Module):
    """Grouped-query attention with rope; q, k and v in one matrix."""

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        sizes = (heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads))
        self.qkv = Linear(config.hidden_size, *sizes)
        self.out = Linear(config.num_heads * config.head_dim, config.hidden_size)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """[num_tokens, hidden_size] to the same; writes the tokens' KV to their slots on the way."""
        heads = self.qkv(hidden).unflatten(-1, (-1, self.head_dim))
        queries, keys = self.turned(heads[:, : -self.num_kv_heads], step)
        step.attention.write(keys, heads[:, -self.num_kv_heads :], step.cache)
        attended = step.attention.attend(queries, step.cache, self.scale)
        out: Tensor = self.out(attended.flatten(1))
        return out

    def turned(self, heads: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """Queries and keys, which lie side by side in [num_tokens, heads, head_dim], turned to their positions."""
        turned = step.ops.turn(heads, step.rotation)
        return turned[:, : self.num_heads], turned[:, self.num_heads :]


class QKNormAttention(Attention):
    """Attention whose queries and keys are normalized per head before they turn (Qwen3, Gemma 3)."""

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__(config, norm)
        self.q_norm = norm(config.head_dim, config.rms_norm_eps)
        self.k_norm = norm(config.head_dim, config.rms_norm_eps)

    def turned(self, heads: Tensor, step: LayerStep) -> tuple[Tensor, Tensor]:
        """The same, each kind of head normalized by its own weight."""
        queries, keys = heads[:, : self.num_heads], heads[:, self.num_heads :]
        ops, rotation = step.ops, step.rotation
        return ops.turn(queries, rotation, self.q_norm), ops.turn(keys, rotation, self.k_norm)
