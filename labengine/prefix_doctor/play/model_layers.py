"""What each layer of a model keeps per token or per request, from the fields of its config.json.

Field names are those of Hugging Face's configs; where a file leaves a field out, its config class has the default. What
vLLM 0.32 makes of them was compared with its own layers for the models of tests/golden/vllm-model-groups.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from labengine.config import ConfigError, shown

MOST_LAYERS = 10_000

LayerKind = Literal["full", "sliding_window", "chunk", "state"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's part of the cache. shape: of one token's KV, or (numbers of a request's state,).

    num_bytes: per token, or of the state. window: tokens of the window or of the chunk. is_latent: one vector for keys
    and values (MLA). checkpoint_alignment: see GroupSpec.
    """

    kind: LayerKind
    shape: tuple[int, ...]
    num_bytes: int
    window: int | None = None
    is_latent: bool = False
    checkpoint_alignment: int | None = None


class Fields:
    """The fields of a text model's config. kv_bytes, state_bytes: of a number in the KV cache and in a state."""

    def __init__(self, fields: Mapping[str, Any], kv_bytes: int, state_bytes: int = 2) -> None:
        self._fields, self.kv_bytes, self.state_bytes = fields, kv_bytes, state_bytes
        self.model_type = str(fields.get("model_type"))

    def get(self, name: str) -> Any:
        """Return a field; if the file leaves it out, its default or None."""
        return self._fields[name] if name in self._fields else DEFAULTS.get(self.model_type, {}).get(name)

    def number(self, name: str, *others: str) -> int:
        """Return the first of these fields that the file has. Raises ConfigError unless it is an integer above 0."""
        value = next((found for one in (name, *others) if (found := self.get(one)) is not None), None)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise ConfigError(f"{name} must be an integer above 0, got {shown(value)}")
        return value

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        if (count := self.number("num_hidden_layers")) > MOST_LAYERS:
            raise ConfigError(f"num_hidden_layers must be at most {MOST_LAYERS:,}, got {count:,}")
        return count

    def each(self, name: str) -> list[Any] | None:
        """Return a field with one value per layer. Raises ConfigError for another length."""
        values = self.numbers(name)
        if values is not None and len(values) != self.num_layers:
            raise ConfigError(f"{name} must have a value for each of {self.num_layers} layers, got {shown(values)}")
        return values

    def numbers(self, name: str) -> list[Any] | None:
        """Return a field that holds a list. Raises ConfigError for anything else."""
        values = self.get(name)
        if values is not None and not isinstance(values, list):
            raise ConfigError(f"{name} must be a list, got {shown(values)}")
        return values

    def optional(self, name: str) -> int | None:
        """Return a field that may be missing, as number() does."""
        return None if self.get(name) is None else self.number(name)

    def dtype_bytes(self, name: str, otherwise: int) -> int:
        """Return the bytes of a number in the dtype that a field names. Raises ConfigError for an unknown one."""
        dtype = self.get(name)
        if dtype is None:
            return otherwise
        if not isinstance(dtype, str) or dtype not in _NUM_BYTES:
            raise ConfigError(f"{name} must be one of {', '.join(_NUM_BYTES)}, got {shown(dtype)}")
        return _NUM_BYTES[dtype]

    def attention(self, kind: LayerKind = "full", window: int | None = None) -> Layer:
        """Return a layer with keys and values of each head."""
        heads = self.number("num_attention_heads")
        kv_heads = self.number("num_key_value_heads", "num_attention_heads")
        dim = self.optional("head_dim") or self.number("hidden_size") // heads
        return Layer(kind, (kv_heads, dim), 2 * kv_heads * dim * self.kv_bytes, window)

    def sliding(self, more: int = 0) -> Layer:
        """Return a layer with the model's window. more: tokens that the layer reads besides."""
        return self.attention("sliding_window", self.number("sliding_window") + more)

    def state(self, *shapes: tuple[int, ...], last_bytes: int = 0, checkpoint_alignment: int | None = None) -> Layer:
        """Return a layer with a state of these tensors. last_bytes: of a number in the last one, if it differs."""
        sizes = [prod(shape) for shape in shapes]
        num_bytes = sum(sizes[:-1]) * self.state_bytes + sizes[-1] * (last_bytes or self.state_bytes)
        return Layer("state", (sum(sizes),), num_bytes, checkpoint_alignment=checkpoint_alignment)

    def mamba2(
        self, inner: int, groups: str, heads: str, dim: str, size: str, kernel: str, last_bytes: int = 0
    ) -> Layer:
        """Return a Mamba-2 layer, given its inner size and the names of its other fields."""
        channels = inner + 2 * self.number(groups) * self.number(size)
        convolution = self.number(kernel) - 1, channels
        matrices = self.number(heads), self.number(dim), self.number(size)
        return self.state(convolution, matrices, last_bytes=last_bytes, checkpoint_alignment=1)


def _mixed(fields: Fields, kinds: Sequence[object], more: int = 0, **states: Layer) -> list[Layer]:
    """Return a layer of each kind. more: see Fields.sliding. states: the layers of other kinds."""
    return [_of_kind(fields, kind, more, states) for kind in kinds]


def _of_kind(fields: Fields, kind: object, more: int, states: Mapping[str, Layer]) -> Layer:
    match kind:
        case "full_attention" | "attention":
            return fields.attention()
        case "sliding_attention":
            return fields.sliding(more)
        case str() if kind in states:
            return states[kind]
    known = ", ".join(("full_attention", "sliding_attention", *states))
    raise ConfigError(f"layer_types has {shown(kind)}; known: {known}")


def _each_nth(fields: Fields, period: int, others: str) -> Sequence[object]:
    """Return layer_types; if it is missing, full attention in each period-th layer, and `others` between."""
    of_file = fields.each("layer_types")
    return of_file or ["full_attention" if i % period == period - 1 else others for i in range(fields.num_layers)]


def _plain(fields: Fields) -> list[Layer]:
    """Attention in every layer. Without layer_types, the window, if there is one, is that of all."""
    if kinds := fields.each("layer_types"):
        return _mixed(fields, kinds)
    if fields.get("sliding_window") is None or fields.get("use_sliding_window") is False:
        return [fields.attention()] * fields.num_layers
    first = fields.optional("max_window_layers") or 0
    return [fields.sliding() if i >= first else fields.attention() for i in range(fields.num_layers)]


def _every(period: int, more: int = 0) -> Callable[[Fields], list[Layer]]:
    """Return a family with windows in all layers but each period-th."""

    def layers(fields: Fields) -> list[Layer]:
        kinds = _each_nth(fields, fields.optional("sliding_window_pattern") or period, "sliding_attention")
        return _mixed(fields, kinds, more)

    return layers


def _alternating(fields: Fields) -> list[Layer]:
    """Windows in the layers 0, 2, 4 ..., whatever layer_types says."""
    return [fields.attention() if i % 2 else fields.sliding() for i in range(fields.num_layers)]


def _chunked(fields: Fields) -> list[Layer]:
    """Chunks in the layers with a rope, which are three of four."""
    given = fields.get("no_rope_layers") and fields.each("no_rope_layers")
    ropes = given or [(i + 1) % 4 for i in range(fields.num_layers)]
    chunk = fields.optional("attention_chunk_size")
    return [fields.attention("chunk", chunk) if has_rope and chunk else fields.attention() for has_rope in ropes]


def _latent(fields: Fields) -> list[Layer]:
    """MLA: one latent vector per token, and the rotated part of the keys."""
    size = fields.number("kv_lora_rank") + fields.number("qk_rope_head_dim")
    return [Layer("full", (1, size), size * fields.kv_bytes, is_latent=True)] * fields.num_layers


def _delta_net(fields: Fields) -> list[Layer]:
    """Gated delta nets, and full attention in each n-th layer."""
    keys, values = fields.number("linear_num_key_heads"), fields.number("linear_num_value_heads")
    key_dim, value_dim = fields.number("linear_key_head_dim"), fields.number("linear_value_head_dim")
    convolution = fields.number("linear_conv_kernel_dim") - 1, 2 * keys * key_dim + values * value_dim
    dtype_bytes = fields.dtype_bytes("mamba_ssm_dtype", otherwise=fields.state_bytes)
    net = fields.state(convolution, (values, value_dim, key_dim), last_bytes=dtype_bytes)
    kinds = _each_nth(fields, fields.optional("full_attention_interval") or 4, "linear_attention")
    return _mixed(fields, kinds, linear_attention=net)


def _mamba2(fields: Fields, inner: int | None = None) -> Layer:
    inner = inner or fields.number("mamba_expand") * fields.number("hidden_size")
    return fields.mamba2(inner, "mamba_n_groups", "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv")


def _granite_hybrid(fields: Fields) -> list[Layer]:
    """Mamba-2 and attention by layer_types."""
    return _mixed(fields, fields.each("layer_types") or ["mamba"] * fields.num_layers, mamba=_mamba2(fields))


def _falcon_h1(fields: Fields) -> list[Layer]:
    """Mamba-2 and attention side by side in each layer."""
    return [fields.attention(), _mamba2(fields, fields.optional("mamba_d_ssm"))] * fields.num_layers


def _nemotron_h(fields: Fields) -> list[Layer]:
    """Mamba-2 (M), attention (*), and layers that keep nothing (-, E), by a pattern."""
    inner = fields.number("mamba_num_heads") * fields.number("mamba_head_dim")
    names = "n_groups", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel"
    mamba = fields.mamba2(inner, *names, last_bytes=fields.dtype_bytes("mamba_ssm_cache_dtype", otherwise=4))
    pattern = fields.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or not pattern or set(pattern) - set("M*-E") or len(pattern) > MOST_LAYERS:
        raise ConfigError(f"hybrid_override_pattern must consist of M, *, - and E, got {shown(pattern)}")
    return [mamba if letter == "M" else fields.attention() for letter in pattern if letter in "M*"]


def _jamba(fields: Fields) -> list[Layer]:
    """Mamba-1, with attention in each n-th layer."""
    inner = fields.number("mamba_expand") * fields.number("hidden_size")
    mamba = fields.state((fields.number("mamba_d_conv") - 1, inner), (inner, fields.number("mamba_d_state")))
    period, offset = fields.number("attn_layer_period"), fields.optional("attn_layer_offset") or 0
    return [fields.attention() if i % period == offset else mamba for i in range(fields.num_layers)]


def _lfm2(fields: Fields) -> list[Layer]:
    """Short convolutions and attention."""
    convolution = fields.state((fields.number("conv_L_cache") - 1, fields.number("conv_dim", "hidden_size")))
    with_attention = fields.numbers("full_attn_idxs") or []
    kinds = ["full_attention" if i in with_attention else "conv" for i in range(fields.num_layers)]
    return _mixed(fields, fields.each("layer_types") or kinds, conv=convolution)


_NUM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

_PLAIN = (
    *("llama", "arcee", "mistral", "mixtral", "phi3", "gemma", "starcoder2", "stablelm", "smollm3"),
    *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
    *("qwen3_vl_text", "qwen3_vl_moe_text", "olmo", "olmo2", "olmoe", "granite", "granitemoe", "glm4", "glm4_moe"),
    *("seed_oss", "ernie4_5", "ernie4_5_moe", "minimax_m2", "hunyuan_v1_dense", "internlm2", "internlm3"),
)
"""Families with the same keys and values in each layer."""

FAMILIES: dict[str, Callable[[Fields], list[Layer]]] = {
    **dict.fromkeys(_PLAIN, _plain),
    **dict.fromkeys(("gemma2", "gemma2_text"), _every(2)),
    **dict.fromkeys(("gemma3", "gemma3_text"), _every(6)),
    **dict.fromkeys(("olmo3", "exaone4"), _every(4)),
    "cohere2": _every(4, more=1),
    "gpt_oss": _alternating,
    "llama4_text": _chunked,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _latent),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _delta_net),
    "granitemoehybrid": _granite_hybrid,
    "falcon_h1": _falcon_h1,
    "nemotron_h": _nemotron_h,
    "jamba": _jamba,
    **dict.fromkeys(("lfm2", "lfm2_moe"), _lfm2),
}
"""The layers of each model type."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_size": 2304, "sliding_window": 4096,
    },
    "gemma2": {"head_dim": 256, "sliding_window": 4096},
    "gemma": {"head_dim": 256},
    "llama4_text": {"attention_chunk_size": 8192},
    "mistral": {"sliding_window": 4096},
    **{name: {"use_sliding_window": False} for name in FAMILIES if name.startswith(("qwen2", "qwen3"))},
}  # fmt: skip
"""Fields that files of a model type leave out, with the values of its config class."""
