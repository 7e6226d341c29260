"""Schemas of config.json and generation_config.json: fields, types and bounds."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from labengine.engine.model_files.json_file import FileModel, relation_error
from labengine.engine.recurrence_sizes import DeltaNetSizes, Mamba2Sizes, RecurrenceSizes, ShortConvSizes

Size = Annotated[int, Field(ge=1, le=2**24)]
"""Side of a matrix, or a number of tokens or positions; float32 represents each exactly."""
Count = Annotated[int, Field(ge=1, le=1024)]
"""Number of layers or heads."""
HeadDim = Annotated[int, Field(ge=2, le=2**14, multiple_of=2)]
Theta = Annotated[float, Field(ge=1.0, le=1e12)]
Factor = Annotated[float, Field(ge=1.0, le=1e6)]
Positive = Annotated[float, Field(gt=0.0, le=1e6)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Eps = Annotated[float, Field(gt=0.0, le=1.0)]
Kernel = Annotated[int, Field(ge=2, le=1024)]
"""Tokens that a convolution reads."""
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
LayerKind = Literal["full_attention", "sliding_attention"]
GraniteKind = Literal["full_attention", "linear_attention", "attention", "mamba"]


class RopeFields(FileModel):
    """One rope. Fields of unsupported rope types are accepted here: the type itself is refused."""

    model_config = ConfigDict(extra="forbid")
    _NEEDED: ClassVar = {
        "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    }

    rope_type: str | None = None
    type: str | None = None
    rope_theta: Theta | None = None
    factor: Factor | None = None
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
    original_max_position_embeddings: Size | None = None
    partial_rotary_factor: Share | None = None
    attention_factor: Any = None
    beta_fast: Any = None
    beta_slow: Any = None
    short_factor: Any = None
    long_factor: Any = None
    mscale: Any = None
    mscale_all_dim: Any = None
    truncate: Any = None
    # Of text alone the three positions of a multimodal rope are equal, so its sections change nothing.
    mrope_section: Any = None
    mrope_interleaved: Any = None
    finetuned: Any = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        kind = self.rope_type or self.type or "default"
        for name in self._NEEDED.get(kind, ()):
            if getattr(self, name) is None:
                raise relation_error("lacks {name}, which rope type {kind} needs", name=name, kind=kind)
        low, high = self.low_freq_factor, self.high_freq_factor
        if kind == "llama3" and low is not None and high is not None and low >= high:
            raise relation_error("needs a high_freq_factor above its low_freq_factor")
        return self


class RopeByKind(FileModel):
    """Gemma 3's two ropes."""

    model_config = ConfigDict(extra="forbid")

    full_attention: RopeFields | None = None
    sliding_attention: RopeFields | None = None


class TokenFields(FileModel):
    """Special tokens, which both files may define."""

    bos_token_id: int | list[int] | None = None
    eos_token_id: TokenId | list[TokenId] | None = None
    pad_token_id: int | list[int] | None = None


class ConfigFields(TokenFields):
    """config.json of a decoder-only model."""

    model_type: str
    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: HeadDim | None = None
    rms_norm_eps: Eps
    max_position_embeddings: Size
    tie_word_embeddings: bool = False
    layer_types: Annotated[list[LayerKind], Field(min_length=1)] | None = None
    sliding_window: Size | None = None
    use_sliding_window: bool | None = None
    max_window_layers: Annotated[int, Field(ge=0, le=1024)] | None = None
    rope_theta: Theta | None = None
    rope_parameters: RopeFields | None = None
    rope_scaling: RopeFields | None = None
    partial_rotary_factor: Share | None = None
    # Not used in the computation, but a wrong value shows that the file is something else.
    architectures: list[str] | None = None
    attention_dropout: Share | None = None
    dtype: str | None = None
    torch_dtype: str | None = None
    initializer_range: Annotated[float, Field(ge=0.0, le=1e3)] | None = None
    transformers_version: str | None = None
    use_cache: bool | None = None

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        if heads % kv_heads:
            text = "num_attention_heads should be a multiple of num_key_value_heads, got {heads} and {kv_heads}"
            raise relation_error(text, heads=heads, kv_heads=kv_heads)
        if self.head_dim is None and self.hidden_size % (2 * heads):
            text = "hidden_size {hidden_size} does not divide into {heads} heads of an even size; give head_dim"
            raise relation_error(text, hidden_size=self.hidden_size, heads=heads)
        return self

    @property
    def mlp_size(self) -> int:
        """Inner size of the MLPs."""
        return self.intermediate_size

    @property
    def is_tied(self) -> bool:
        """True if the output matrix is the embedding."""
        return self.tie_word_embeddings

    @property
    def recurrence(self) -> RecurrenceSizes | None:
        """The sizes of the layers with a state; None for a family that has none."""
        return None


class Qwen3Fields(ConfigFields):
    """Qwen3: a default head size."""

    head_dim: HeadDim | None = 128


class Gemma3Fields(ConfigFields):
    """Gemma 3: two ropes, windows in a pattern, and its own attention scale."""

    head_dim: HeadDim | None = 256
    tie_word_embeddings: bool = True
    query_pre_attn_scalar: Positive = 256
    sliding_window_pattern: Count | None = None
    rope_local_base_freq: Theta | None = None
    rope_parameters: RopeByKind | None = None  # type: ignore[assignment]


class Lfm2Fields(ConfigFields):
    """LFM2: short convolutions beside full attention. Older files have other names for some sizes, which go first."""

    rms_norm_eps: Eps = Field(1e-5, alias="norm_eps")
    tie_word_embeddings: bool = True
    tie_embedding: bool | None = None
    block_ff_dim: Size | None = None
    block_auto_adjust_ff_dim: bool = True
    block_ffn_dim_multiplier: Positive = 1.0
    block_multiple_of: Size = 256
    conv_L_cache: Kernel = 3
    full_attn_idxs: list[Annotated[int, Field(ge=0)]] | None = None
    layer_types: Annotated[list[Literal["full_attention", "conv"]], Field(min_length=1)] | None = None  # type: ignore[assignment]

    @property
    def mlp_size(self) -> int:
        """Two thirds of the size in the file, rounded up to a multiple, if it is to be adjusted."""
        size = self.block_ff_dim or self.intermediate_size
        if not self.block_auto_adjust_ff_dim:
            return size
        size = int(self.block_ffn_dim_multiplier * int(2 * size / 3))
        return -(-size // self.block_multiple_of) * self.block_multiple_of

    @property
    def is_tied(self) -> bool:
        """True if the output matrix is the embedding."""
        return self.tie_word_embeddings if self.tie_embedding is None else self.tie_embedding

    @property
    def recurrence(self) -> ShortConvSizes:
        """The sizes of the short convolutions."""
        return ShortConvSizes(self.hidden_size, self.conv_L_cache)


class Mamba2Fields(ConfigFields):
    """The sizes of Mamba-2 layers."""

    mamba_n_heads: Count = 128
    mamba_d_head: Size | Literal["auto"] | None = "auto"
    mamba_n_groups: Count = 1
    mamba_d_state: Size = 256
    mamba_d_conv: Kernel = 4
    mamba_expand: Count = 2
    mamba_conv_bias: bool = True
    time_step_limit: list[Any] = Field(default_factory=lambda: [0.0, math.inf])

    @model_validator(mode="after")
    def _steps_are_unlimited(self) -> Self:
        low, high = [*self.time_step_limit, None, None][:2]
        if low != 0.0 or high not in (math.inf, {"__float__": "Infinity"}):
            raise relation_error("time_step_limit other than 0 to infinity is not supported")
        return self

    @model_validator(mode="after")
    def _mamba_sizes_agree(self) -> Self:
        inner, heads = self.mamba_expand * self.hidden_size, self.mamba_n_heads
        if inner != heads * self._mamba_head_dim:
            text = "mamba_expand * hidden_size is {inner}, which is not mamba_n_heads * mamba_d_head: {heads} * {dim}"
            raise relation_error(text, inner=inner, heads=heads, dim=self._mamba_head_dim)
        if heads % self.mamba_n_groups:
            text = "mamba_n_heads should be a multiple of mamba_n_groups, got {heads} and {groups}"
            raise relation_error(text, heads=heads, groups=self.mamba_n_groups)
        return self

    @property
    def _mamba_head_dim(self) -> int:
        given = self.mamba_d_head
        return given if isinstance(given, int) else self.mamba_expand * self.hidden_size // self.mamba_n_heads

    @property
    def recurrence(self) -> Mamba2Sizes:
        """The sizes of the Mamba-2 layers."""
        return Mamba2Sizes(
            num_heads=self.mamba_n_heads,
            head_dim=self._mamba_head_dim,
            num_groups=self.mamba_n_groups,
            state_size=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            has_conv_bias=self.mamba_conv_bias,
        )


class BambaFields(Mamba2Fields):
    """Bamba: Mamba-2 layers, and a few with attention, which are named by number."""

    rms_norm_eps: Eps = 1e-5
    attn_layer_indices: list[Annotated[int, Field(ge=0)]] | None = None


class GraniteHybridFields(Mamba2Fields):
    """Granite 4 without experts: Mamba-2 layers, a few with attention and mostly no rope, and four multipliers."""

    rms_norm_eps: Eps = 1e-6
    layer_types: Annotated[list[GraniteKind], Field(min_length=1)] | None = None  # type: ignore[assignment]
    num_local_experts: Annotated[int, Field(ge=0)] = 8
    shared_intermediate_size: Size = 1024
    position_embedding_type: Literal["rope", "nope"] | None = None
    embedding_multiplier: Positive = 1.0
    residual_multiplier: Positive = 1.0
    attention_multiplier: Positive = 1.0
    logits_scaling: Positive = 1.0

    @model_validator(mode="after")
    def _has_no_experts(self) -> Self:
        if self.num_local_experts:
            text = "num_local_experts is {number}: mixtures of experts are not supported; 0 would be"
            raise relation_error(text, number=self.num_local_experts)
        return self

    @model_validator(mode="after")
    def _has_states(self) -> Self:
        # The CPU's program and the graphs, which models without states run on, multiply nothing.
        if self.layer_types is not None and not {"linear_attention", "mamba"}.intersection(self.layer_types):
            raise relation_error("layer_types has no Mamba-2 layer; such a Granite 4 is not supported")
        return self

    @property
    def mlp_size(self) -> int:
        """Inner size of the MLPs, which are those that experts would share."""
        return self.shared_intermediate_size


class DeltaNetFields(ConfigFields):
    """Qwen3.5: gated delta nets, and attention in every few layers."""

    head_dim: HeadDim | None = 256
    full_attention_interval: Count = 4
    layer_types: Annotated[list[Literal["full_attention", "linear_attention"]], Field(min_length=1)] | None = None  # type: ignore[assignment]
    linear_conv_kernel_dim: Kernel = 4
    linear_key_head_dim: Size = 128
    linear_value_head_dim: Size = 128
    linear_num_key_heads: Count = 16
    linear_num_value_heads: Count = 32

    @model_validator(mode="after")
    def _value_heads_divide(self) -> Self:
        values, keys = self.linear_num_value_heads, self.linear_num_key_heads
        if values % keys:
            text = "linear_num_value_heads should be a multiple of linear_num_key_heads, got {values} and {keys}"
            raise relation_error(text, values=values, keys=keys)
        return self

    @property
    def recurrence(self) -> DeltaNetSizes:
        """The sizes of the gated delta nets."""
        return DeltaNetSizes(
            num_key_heads=self.linear_num_key_heads,
            num_value_heads=self.linear_num_value_heads,
            key_dim=self.linear_key_head_dim,
            value_dim=self.linear_value_head_dim,
            kernel=self.linear_conv_kernel_dim,
        )


class Qwen3NextFields(DeltaNetFields):
    """Qwen3-Next: some layers, or all, may be mixtures of experts."""

    num_experts: Annotated[int, Field(ge=0)] = 512
    decoder_sparse_step: Count = 1
    mlp_only_layers: list[Annotated[int, Field(ge=0)]] | None = None

    @model_validator(mode="after")
    def _has_no_experts(self) -> Self:
        for layer in range(self.num_hidden_layers):
            is_listed = layer in (self.mlp_only_layers or ())
            if self.num_experts and not is_listed and not (layer + 1) % self.decoder_sparse_step:
                text = "layer {layer} is a mixture of experts, which is not supported; num_experts 0 would be"
                raise relation_error(text, layer=layer)
        return self


class GenerationFields(TokenFields):
    """generation_config.json; only its end tokens are used."""

    do_sample: bool | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None


SCHEMAS: dict[str, type[ConfigFields]] = {
    "llama": ConfigFields,
    "mistral": ConfigFields,
    "qwen3": Qwen3Fields,
    "gemma3_text": Gemma3Fields,
    "lfm2": Lfm2Fields,
    "bamba": BambaFields,
    "granitemoehybrid": GraniteHybridFields,
    "qwen3_next": Qwen3NextFields,
    "qwen3_5_text": DeltaNetFields,
    "qwen3_5": DeltaNetFields,
}
"""Schemas of config.json by model_type."""
