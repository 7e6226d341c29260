"""A lab's settings: every keyword of Lab, checked, and kept to make similar labs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from os import PathLike
from re import compile as pattern
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, cast

from labengine.config import ConfigError, EngineConfig, GroupSpec, checked_bool, checked_int, is_single_int, shown
from labengine.core.connector import Connector
from labengine.core.editions import Policy, with_policy
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts, given_parts
from labengine.core.proposer import Proposer
from labengine.driven.driven import Driven
from labengine.engine.checked_proposer import drafts_of, refuse_wrong_proposer
from labengine.engine.loaded_model import ModelOptions

if TYPE_CHECKING:
    import torch

    from labengine.engine.model_runner import ModelRunner


_LETTERS = pattern("[A-Z]{1,4}|[a-z]{1,2}")
"""Names of requests as views print them; short ones also in lower case. A longer word is not a name."""


Parameters = ParamSpec("Parameters")


def parameters_of(
    declared: Callable[Parameters, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, Parameters], None]]:
    """Give a method another callable's parameters, for type checkers, help() and completion, without checks."""
    signature = inspect.signature(declared)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)

    def declare(method: Callable[..., None]) -> Callable[Concatenate[Any, Parameters], None]:
        parameters = [own, *signature.parameters.values()]
        cast(Any, method).__signature__ = inspect.Signature(parameters)
        return method

    return declare


def refuse_unknown(call: str, keywords: Mapping[str, object], *known_by: Callable[..., object]) -> None:
    """Raise TypeError for the first keyword that is not a parameter in `known_by`, naming the nearest match."""
    parameters = [p for owner in known_by for p in inspect.signature(owner).parameters.values()]
    known = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    for name in keywords:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it knows {', '.join(known) or 'none'}"
            raise TypeError(f"{call} has no keyword {name!r}{hint}")


def prompt_list(prompts: str | Iterable[Any]) -> list[Any]:
    """Return one prompt or several as a list of strings and lists of token ids. ConfigError for anything else."""
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, (bytes, Mapping)) or not hasattr(prompts, "__iter__"):
        raise ConfigError(f"prompts must be one or more strings or lists of token ids, got {shown(prompts)}")
    several = list(prompts)
    return [several] if several and is_single_int(several[0]) else several


def request_id_of(name: object) -> object:
    """Return the id for a name such as "A" or "AB"; anything else unchanged, for the caller to check."""
    if not isinstance(name, str) or not _LETTERS.fullmatch(name):
        return name
    number = 0
    for letter in name.upper():
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class LabSettings:
    """The keywords of Lab, as passed; see there. Raises ConfigError for values that cannot work."""

    model: str | PathLike[str] | Driven = field(default="smollm2", kw_only=False)
    num_blocks: int | Literal["auto"] = 256
    block_size: int = 16
    groups: Sequence[GroupSpec] | None = None
    edition: str = "labengine"
    policy: Policy = "fcfs"
    parts: Parts | type | None = None
    runner: type[ModelRunner] | None = None
    external: str | PathLike[str] | Connector | None = None
    speculation: Proposer | None = None
    dtype: str | torch.dtype | None = None
    device: str | None = None
    attention: str | None = None
    cuda_graphs: bool = True
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    retention_interval: int | None = None
    hash_block_size: int = 0
    overlap: bool | None = None
    keep_finished: int | None = 10_000
    keep_inputs: int | None = 100_000
    record: bool | int = True
    check: bool | Literal["stop"] = True
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.model, Driven):
            self.model.refuse(self.changed())
        if self.parts is not None:
            object.__setattr__(self, "parts", given_parts(self.parts))
        if self.runner is not None:
            _require_class_for_weights(self.runner, self.model)
        if isinstance(self.num_blocks, str) and self.num_blocks != "auto":
            raise ConfigError(f'num_blocks must be an integer or "auto", got {shown(self.num_blocks)}')
        if self.check not in (True, False, "stop"):
            raise ConfigError(f'check must be True, False or "stop", got {shown(self.check)}')
        checked_bool("cuda_graphs", self.cuda_graphs)
        if self.keep_inputs is not None:
            checked_int("keep_inputs", self.keep_inputs, 0)
        if self.max_model_len is not None:
            checked_int("max_model_len", self.max_model_len, 2)
        _require_name("dtype", self.dtype, "dtype", '"float32", "bfloat16", "float16", torch.float32 ...')
        _require_name("device", self.device, "device", '"cpu", "cuda" or "cuda:1"')
        _require_name("attention", self.attention, "", '"cpu", "triton", "flash_attn" or "torch"')
        if self.speculation is not None:
            refuse_wrong_proposer(self.speculation)
        if self.groups is not None and (isinstance(self.groups, str) or not isinstance(self.groups, Iterable)):
            raise ConfigError(f"groups must be a list of GroupSpecs, got {shown(self.groups)}")
        if self.groups is not None and self.model != "simulated" and not isinstance(self.model, Driven):
            raise ConfigError("groups are for the simulated model; a real model's layers determine its groups")

    @property
    def all_parts(self) -> Parts:
        """The edition's parts, overridden by the user's."""
        if isinstance(self.model, Driven):
            return self.model.parts(self.policy)
        if self.parts is None:
            return edition_named(self.edition, self.policy)
        return with_policy(given_parts(self.parts), self.edition, self.policy)

    @property
    def asked_blocks(self) -> int | None:
        """The requested number of blocks; None for "auto"."""
        return None if isinstance(self.num_blocks, str) else self.num_blocks

    def engine_config(self) -> EngineConfig:
        """The engine's configuration. With "auto" it has one block until the model is loaded and memory measured."""
        blocks, (num_drafts, drafter) = self.asked_blocks, drafts_of(self.speculation)
        return EngineConfig(
            1 if blocks is None else blocks,
            (GroupSpec(self.block_size),) if self.groups is None else tuple(self.groups),
            self.max_num_seqs,
            self.max_num_batched_tokens,
            self.seed,
            watermark=self.watermark,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            retention_interval=self.retention_interval,
            hash_block_size=self.hash_block_size,
            num_drafts=num_drafts,
            drafter=drafter,
            max_model_len=self.max_model_len or 0,
            keep_finished=self.keep_finished,
        )

    def model_options(self) -> ModelOptions:
        """The options of the model alone."""
        return ModelOptions(
            self.asked_blocks,
            self.dtype,
            self.device,
            self.attention,
            self.cuda_graphs,
            self.runner,
            self.max_model_len,
        )

    def changed(self) -> dict[str, Any]:
        """Return the keywords that differ from their defaults, in the order of Lab's parameters."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value is not default and value != default}


def _require_class_for_weights(runner: object, model: object) -> None:
    """Raise ConfigError unless the runner is a class and the model has weights to run."""
    if not isinstance(runner, type):
        raise ConfigError(f"runner must be a subclass of labengine.ModelRunner, not an instance: got {shown(runner)}")
    if model == "simulated":
        raise ConfigError(f"runner={runner.__name__}: omit it, or use a real model: the simulated model has no runner")


def _require_name(name: str, value: object, torch_type: str, such_as: str) -> None:
    """Raise ConfigError unless the value is a string, None, or a torch object of that type, without importing torch."""
    of_torch = type(value).__module__ == "torch" and type(value).__name__ == torch_type
    if not (value is None or isinstance(value, str) or of_torch):
        raise ConfigError(f"{name} must be a name, such as {such_as}, got {shown(value)}")
