"""A model's weights in the kernels' memory, expanded from a GGUF to bf16 and packed. All labs of a page share them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any

from labengine.config import ConfigError
from labengine.engine.wasm.gguf_header import GGUFHeader, TensorPlace, read_header
from labengine.engine.wasm.memory import Memory

HEADER_BYTES = 1 << 22
"""Maximum bytes of a head; more than a GGUF with fifty thousand tokens needs."""
F32, Q4_1, Q8_0 = 0, 3, 8
"""Type numbers of tensors in the file."""
PIECE_ROWS = 1024
"""Number of rows of a large matrix expanded and packed at a time; a multiple of 64, so that panels are whole."""


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
        """Number of elements of a token's keys in a layer, and of its values."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """Number of elements in all matrices and norms."""
        hidden, heads = self.hidden_size, self.num_heads * self.head_dim
        attention = hidden * (heads + 2 * self.kv_width) + heads * hidden
        layer = attention + 3 * hidden * self.intermediate_size + 2 * hidden
        return self.vocab_size * hidden + self.num_layers * layer + hidden

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> LlamaSizes:
        """Read the metadata. Raises ConfigError for another architecture."""
        if (architecture := fields.get("general.architecture")) != "llama":
            raise ConfigError(f"a page can only run Llama models, not {architecture}")
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
            # The file has it as float32: 1e-05 reads back as 9.99999974e-06.
            rms_norm_eps=float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
            rope_theta=fields.get("llama.rope.freq_base") or 10_000.0,
            eos_token_ids=frozenset([] if eos is None else [eos]),
        )


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Addresses of a layer's weights: norms of float32, packed matrices of bf16."""

    attention_norm: int
    qkv: int
    out: int
    mlp_norm: int
    gate_up: int
    down: int


@dataclass(frozen=True, slots=True)
class PageWeights:
    """A loaded model. digest: sha256 of its GGUF, in hex. fields: the GGUF's metadata."""

    name: str
    digest: str
    memory: Memory
    sizes: LlamaSizes
    embedding: int
    norm: int
    frequencies: int
    layers: tuple[LayerWeights, ...]
    fields: dict[str, object] = field(repr=False)


def load_weights(memory: Memory, at: int, num_bytes: int, name: str, digest: str) -> PageWeights:
    """Load a GGUF from an address; the caller frees that memory. Raises ConfigError."""
    header = read_header(memory.read(at, min(num_bytes, HEADER_BYTES)))
    sizes = LlamaSizes.of(header.fields)
    memory.give(memory.take(2 * sizes.num_parameters))  # grow once; growing two hundred times would take a second
    loader = _Loader(memory, at, num_bytes, header)
    try:
        if "output.weight" in header.tensors:
            raise ConfigError(f"{name} has a separate output matrix; a page can only run models without one")
        return PageWeights(
            name=name,
            digest=digest,
            memory=memory,
            sizes=sizes,
            embedding=loader.packed([("token_embd", 0)], sizes.hidden_size),
            norm=loader.norm("output_norm"),
            frequencies=memory.keep(inverse_frequencies(sizes).tobytes()),
            layers=tuple(loader.layer(f"blk.{number}.", sizes) for number in range(sizes.num_layers)),
            fields=header.fields,
        )
    finally:
        loader.close()


def inverse_frequencies(sizes: LlamaSizes) -> array[float]:
    """Return the radians per position of each pair of a head's dimensions, rounded to float32 like torch's."""
    exponents = [_rounded(2 * pair / sizes.head_dim) for pair in range(sizes.head_dim // 2)]
    return array("f", [1 / _rounded(sizes.rope_theta**exponent) for exponent in exponents])


def _rounded(number: float) -> float:
    (rounded,) = unpack("f", pack("f", number))
    return float(rounded)


class _Loader:
    """Expands and packs tensors of a GGUF."""

    def __init__(self, memory: Memory, at: int, num_bytes: int, header: GGUFHeader) -> None:
        self._memory, self._at, self._num_bytes, self._tensors = memory, at, num_bytes, header.tensors
        self._rows: tuple[int, int] = memory.take(1), 1
        """Memory for rows of bf16 between expanding and packing, and its size in bytes."""

    def layer(self, prefix: str, sizes: LlamaSizes) -> LayerWeights:
        """Load a layer."""
        hidden, heads, kv_heads = sizes.hidden_size, sizes.num_heads, sizes.num_kv_heads
        return LayerWeights(
            attention_norm=self.norm(f"{prefix}attn_norm"),
            qkv=self.packed(
                [(f"{prefix}attn_q", heads), (f"{prefix}attn_k", kv_heads), (f"{prefix}attn_v", 0)], hidden
            ),
            out=self.packed([(f"{prefix}attn_output", 0)], heads * sizes.head_dim),
            mlp_norm=self.norm(f"{prefix}ffn_norm"),
            gate_up=self.packed([(f"{prefix}ffn_gate", 0), (f"{prefix}ffn_up", 0)], hidden, is_gated=True),
            down=self.packed([(f"{prefix}ffn_down", 0)], sizes.intermediate_size),
        )

    def norm(self, name: str) -> int:
        """Return the address of a norm's weights, rounded to bf16 as in the converted model."""
        place = self._place(name)
        if place.kind != F32 or len(place.shape) != 1:
            raise ConfigError(f"{name} in the weights' GGUF is not a row of float32")
        to = self._memory.take(4 * place.shape[0])
        self._memory.exports.round_floats(self._at + place.offset, to, place.shape[0])
        return to

    def packed(self, parts: list[tuple[str, int]], k: int, *, is_gated: bool = False) -> int:
        """Return the address of stacked matrices [rows, k], packed as one.

        parts: their names, and their number of heads if their rows are in llama.cpp's order.
        """
        exports, places = self._memory.exports, [self._place(name) for name, _ in parts]
        if any(place.shape[:1] != (k,) or len(place.shape) != 2 or place.kind == F32 for place in places):
            raise ConfigError(f"{parts[0][0]} in the weights' GGUF file is not a quantized matrix with {k} columns")
        n = sum(place.shape[1] for place in places)
        packed = self._memory.take(exports.packed_bytes(n, k))
        if len(parts) == 1 and parts[0][1] == 0:
            self._pack_in_pieces(places[0], packed)
        else:
            rows, first = self._room(n * k * 2), 0
            for place, (_, heads) in zip(places, parts, strict=True):
                self._expand(place, 0, place.shape[1], rows + first * k * 2, heads)
                first += place.shape[1]
            exports.pack_rows(rows, packed, n, k, int(is_gated))
        return packed

    def close(self) -> None:
        """Free the memory that only loading needs."""
        self._memory.give(self._rows[0])

    def _pack_in_pieces(self, place: TensorPlace, packed: int) -> None:
        (k, n), exports = place.shape, self._memory.exports
        rows = self._room(min(n, PIECE_ROWS) * k * 2)
        for first in range(0, n, PIECE_ROWS):
            count = min(PIECE_ROWS, n - first)
            self._expand(place, first, count, rows, 0)
            exports.pack_rows(rows, packed + exports.packed_bytes(first, k), count, k, 0)

    def _expand(self, place: TensorPlace, first: int, count: int, to: int, heads: int) -> None:
        exports, k = self._memory.exports, place.shape[0]
        expand = exports.expand_q4_1 if place.kind == Q4_1 else exports.expand_q8_0
        expand(self._at + place.offset + first * _row_bytes(place), to, count, k, heads)

    def _place(self, name: str) -> TensorPlace:
        place = self._tensors.get(f"{name}.weight")
        if place is None:
            raise ConfigError(f"the weights' GGUF has no tensor {name}.weight")
        rows = place.shape[1] if len(place.shape) > 1 else 1
        if place.offset + rows * _row_bytes(place) > self._num_bytes:
            raise ConfigError(f"the weights' GGUF ends inside its tensor {name}.weight")
        return place

    def _room(self, num_bytes: int) -> int:
        at, size = self._rows
        if size < num_bytes:
            self._memory.give(at)
            self._rows = self._memory.take(num_bytes), num_bytes
        return self._rows[0]


def _row_bytes(place: TensorPlace) -> int:
    """Return the number of bytes of a row. Raises ConfigError for an unsupported type."""
    k = place.shape[0]
    sizes = {F32: 4 * k, Q4_1: k // 32 * 20, Q8_0: k // 32 * 34}
    if place.kind not in sizes or (place.kind != F32 and k % 32):
        raise ConfigError(
            f"the weights' GGUF has a tensor of type {place.kind}; a page can only read F32, Q4_1 and Q8_0"
        )
    return sizes[place.kind]
