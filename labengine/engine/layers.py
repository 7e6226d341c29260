"""The parts of a decoder layer, as a paged engine wants them: a flat batch of tokens, attention through a backend.

Parameters are created empty: they are always filled from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.model_config import ModelConfig
from labengine.engine.rope import Rotation

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LayerStep:
    """What one layer needs to know of the step: how tokens are turned, where KV is, and how to attend to it."""

    rotation: Rotation
    cache: LayerKV
    attention: StepAttention


class Embedding(nn.Module):
    """A learned vector per token id."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))

    def forward(self, token_ids: Tensor) -> Tensor:
        """Int [num_tokens] to [num_tokens, hidden_size]."""
        return embedding(token_ids, self.weight)


class ScaledEmbedding(Embedding):
    """An embedding multiplied by the square root of its size, that root rounded to the weights' dtype (Gemma)."""

    def forward(self, token_ids: Tensor) -> Tensor:
        """Int [num_tokens] to [num_tokens, hidden_size]."""
        scale = torch.tensor(self.weight.shape[1] ** 0.5, dtype=self.weight.dtype).item()
        return super().forward(token_ids) * scale


class Linear(nn.Module):
    """A matrix without bias."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_size, in_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., in_size] to [..., out_size]."""
        return linear(hidden, self.weight)


class RMSNorm(nn.Module):
    """Scale the last dimension to a root mean square of 1, in float32, then by a learned weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Any shape [..., size]; the same shape and dtype comes back."""
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(hidden.dtype)


class OffsetRMSNorm(RMSNorm):
    """RMSNorm that multiplies by 1 + weight, and rounds to the input's dtype only after that (Gemma)."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Any shape [..., size]; the same shape and dtype comes back."""
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).to(hidden.dtype)


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x)), with gate and up in one matrix."""

    def __init__(self, config: ModelConfig, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.gate_up = Linear(config.hidden_size, 2 * config.intermediate_size)
        self.down = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """[num_tokens, hidden_size] to the same."""
        gate, up = self.gate_up(hidden).chunk(2, dim=-1)
        out: Tensor = self.down(self.activation(gate) * up)
        return out


class Attention(nn.Module):
    """Grouped-query attention with rope; q, k and v in one matrix."""

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.head_counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.qkv = Linear(config.hidden_size, sum(self.head_counts) * config.head_dim)
        self.out = Linear(config.num_heads * config.head_dim, config.hidden_size)

    def forward(self, hidden: Tensor, step: LayerStep) -> Tensor:
        """[num_tokens, hidden_size] to the same; writes the tokens' KV to their slots on the way."""
        heads = self.qkv(hidden).unflatten(-1, (-1, self.head_dim))
        queries, keys, values = heads.split(self.head_counts, dim=1)
        queries, keys = self.normalize(queries, keys)
        step.attention.write(step.rotation.turn(keys), values, step.cache)
        attended = step.attention.attend(step.rotation.turn(queries), step.cache, self.scale)
        out: Tensor = self.out(attended.flatten(1))
        return out

    def normalize(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """What a family does to queries and keys before they turn; nothing here."""
        return queries, keys


class QKNormAttention(Attention):
    """Attention whose queries and keys are normalized per head (Qwen3, Gemma 3)."""

    def __init__(self, config: ModelConfig, norm: type[RMSNorm]) -> None:
        super().__init__(config, norm)
        self.q_norm = norm(config.head_dim, config.rms_norm_eps)
        self.k_norm = norm(config.head_dim, config.rms_norm_eps)

    def normalize(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """[num_tokens, heads, head_dim] each."""
        return self.q_norm(queries), self.k_norm(keys)
