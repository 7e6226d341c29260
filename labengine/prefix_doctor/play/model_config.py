"""From a model's config.json: its KV-cache groups as vLLM 0.32 builds them, and what fits into a pool.

Layers that keep the same tokens form a group. A block of any group has the same bytes, so that all groups share one
pool. Compared with vLLM's own functions for the models of tests/golden/vllm-model-groups.json; one GPU, without a
draft model, with a layout whose outermost dimension is the layer (FlashAttention's).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.config import ConfigError, EngineConfig, GroupSpec, checked_int, checked_path, shown
from labengine.prefix_doctor.play.model_layers import FAMILIES, Fields, Layer

KV_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of a number in the KV cache; auto is the model's dtype, and vLLM runs float32 models in 16 bits."""
BLOCK_SIZE, MAX_BLOCK_SIZE = 16, 2**20
KERNEL_BLOCK = 16
"""FlashAttention's blocks are multiples of this many tokens."""
LATENT_KERNEL_BLOCK = 128
"""Blocks of models with both MLA and states are multiples of this."""
PADDING_LIMIT = 1.5
"""Groups have as many layers as the rarest kind; or as the commonest, if it has less than this factor more."""
MAX_BYTES = 16 << 20
INSTEAD = "give the size of the cache by hand: --kv-bytes-per-token N"


@dataclass(frozen=True, slots=True)
class Page:
    """A layer's part of a block."""

    layer: Layer
    block_size: int
    num_bytes: int

    def blocks_held(self, num_tokens: int, budget: int) -> int:
        """Return the most blocks that a request of num_tokens holds at once, if steps compute `budget` tokens."""
        layer = self.layer
        if layer.kind == "state":  # this step's, the one it was copied from, and one inside the chunk
            return 2 + (layer.checkpoint_alignment is not None)
        if layer.window is None:
            return -(-num_tokens // self.block_size)
        if layer.kind == "chunk":
            return -(-min(layer.window + budget, num_tokens) // self.block_size)
        return -(-min(layer.window - 1 + budget, num_tokens) // self.block_size) + 1  # it may start inside a block


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool holds. num_tokens: if each request has request_tokens, the most that the model's file allows.

    Both are None if the file does not say how many these are.
    """

    bytes_per_block: int
    num_tokens: int | None
    request_tokens: int | None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model's cache. pages: one per group. bytes_per_token: of the KV that one token adds in all attention layers.

    longest: tokens of the longest request. notes: sentences on what differs from the engine, or depends on its
    settings.
    """

    pages: tuple[Page, ...]
    bytes_per_block: int
    bytes_per_token: int
    longest: int | None
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[GroupSpec, ...]:
        """The KV-cache groups."""
        return tuple(map(_spec, self.pages))

    def blocks_in(self, gib: float) -> int:
        """Return the number of blocks in so many GiB. Raises ConfigError unless a block fits."""
        num_blocks = int(gib * 2**30) // self.bytes_per_block
        if num_blocks < 1:
            raise ConfigError(f"a block has {self.bytes_per_block / 2**30:.3f} GiB and does not fit into {gib} GiB")
        return num_blocks

    def blocks_per_request(self, num_tokens: int, max_num_batched_tokens: int) -> int:
        """Return the most blocks that a request of num_tokens holds at once, in all groups."""
        return sum(page.blocks_held(num_tokens, max_num_batched_tokens) for page in self.pages)

    def capacity(self, config: EngineConfig) -> Capacity:
        """Return what the pool of an engine with this model holds."""
        if self.longest is None:
            return Capacity(self.bytes_per_block, None, None)
        held = self.blocks_per_request(self.longest, config.max_num_batched_tokens)
        return Capacity(self.bytes_per_block, config.num_blocks * self.longest // held, self.longest)


def model_of(path: str | PathLike[str], block_size: int | None = None, kv_dtype: str = "auto") -> ModelFacts:
    """Return the facts of a model. path: its config.json, or the folder that has it.

    block_size: vLLM's --block-size, 16 by default; states may need larger blocks. kv_dtype: its --kv-cache-dtype.
    Raises ConfigError for a file that is not one, and for a model whose layers are unknown.
    """
    place = checked_path("model", path)
    place = place / "config.json" if place.is_dir() else place
    block_size = BLOCK_SIZE if block_size is None else checked_int("block_size", block_size, 1, MAX_BLOCK_SIZE)
    if kv_dtype not in KV_BYTES:
        raise ConfigError(f"kv_dtype must be one of {', '.join(KV_BYTES)}, got {shown(kv_dtype)}")
    raw = _read(place)
    try:
        fields = _fields(raw, KV_BYTES[kv_dtype])
        layers = _layers(fields)
        return _facts(layers, block_size, fields.optional("max_position_embeddings"), _notes(raw, layers, kv_dtype))
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} is too large for a config.json ({path.stat().st_size:,} bytes)")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): name a config.json, or its folder") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold one JSON object, got {shown(found)}")
    return found


def _fields(raw: dict[str, Any], kv_bytes: int) -> Fields:
    text = raw.get("text_config")
    return Fields(text if isinstance(text, dict) else raw, kv_bytes)


def _layers(fields: Fields) -> list[Layer]:
    family = FAMILIES.get(fields.model_type)
    if family is None:
        raise ConfigError(
            f"model_type {shown(fields.model_type)} is unknown, so it is not known what its layers keep; {INSTEAD}"
        )
    return family(fields)


def _notes(raw: dict[str, Any], layers: Sequence[Layer], kv_dtype: str) -> tuple[str, ...]:
    notes = []
    if any(layer.kind == "chunk" for layer in layers):
        notes.append(
            "Layers with chunked attention count as full attention: vLLM frees the chunks before the current one, and "
            "the player keeps them."
        )
    if any(layer.is_latent for layer in layers):
        notes.append("Kernels for MLA may need another block size, such as 64 for FlashMLA.")
    quantization = raw.get("quantization_config")
    if kv_dtype == "auto" and isinstance(quantization, dict) and quantization.get("kv_cache_scheme"):
        notes.append("quantization_config has a scheme for the KV cache: vLLM may use fp8, with half the bytes.")
    return tuple(notes)


def _facts(layers: Sequence[Layer], block_size: int, longest: int | None, notes: tuple[str, ...]) -> ModelFacts:
    if not layers:
        raise ConfigError("the model has no layers with a cache")
    groups = _groups(_pages(layers, block_size))
    per_token = sum(layer.num_bytes for layer in layers if layer.kind != "state")
    bytes_per_block = max(size for _, size in groups)
    return ModelFacts(tuple(page for page, _ in groups), bytes_per_block, per_token, longest, notes)


def _spec(page: Page) -> GroupSpec:
    layer = page.layer
    if layer.kind == "sliding_window":
        return GroupSpec(page.block_size, "sliding_window", layer.window)
    if layer.kind == "state":
        return GroupSpec(page.block_size, "state", checkpoint_alignment=layer.checkpoint_alignment)
    return GroupSpec(page.block_size)


def _pages(layers: Sequence[Layer], block_size: int) -> list[Page]:
    """Return each layer's page. With states, blocks grow until a page of attention is as large as a state."""
    per_token = max((layer.num_bytes for layer in layers if layer.kind != "state"), default=0)
    state = max((layer.num_bytes for layer in layers if layer.kind == "state"), default=0)
    if state and per_token:
        unit = max(KERNEL_BLOCK, block_size, LATENT_KERNEL_BLOCK * any(layer.is_latent for layer in layers))
        smallest = unit * -(-state // (unit * per_token))
        block_size = max(block_size, KERNEL_BLOCK * -(-smallest // KERNEL_BLOCK))
        state = block_size * per_token
    return [
        Page(layer, block_size, state if layer.kind == "state" else block_size * layer.num_bytes) for layer in layers
    ]


def _groups(pages: Sequence[Page]) -> list[tuple[Page, int]]:
    """Divide the layers into groups; return a page of each, and its bytes per block."""
    if len({(page.layer.kind, page.layer.window) for page in pages}) == 1:  # one group, even of unequal pages
        return [(pages[0], sum(page.num_bytes for page in pages))]
    counts = Counter(_unified(pages))
    fewest, most = min(counts.values()), max(counts.values())
    size = most if most < fewest * PADDING_LIMIT else fewest
    return [(page, size * page.num_bytes) for page, count in counts.items() for _ in range(-(-count // size))]


def _unified(pages: Sequence[Page]) -> list[Page]:
    """Make all pages as large as the largest: by more tokens per block where these fill it, else by padding."""
    largest = max(page.num_bytes for page in pages)
    return [_enlarged(page, largest) for page in pages]


def _enlarged(page: Page, num_bytes: int) -> Page:
    if page.layer.kind != "state" and num_bytes % page.num_bytes == 0:
        ratio = num_bytes // page.num_bytes
        return replace(page, block_size=page.block_size * ratio, num_bytes=num_bytes)
    if page.layer.is_latent and page.num_bytes != num_bytes:
        raise ConfigError(f"pages of MLA cannot be padded to those of its other layers; {INSTEAD}")
    return replace(page, num_bytes=num_bytes)
