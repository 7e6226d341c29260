"""A real model in a page, ready for a lab: the runner in WebAssembly, the tokenizer and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from labengine.config import ConfigError, EngineConfig, GroupSpec, checked_token_ids, shown
from labengine.engine.loaded_model import LoadedModel, ModelOptions, provide_model, single_block_size
from labengine.engine.step_limits import StepLimits, checked_model_len
from labengine.engine.wasm.bpe_tokenizer import BPETokenizer
from labengine.engine.wasm.memory import Kernels, Memory
from labengine.engine.wasm.program import kv_bytes
from labengine.engine.wasm.runner import PageRunner
from labengine.engine.wasm.weights import PageWeights, load_weights

STEP_TOKENS = 64
"""Default maximum tokens of a step. A step blocks Python in the page; with this many, for a third of a second."""
MAX_POOL_BYTES = 1 << 30
"""Maximum size of a lab's pool. A page has 4 GiB for weights and all labs' pools; a phone has less."""
_DEFAULT_STEP_TOKENS = next(one.default for one in fields(EngineConfig) if one.name == "max_num_batched_tokens")


@dataclass(frozen=True, slots=True)
class LoadedOnce:
    """Weights and their tokenizer, which all labs of the page share."""

    weights: PageWeights
    tokenizer: BPETokenizer


def load_in_page(kernels: Kernels, at: int, num_bytes: int, name: str, digest: str) -> None:
    """Load a GGUF from the kernels' memory; from then on Lab(name) computes with it.

    digest: the GGUF's sha256 in hex. Its memory is freed. Raises ConfigError for an unsupported file.
    """
    memory = Memory(kernels)
    try:
        weights = load_weights(memory, at, num_bytes, name, digest)
    finally:
        memory.give(at)
    provide_model(name, partial(PageModel, LoadedOnce(weights, BPETokenizer(weights.fields))))


class PageModel(LoadedModel):
    """The page's weights, with a separate KV pool."""

    runner: PageRunner

    def __init__(self, loaded: LoadedOnce, config: EngineConfig, options: ModelOptions) -> None:
        """Raises ConfigError for options that a page does not support, and for a pool that does not fit."""
        _refuse(options)
        self._loaded, self._sizes = loaded, loaded.weights.sizes
        self.name, self.num_layers = loaded.weights.name, self._sizes.num_layers
        self._max_model_len = checked_model_len(options.max_model_len, self._sizes.max_model_len, self.name)
        block_size, num_blocks = single_block_size(config), config.num_blocks
        self._pool_bytes = _checked_pool(kv_bytes(self._sizes, num_blocks * block_size), num_blocks, block_size)
        asked = config.max_num_batched_tokens
        self.config = replace(
            config,
            groups=(GroupSpec(block_size),),
            eos_token_ids=self._sizes.eos_token_ids,
            max_num_batched_tokens=STEP_TOKENS if asked == _DEFAULT_STEP_TOKENS else asked,
        )
        limits = config.max_num_seqs, self.config.max_num_batched_tokens, self._max_model_len, config.num_drafts
        self.runner = PageRunner(loaded.weights, num_blocks, block_size, StepLimits(*limits))

    @property
    def tokenizer(self) -> BPETokenizer:
        """The tokenizer of the vocabulary."""
        return self._loaded.tokenizer

    @property
    def fingerprint(self) -> str:
        """Digest of the weights, and the block size. KV of another process is not bit for bit the same."""
        return f"{self._loaded.weights.digest[:32]}-wasm-float32-{self.config.groups[0].block_size}"

    def checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        """Return the ids. Raises ConfigError for ids outside the vocabulary."""
        return checked_token_ids(token_ids, self._sizes.vocab_size)

    @property
    def max_model_len(self) -> int:
        """The model's maximum number of positions, or fewer if requested."""
        return self._max_model_len

    def kv(self, block_id: int, layer: int) -> Any:
        """Return copies of K and V as `Floats`, since a page has no tensors."""
        if not 0 <= layer < self.num_layers:
            raise IndexError(f"no layer {layer}: {self.name} has layers 0 to {self.num_layers - 1}")
        return self.runner.kv(block_id, layer)

    def sibling(self, config: EngineConfig, options: ModelOptions) -> PageModel:
        """Return a model with the same weights and a separate pool. Raises ConfigError if it does not fit."""
        return PageModel(self._loaded, config, options)

    def release(self) -> None:
        """Free the pool's memory; the weights stay in the page."""
        self.runner.release()

    def describe(self) -> dict[str, str]:
        """Return descriptions of model, device and pool, each with its reason."""
        sizes, config = self._sizes, self.config
        return {
            "model": f"llama, {self.num_layers} layers, {sizes.num_parameters / 1e6:,.0f} M parameters",
            "device": "this page's processor, one thread (WebAssembly)",
            "dtype": "float32, weights in bfloat16 (half the memory)",
            "attention": "cpu (the C kernels of csrc, compiled for 128-bit vectors)",
            "step": f"at most {config.max_num_batched_tokens} tokens (the page freezes while a step is computed)",
            "kv_pool": (
                f"{config.num_blocks} blocks of {config.groups[0].block_size} tokens, "
                f"{self._pool_bytes / 2**20:,.1f} MiB (num_blocks)"
            ),
        }


def _checked_pool(num_bytes: int, num_blocks: int, block_size: int) -> int:
    if num_bytes > MAX_POOL_BYTES:
        raise ConfigError(
            f"{num_blocks} blocks of {block_size} tokens need {num_bytes / 2**20:,.0f} MiB for KV, but a lab in a page "
            f"has at most {MAX_POOL_BYTES / 2**20:,.0f} MiB: lower num_blocks"
        )
    return num_bytes


def _refuse(options: ModelOptions) -> None:
    """Raise ConfigError for options that a page does not support."""
    if options.num_blocks is None:
        raise ConfigError('num_blocks="auto": a page cannot tell how much memory is free; use a number')
    if options.runner is not None:
        raise ConfigError("omit runner=...: a page has its own runner, and no torch for labengine.ModelRunner")
    asked = {"dtype": options.dtype, "device": options.device, "attention": options.attention}
    only = {"dtype": "float32", "device": "cpu", "attention": "cpu"}
    for name, value in asked.items():
        if value not in (None, only[name]):
            raise ConfigError(f"omit {name}={shown(value)}: a page always computes with {name}={only[name]!r}")
