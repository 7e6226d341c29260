"""A model as a list of ops: the computation of each torch module, in the modules' order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from labengine.config import GroupSpec
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.layers import Attention, DecoderLayer, QKNormAttention
from labengine.engine.mlp import MLP
from labengine.engine.model import PagedModel
from labengine.engine.modules import Embedding, Linear, Matrix, OffsetRMSNorm, RMSNorm, ScaledEmbedding
from labengine.engine.native.layout import Finish, Op, OpKind
from labengine.engine.rope import RopeSpec


@dataclass(frozen=True, slots=True)
class Buffer:
    """Room for one value between ops: `width` numbers per row. is_sampling: its rows are the sampling ones."""

    number: int
    width: int
    dtype: torch.dtype
    is_sampling: bool = False


class Program:
    """Ops and buffers of a model whose matrices are packed, and whose layers keep their KV in `kv`."""

    def __init__(self, model: PagedModel, kv: KVTensors, groups: Sequence[GroupSpec]) -> None:
        self._config = model.config
        self._dtype = model.norm.weight.dtype
        self._kv, self._groups = kv, groups
        self.ops: list[Op] = []
        self.names: list[str] = []
        """Names of the ops: "layers.3.qkv"."""
        self.buffers: list[Buffer] = []
        self._kept: list[Tensor] = []
        self._rotations: dict[RopeSpec, Buffer] = {}
        self._make_buffers()
        self._write(model)

    def _make_buffers(self) -> None:
        config = self._config
        heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        self._hidden, self._normed = self._buffer(config.hidden_size), self._buffer(config.hidden_size)
        self._heads, self._attended = self._buffer(heads), self._buffer(config.num_heads * config.head_dim)
        self._projected, self._gated = self._buffer(config.hidden_size), self._buffer(config.intermediate_size)
        self._last = self._buffer(config.hidden_size, is_sampling=True)
        self.logits = self._buffer(config.vocab_size, torch.float32, is_sampling=True)
        self.argmax = self._buffer(2, torch.int32, is_sampling=True)

    def _buffer(self, width: int, dtype: torch.dtype | None = None, *, is_sampling: bool = False) -> Buffer:
        self.buffers.append(Buffer(len(self.buffers), width, dtype or self._dtype, is_sampling))
        return self.buffers[-1]

    # -- the model, top down -------------------------------------------------------------------------------------------

    def _write(self, model: PagedModel) -> None:
        table = self._embed(model.embedding)
        for rope in self._config.ropes:
            self._rotate(rope)
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, DecoderLayer)
            self._layer(index, layer)
        self._norm("norm", model.norm, self._hidden, self._last, is_sampling=True)
        head = table if self._config.tie_word_embeddings else self._packed(model.lm_head)
        self._linear(
            "head", head, (self._config.vocab_size, self._config.hidden_size), self._last, self.logits, Finish.TO_FLOAT
        )
        self._op("argmax", OpKind.ARGMAX, in_=self.logits.number, out=self.argmax.number, n=self._config.vocab_size)

    def _layer(self, index: int, layer: DecoderLayer) -> None:
        prefix = f"layers.{index}"
        self._norm(f"{prefix}.attention_norm", layer.attention_norm, self._hidden, self._normed)
        self._attention(index, prefix, layer.attention)
        self._join(f"{prefix}.out", layer.attention.out, self._attended, getattr(layer, "attended_norm", None))
        self._norm(f"{prefix}.mlp_norm", layer.mlp_norm, self._hidden, self._normed)
        assert type(layer.mlp) is MLP, "the backend refuses mixtures"
        self._gate(f"{prefix}.gate_up", layer.mlp)
        self._join(f"{prefix}.down", layer.mlp.down, self._gated, getattr(layer, "mlp_out_norm", None))

    def _attention(self, index: int, prefix: str, attention: Attention) -> None:
        self._linear_of(f"{prefix}.qkv", attention.qkv, self._normed, self._heads)
        config = self._config
        common: dict[str, Any] = {
            "in_": self._heads.number,
            "num_heads": config.num_heads,
            "num_kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            **self._kv_fields(index),
        }
        rotation = self._rotations[config.rope_of(index)].number
        self._op(f"{prefix}.rotate", OpKind.ROTATE, other=rotation, out=-1, **common, **self._head_norms(attention))
        self._op(f"{prefix}.attend", OpKind.ATTEND, out=self._attended.number, scale=attention.scale, **common)

    def _kv_fields(self, layer: int) -> dict[str, Any]:
        """Return the op fields for a layer's KV."""
        group = self._kv.layer_groups[layer]
        spec, cache = self._groups[group], self._kv.layer(layer)
        keys, values = cache.keys.data_ptr(), cache.values.data_ptr()
        return {
            "group": group,
            "keys": keys,
            "values": values,
            "block_size": spec.block_size,
            "window": spec.window or 0,
        }

    def _head_norms(self, attention: Attention) -> dict[str, Any]:
        if not isinstance(attention, QKNormAttention):
            return {}
        norm = attention.q_norm
        return {
            "weight": self._pointer(norm.weight),
            "weight2": self._pointer(attention.k_norm.weight),
            "eps": norm.eps,
            "norm_offset": isinstance(norm, OffsetRMSNorm),
        }

    def _join(self, name: str, linear: Linear, source: Buffer, norm: RMSNorm | None) -> None:
        """Add the output of half a layer to the residual stream, normalized before if there is a norm."""
        if norm is None:
            self._linear_of(name, linear, source, self._hidden, Finish.ADD, other=self._hidden)
        else:
            self._linear_of(name, linear, source, self._projected)
            self._norm(f"{name}_norm", norm, self._projected, self._hidden, other=self._hidden)

    # -- single ops ----------------------------------------------------------------------------------------------------

    def _embed(self, embedding: Embedding) -> Tensor:
        table = self._packed(embedding)
        n, k = embedding.weight.shape
        scale = 1.0
        if isinstance(embedding, ScaledEmbedding):
            scale = torch.tensor(k**0.5, dtype=self._dtype).item()
        self._op("embed", OpKind.EMBED, out=self._hidden.number, n=n, k=k, weight=table.data_ptr(), scale=scale)
        return table

    def _rotate(self, rope: RopeSpec) -> None:
        frequencies = rope.inverse_frequencies(self._config.head_dim)
        buffer = self._rotations[rope] = self._buffer(self._config.head_dim, torch.float32)
        self._op("rotation", OpKind.ROTATION, out=buffer.number, k=len(frequencies), weight=self._pointer(frequencies))

    def _norm(
        self,
        name: str,
        norm: RMSNorm,
        source: Buffer,
        out: Buffer,
        *,
        other: Buffer | None = None,
        is_sampling: bool = False,
    ) -> None:
        self._op(
            name,
            OpKind.NORM,
            in_=source.number,
            other=-1 if other is None else other.number,
            out=out.number,
            k=norm.weight.shape[0],
            weight=self._pointer(norm.weight),
            eps=norm.eps,
            norm_offset=isinstance(norm, OffsetRMSNorm),
            is_sampling=is_sampling,
        )

    def _gate(self, name: str, mlp: MLP) -> None:
        finish = Finish.SILU_MUL if mlp.activation is silu else Finish.GELU_MUL
        self._linear_of(name, mlp.gate_up, self._normed, self._gated, finish)

    def _linear_of(
        self,
        name: str,
        linear: Linear,
        source: Buffer,
        out: Buffer,
        finish: Finish = Finish.PLAIN,
        other: Buffer | None = None,
    ) -> None:
        self._linear(name, self._packed(linear), tuple(linear.weight.shape), source, out, finish, other)

    def _linear(
        self,
        name: str,
        weight: Tensor,
        shape: tuple[int, ...],
        source: Buffer,
        out: Buffer,
        finish: Finish,
        other: Buffer | None = None,
    ) -> None:
        self._op(
            name,
            OpKind.LINEAR,
            finish=finish,
            in_=source.number,
            other=-1 if other is None else other.number,
            out=out.number,
            is_sampling=out.is_sampling,
            n=shape[0],
            k=shape[1],
            weight=weight.data_ptr(),
        )

    def _op(self, name: str, kind: OpKind, **fields: Any) -> None:
        self.names.append(name)
        self.ops.append(Op(kind=kind, **fields))

    # -- memory that ops point to --------------------------------------------------------------------------------------

    def _packed(self, matrix: Matrix) -> Tensor:
        """Return a packed matrix; the program keeps it alive."""
        assert matrix.packed is not None, "the weights were loaded without packing"
        self._kept.append(matrix.packed)
        return matrix.packed

    def release(self) -> None:
        """Release the ops and the references to weights, which the modules own."""
        self.ops, self.buffers, self._kept = [], [], []

    def _pointer(self, tensor: Tensor) -> int:
        """Return a tensor's address; the program keeps it alive."""
        kept = tensor.detach().contiguous()
        self._kept.append(kept)
        return kept.data_ptr()
