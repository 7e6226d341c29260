"""Fields of config.json and generation_config.json that several families share: types and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from labengine.config import ConfigError
from labengine.engine.layer_plan import CONV, FULL, LINEAR, SLIDING, AttentionSpec, LayerSpec, StateSpec
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_config import Multipliers
from labengine.engine.model_files.json_file import FileModel, relation_error
from labengine.engine.recurrence_sizes import RecurrenceSizes
from labengine.engine.rope import RopeSpec

Size = Annotated[int, Field(ge=1, le=2**24)]
"""A side of a matrix, or a number of tokens or positions; float32 represents each exactly."""
Count = Annotated[int, Field(ge=1, le=1024)]
"""Number of layers or heads."""
HeadDim = Annotated[int, Field(ge=2, le=2**14, multiple_of=2)]
Theta = Annotated[float, Field(ge=1.0, le=1e12)]
Factor = Annotated[float, Field(ge=1.0, le=1e6)]
Positive = Annotated[float, Field(gt=0.0, le=1e6)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Eps = Annotated[float, Field(gt=0.0, le=1.0)]
Kernel = Annotated[int, Field(ge=2, le=1024)]
"""Number of tokens that a convolution reads."""
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
LayerKind = Literal["full_attention", "sliding_attention"]


class RopeFields(FileModel):
    """One rope. Fields of unsupported rope types are accepted here, as the type itself is refused."""

    model_config = ConfigDict(extra="forbid")
    _NEEDED: ClassVar = {
        "linear": ("factor",),
        "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
        "longrope": ("short_factor", "long_factor"),
    }

    rope_type: str | None = None
    type: str | None = None
    rope_theta: Theta | None = None
    factor: Factor | None = None
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
    original_max_position_embeddings: Size | None = None
    partial_rotary_factor: Share | None = None
    attention_factor: Positive | None = None
    short_factor: list[Positive] | None = None
    long_factor: list[Positive] | None = None
    beta_fast: Any = None
    beta_slow: Any = None
    mscale: Any = None
    mscale_all_dim: Any = None
    truncate: Any = None
    # For text, the three positions of a multimodal rope are equal, so its sections have no effect.
    mrope_section: Any = None
    mrope_interleaved: Any = None
    finetuned: Any = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        for name in self._NEEDED.get(self.kind, ()):
            if getattr(self, name) is None:
                raise relation_error("has no {name}, which rope type {kind} needs", name=name, kind=self.kind)
        low, high = self.low_freq_factor, self.high_freq_factor
        if self.kind == "llama3" and low is not None and high is not None and low >= high:
            raise relation_error("needs a high_freq_factor above its low_freq_factor")
        return self

    @property
    def kind(self) -> str:
        """The rope type, which older files call type."""
        kind = self.rope_type or self.type or "default"
        return "longrope" if kind == "su" else kind

    def spec(self, theta: float, share: float = 1.0) -> RopeSpec:
        """Return the rope; theta: its base unless these fields give one. Raises ConfigError for unsupported types."""
        theta = self.rope_theta or theta
        if self.kind == "default":
            return RopeSpec(theta, share=share)
        if self.kind == "linear":
            return RopeSpec(theta, "linear", self.factor or 1.0, share=share)
        if self.kind != "llama3":
            raise ConfigError(f"rope type {self.kind!r} is not supported; supported: default, linear, llama3")
        low, high, length = self.low_freq_factor, self.high_freq_factor, self.original_max_position_embeddings
        assert self.factor and low and high and length, "validated above"
        return RopeSpec(theta, "llama3", self.factor, low, high, length, share)


class TokenFields(FileModel):
    """End tokens, which config.json and generation_config.json may define."""

    eos_token_id: TokenId | list[TokenId] | None = None


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
    rope_theta: Theta | None = None
    rope_parameters: RopeFields | None = None
    rope_scaling: RopeFields | None = None
    partial_rotary_factor: Share | None = None

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        if heads % kv_heads:
            text = "num_attention_heads must be a multiple of num_key_value_heads, got {heads} and {kv_heads}"
            raise relation_error(text, heads=heads, kv_heads=kv_heads)
        if self.head_dim is None and self.hidden_size % (2 * heads):
            text = "hidden_size {hidden_size} does not divide evenly into {heads} heads of an even size; set head_dim"
            raise relation_error(text, hidden_size=self.hidden_size, heads=heads)
        return self

    @property
    def head_size(self) -> int:
        """Number of dimensions of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def attention_scale(self) -> float:
        """Factor of the products of queries and keys."""
        return float(self.head_size**-0.5)

    @property
    def multipliers(self) -> Multipliers:
        """Factors of the residual stream and the logits."""
        return Multipliers()

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
        """The sizes of the layers with a state; None for a family without them."""
        return None

    @property
    def mixture(self) -> MixtureSizes | None:
        """The mixtures of experts; None for a model without."""
        return None

    # -- layers --------------------------------------------------------------------------------------------------------

    default_theta: ClassVar[float] = 10_000.0
    """Base of the rope unless the file gives one."""

    @property
    def layer_kinds(self) -> Sequence[str]:
        """The kind of each layer: layer_types, or the family's rule."""
        return self.layer_types or [FULL] * self.num_hidden_layers

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The attention or the state of each layer. Raises ConfigError for an unsupported one."""
        kinds, num_layers = self.layer_kinds, self.num_hidden_layers
        if len(kinds) != num_layers:
            raise ConfigError(f"layer_types has {len(kinds)} layers, but num_hidden_layers is {num_layers}")
        return tuple(self._layer(kind) for kind in kinds)

    def _layer(self, kind: str) -> LayerSpec:
        if kind in (CONV, LINEAR):
            assert self.recurrence is not None, "the family has layers with a state"
            return StateSpec(self.recurrence.state)
        if kind == FULL:
            return AttentionSpec(None, self.rope)
        if self.sliding_window is None:
            raise ConfigError("the model has layers with sliding-window attention, but sliding_window is None")
        return AttentionSpec(self.sliding_window, self.local_rope)

    @property
    def rope(self) -> RopeSpec:
        """The rope of layers with full attention: rope_parameters (transformers 5), or rope_scaling and rope_theta."""
        return self.rope_settings.spec(self.rope_theta or self.default_theta, self.rotary_share)

    @property
    def local_rope(self) -> RopeSpec:
        """The rope of layers with a window."""
        return self.rope

    @property
    def rope_settings(self) -> RopeFields:
        """The fields of the rope, by their newer or their older name."""
        return self.rope_parameters or self.rope_scaling or RopeFields()

    @property
    def rotary_share(self) -> float:
        """The share of each head that is rotated, from its start. Raises ConfigError for an unsupported share."""
        if self.share_in_file not in (None, 1.0):
            raise ConfigError("partial_rotary_factor is not supported here: the rope must rotate whole heads")
        return 1.0

    @property
    def share_in_file(self) -> float | None:
        """partial_rotary_factor, in the rope's fields or beside them."""
        inside = self.rope_settings.partial_rotary_factor
        return self.partial_rotary_factor if inside is None else inside


class WindowFields(ConfigFields):
    """A family whose layers all have the window of sliding_window, if any; layer_types is ignored."""

    @property
    def layer_kinds(self) -> Sequence[str]:
        """One kind for all layers."""
        return [FULL if self.sliding_window is None else SLIDING] * self.num_hidden_layers


class PartialRopeFields(ConfigFields):
    """A family that rotates part of each head."""

    default_share: ClassVar[float] = 1.0
    """The default share, unless the file gives one."""

    @property
    def rotary_share(self) -> float:
        """The share of each head that is rotated. Raises ConfigError unless it is an even number of dimensions."""
        share = self.default_share if self.share_in_file is None else self.share_in_file
        dims = int(self.head_size * share)
        if dims < 2 or dims % 2:
            raise ConfigError(
                f"partial_rotary_factor {share} rotates {dims} of {self.head_size} dimensions of a head; that must be "
                "an even number, at least 2"
            )
        return share


NumExperts = Annotated[int, Field(ge=0, le=2**14)]
EXPERTS_NAMES = AliasChoices("num_experts", "num_local_experts")
"""Two names of one setting; transformers 5 writes the second where a file had the first."""


class MixtureFields(ConfigFields):
    """The number of experts, and how many of them compute a token. Without experts, all layers are dense."""

    num_experts: NumExperts = Field(8, validation_alias=EXPERTS_NAMES)
    num_experts_per_tok: Count = 2

    @model_validator(mode="after")
    def _experts_suffice(self) -> Self:
        if 0 < self.num_experts < self.num_experts_per_tok:
            text = "num_experts_per_tok must be at most the number of experts, got {chosen} of {experts}"
            raise relation_error(text, chosen=self.num_experts_per_tok, experts=self.num_experts)
        return self
