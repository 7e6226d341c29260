"""A model ready for use, with runner, tokenizer and limits: loaded by name or directory, or simulated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from labengine.config import ConfigError, EngineConfig, checked_text, checked_token_ids
from labengine.engine.runner import Runner
from labengine.engine.simulated import SimulatedRunner, WordTokenizer
from labengine.engine.torch_import import load_torch

if TYPE_CHECKING:
    import torch

    from labengine.engine.model_runner import ModelRunner


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with the tokenizer's default settings."""
        ...

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation, ready for the answer."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text without special tokens."""
        ...

    def token_text(self, token_id: int) -> str:
        """Return one token's text, readable."""
        ...


class LoadedModel(ABC):
    """A lab's model."""

    name: str
    config: EngineConfig
    runner: Runner
    num_layers: int = 0
    has_edition = True
    """False if another engine decides instead of an edition's parts."""

    def refuse_call(self, call: str) -> None:  # noqa: B027 - most models refuse nothing
        """Raise ConfigError for a call of a lab that needs labengine's own engine if another one decides."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A name for everything that KV depends on besides tokens (weights, dtype, groups).

        Tiers separate models by it.
        """

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt. Raises ConfigError unless it is a text."""
        if not isinstance(prompt, str):
            raise ConfigError(
                f"a prompt must be a string, got {type(prompt).__name__}; pass token ids as token_ids=[...]"
            )
        checked_text("the prompt", prompt)
        return self.tokenizer.encode(prompt)

    @abstractmethod
    def checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        """Return the ids. Raises ConfigError for ids that the model does not know."""

    def prompt_ids(self, call: str, prompt: str | None, token_ids: Sequence[int] | None) -> list[int]:
        """Return the token ids of a prompt given as text or ids. Raises ConfigError, naming the call, without one."""
        if prompt is not None and token_ids is None:
            return self.encode(prompt)
        if token_ids is not None and prompt is None:
            return self.checked_ids(token_ids)
        raise ConfigError(f"{call} needs either a prompt or token_ids")

    @property
    @abstractmethod
    def max_model_len(self) -> int | None:
        """Maximum number of positions of a request; None: no limit."""

    def refuse_too_long(self, num_prompt_tokens: int, max_tokens: int) -> None:
        """Raise ConfigError if the positions exceed the maximum."""
        limit = self.max_model_len
        if limit is not None and num_prompt_tokens + max_tokens > limit:
            raise ConfigError(
                f"a prompt of {num_prompt_tokens} tokens with max_tokens={max_tokens} exceeds the {limit} "
                f"positions of {self.name}: shorten the prompt or lower max_tokens"
            )

    @abstractmethod
    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of a block, each [block_size, kv_heads, head_dim]."""

    @abstractmethod
    def sibling(self, config: EngineConfig, options: ModelOptions) -> LoadedModel:
        """Return the same model with a separate KV pool, sized by config and options.num_blocks.

        Weights are shared, and released with the last model that uses them.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the memory."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return descriptions of the model, device and backends, each with its reason."""


class SimulatedModel(LoadedModel):
    """A model without weights: tokens are a pure function of request and position. Words are tokens."""

    def __init__(self, config: EngineConfig, max_model_len: int | None = None) -> None:
        self.name = "simulated"
        self.config = config
        self._max_model_len = max_model_len
        self.runner = SimulatedRunner()
        self._tokenizer = WordTokenizer()

    @property
    def tokenizer(self) -> Tokenizer:
        """Words as tokens."""
        return self._tokenizer

    @property
    def fingerprint(self) -> str:
        """A name for the groups, as there are no weights."""
        return f"simulated-{'-'.join(f'{g.kind}.{g.block_size}.{g.window}' for g in self.config.groups)}"

    def checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        """Return the ids: any non-negative integers."""
        return checked_token_ids(token_ids)

    @property
    def max_model_len(self) -> int | None:
        """The requested maximum: without weights there is no other limit."""
        return self._max_model_len

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Raise ConfigError, as there is no KV."""
        raise ConfigError("the simulated model has no KV: use Lab('smollm2') to look at K and V")

    def sibling(self, config: EngineConfig, options: ModelOptions) -> SimulatedModel:
        """Return a model with the same words and the same next tokens."""
        _refuse_for_simulated(options)
        other = SimulatedModel(config, options.max_model_len)
        other.runner, other._tokenizer = self.runner, self._tokenizer
        return other

    def release(self) -> None:
        """Do nothing: no memory is held."""

    def describe(self) -> dict[str, str]:
        """Return one line."""
        return {"model": "simulated: no weights, the real scheduler and core"}


class RealModel(LoadedModel):
    """Weights on a device, and their tokenizer (loaded on first use)."""

    runner: ModelRunner

    def __init__(self, name: str, directory: Path, config: EngineConfig, runner: ModelRunner) -> None:
        self.name = name
        num_blocks = runner.kv_tensors.num_blocks
        self.config = replace(
            config,
            num_blocks=num_blocks,
            groups=runner.groups,
            eos_token_ids=runner.eos_token_ids,
            max_model_len=runner.max_model_len,
        )
        self.runner = runner
        self.num_layers = runner.num_layers
        self._directory = directory

    @property
    def fingerprint(self) -> str:
        """The runner's fingerprint."""
        return self.runner.fingerprint

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The directory's tokenizer, loaded on first use; without one, a tokenizer that shows ids."""
        from labengine.engine.tokenizer import HuggingFaceTokenizer, IdTokenizer, has_tokenizer

        return HuggingFaceTokenizer(self._directory) if has_tokenizer(self._directory) else IdTokenizer(self._directory)

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt.

        Raises ConfigError unless it is a text and the tokenizer is this model's.
        """
        token_ids, limit = super().encode(prompt), self.runner.vocab_size
        if token_ids and max(token_ids) >= limit:
            raise ConfigError(
                f"the tokenizer in {self._directory} gives token id {max(token_ids)}, but vocab_size is {limit} in its "
                "config.json: they belong to different models"
            )
        return token_ids

    def checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        """Return the ids. Raises ConfigError for ids outside the vocabulary."""
        return checked_token_ids(token_ids, self.runner.vocab_size)

    @property
    def max_model_len(self) -> int:
        """The runner's maximum."""
        return self.runner.max_model_len

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return copies, which later steps do not change."""
        if not 0 <= layer < self.runner.num_layers:
            raise IndexError(f"no layer {layer}: {self.name} has layers 0 to {self.runner.num_layers - 1}")
        return self.runner.kv(block_id, layer)

    def sibling(self, config: EngineConfig, options: ModelOptions) -> RealModel:
        """Return a model with the same weights and tokenizer. Raises ConfigError if a second pool does not fit."""
        block_size = single_block_size(config)
        limits = config.max_num_seqs, config.max_num_batched_tokens, options.max_model_len, config.num_drafts
        runner = self.runner.sibling(options.num_blocks, block_size, *limits)
        other = RealModel(self.name, self._directory, config, runner)
        if "tokenizer" in vars(self):
            vars(other)["tokenizer"] = self.tokenizer
        return other

    def first_layers(self, num_layers: int, config: EngineConfig, options: ModelOptions) -> RealModel:
        """Return a model of this one's first layers, on its weights. Raises ConfigError for more than it has."""
        if num_layers > self.runner.num_layers:
            raise ConfigError(
                f"num_layers must be at most {self.runner.num_layers}, the number in {self.name}, got {num_layers}"
            )
        size = single_block_size(config)
        runner = self.runner.first_layers(num_layers, options.num_blocks, size, config.max_num_batched_tokens)
        return RealModel(f"{self.name}, {num_layers} layers", self._directory, config, runner)

    def release(self) -> None:
        """Release the KV, and the weights unless another model uses them."""
        self.runner.release()

    def describe(self) -> dict[str, str]:
        """Return the runner's lines."""
        return self.runner.describe()


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """A user's settings for a real model's runner; with None the runner chooses. See ModelRunner.load."""

    num_blocks: int | None
    dtype: str | torch.dtype | None = None
    device: str | None = None
    attention: str | None = None
    cuda_graphs: bool = True
    runner: type[ModelRunner] | None = None
    max_model_len: int | None = None


MakeModel = Callable[[EngineConfig, ModelOptions], LoadedModel]
_PROVIDED: dict[str, MakeModel] = {}


def provide_model(name: str, make: MakeModel) -> None:
    """Register a model by name; load_model calls `make` for it. For weights already in memory (wasm/model.py)."""
    _PROVIDED[name] = make


def is_provided(name: str) -> bool:
    """Return True if a model of that name was provided."""
    return name in _PROVIDED


def load_model(model: str | PathLike[str], config: EngineConfig, options: ModelOptions) -> LoadedModel:
    """Load a model by name. Its config is `config` with the model's groups and pool size.

    Raises ConfigError for an unknown model, and for settings that this kind of model (simulated or real) does not have.
    """
    if model == "simulated":
        _refuse_for_simulated(options)
        return SimulatedModel(config, options.max_model_len)
    if isinstance(model, str) and model in _PROVIDED:
        return _PROVIDED[model](config, options)
    block_size = single_block_size(config)
    from labengine.engine.sources import model_path

    directory = model_path(model)  # a wrong name raises before torch is imported
    load_torch()
    from labengine.engine.runner_choice import choose_runner

    runner = choose_runner(options.runner).load(
        directory,
        num_blocks=options.num_blocks,
        block_size=block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        dtype=options.dtype,
        device=options.device,
        attention=options.attention,
        cuda_graphs=options.cuda_graphs,
        num_drafts=config.num_drafts,
    )
    return RealModel(Path(fspath(model)).name, directory, config, runner)


def _refuse_for_simulated(options: ModelOptions) -> None:
    if options.num_blocks is None:
        raise ConfigError('num_blocks="auto" means as many as fit, but the simulated model has no KV: use a number')
    if options.attention is not None:
        raise ConfigError(
            f"attention={options.attention!r}: omit it, because the simulated model computes no attention"
        )


def single_block_size(config: EngineConfig) -> int:
    """Return the block size of a config for a real model. Raises ConfigError for several groups, or a window."""
    if len(config.groups) > 1 or config.groups[0].kind != "full":
        raise ConfigError("a real model brings its own KV-cache groups: omit groups, and give one block_size")
    return config.groups[0].block_size
