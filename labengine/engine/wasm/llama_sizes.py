"""The sizes of a Llama model, from the metadata of its GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labengine.config import ConfigError


@dataclass(frozen=True, slots=True)
class LlamaSizes:
    """A Llama whose output matrix is its embedding. See ModelConfig for the units."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    rms_norm_eps: float
    rope_theta: float
    eos_token_ids: frozenset[int]

    @property
    def kv_width(self) -> int:
        """Numbers of a token's keys in a layer; its values are as many."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """Numbers in all matrices and norms."""
        hidden, heads = self.hidden_size, self.num_heads * self.head_dim
        attention = hidden * (heads + 2 * self.kv_width) + heads * hidden
        layer = attention + 3 * hidden * self.intermediate_size + 2 * hidden
        return self.vocab_size * hidden + self.num_layers * layer + hidden

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> LlamaSizes:
        """Read the metadata. Raises ConfigError for another architecture."""
        if (architecture := fields.get("general.architecture")) != "llama":
            raise ConfigError(f"a page computes Llama models only, not {architecture}")
        hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
        eos = fields.get("tokenizer.ggml.eos_token_id")
        return cls(
            num_layers=fields["llama.block_count"],
            hidden_size=hidden,
            intermediate_size=fields["llama.feed_forward_length"],
            num_heads=heads,
            num_kv_heads=fields["llama.attention.head_count_kv"],
            head_dim=fields.get("llama.attention.key_length") or hidden // heads,
            vocab_size=len(fields["tokenizer.ggml.tokens"]),
            max_model_len=fields["llama.context_length"],
            # Written as float32 in the file: 1e-05 reads back as 9.99999974e-06.
            rms_norm_eps=float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
            rope_theta=fields.get("llama.rope.freq_base") or 10_000.0,
            eos_token_ids=frozenset([] if eos is None else [eos]),
        )
