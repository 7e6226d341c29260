"""The setting that a user asks for, of which every part has a default."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from os import PathLike
from typing import TypeVar, get_args

from labengine.config import ConfigError, EngineConfig, GroupSpec, checked_int, shown
from labengine.core.editions import edition
from labengine.prefix_doctor.play.clock import Clock
from labengine.prefix_doctor.play.model_config import ModelFacts, model_of
from labengine.prefix_doctor.play.setting import Routing, Setting

T = TypeVar("T")

EDITION, BLOCK_SIZE, NUM_BLOCKS = "vllm", 16, 65_536
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 256, 8192
"""The defaults of vLLM 0.32's LLM() on GPUs below 70 GiB; the server's and those of larger GPUs differ."""
RETENTION_INTERVAL = 0
"""vLLM 0.32's default; it matters only to windows and states."""


@dataclass(frozen=True)
class Asked:
    """The asked settings; None for a default. model: a config.json, from which groups and capacity follow.

    num_blocks or gib say how large the pool is; gib needs a model, or kv_bytes_per_token.
    """

    num_blocks: int | None = None
    block_size: int | None = None
    model: str | PathLike[str] | None = None
    gib: float | None = None
    kv_bytes_per_token: float | None = None
    edition: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    num_replicas: int | None = None
    routing: Routing | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked, so that a recording is examined as it is."""
        return self == Asked()

    @cached_property
    def facts(self) -> ModelFacts | None:
        """What the model's config.json tells; None without one."""
        return None if self.model is None else model_of(self.model, block_size=self.block_size)

    @property
    def _group(self) -> GroupSpec:
        return GroupSpec(_given(self.block_size, BLOCK_SIZE))

    def _num_blocks(self, facts: ModelFacts | None) -> int:
        if self.gib is None:
            return NUM_BLOCKS if self.num_blocks is None else checked_int("num_blocks", self.num_blocks, 2)
        if self.num_blocks is not None:
            raise ConfigError("gib cannot be combined with num_blocks: both are the size of the pool")
        for name, value in (("gib", self.gib), ("kv_bytes_per_token", self.kv_bytes_per_token)):
            if value is not None and not (isinstance(value, int | float) and 0 < value < inf):
                raise ConfigError(f"{name} must be a number above 0, got {shown(value)}")
        if facts is not None:
            return facts.blocks_in(self.gib)
        if self.kv_bytes_per_token is None:
            raise ConfigError("gib needs a model's config.json, or kv_bytes_per_token, to say how many blocks it holds")
        return max(2, int(self.gib * 2**30 / (self.kv_bytes_per_token * self._group.block_size)))

    def bytes_per_token(self) -> float | None:
        """Return the bytes of one token's KV; None if they are unknown."""
        facts = self.facts
        return self.kv_bytes_per_token if facts is None else facts.bytes_per_token

    def setting(self, clock: Clock | None, num_recorded: int) -> Setting:
        """Return the setting. num_recorded: replicas that the traffic names."""
        facts = self.facts
        groups = (self._group,) if facts is None else facts.groups
        is_full = all(group.kind == "full" for group in groups)
        config = EngineConfig(
            num_blocks=self._num_blocks(facts),
            groups=groups,
            retention_interval=None if is_full else RETENTION_INTERVAL,
            max_num_seqs=_given(self.max_num_seqs, MAX_NUM_SEQS),
            max_num_batched_tokens=_given(self.max_num_batched_tokens, MAX_NUM_BATCHED_TOKENS),
        )
        num_replicas = checked_int("num_replicas", _given(self.num_replicas, max(1, num_recorded)), 1, 1024)
        if self.routing not in (None, *get_args(Routing)):
            raise ConfigError(f"routing must be one of {', '.join(get_args(Routing))}, got {shown(self.routing)}")
        routing = self.routing or ("recorded" if num_recorded > 1 else "round_robin")
        return Setting(config, edition(_given(self.edition, EDITION)), clock, num_replicas, routing)


def _given(value: T | None, default: T) -> T:
    return default if value is None else value
