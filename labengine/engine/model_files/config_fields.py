"""Fields of config.json and generation_config.json that several families have: types and bounds."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_files.json_file import FileModel, relation_error
from labengine.engine.recurrence_sizes import RecurrenceSizes

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

    @property
    def mixture(self) -> MixtureSizes | None:
        """The mixtures of experts; None for a model without."""
        return None


class GenerationFields(TokenFields):
    """generation_config.json; only its end tokens are used."""

    do_sample: bool | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
