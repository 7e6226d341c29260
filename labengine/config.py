"""What a user asks for: the shape of the pool, of a step, and of one request's sampling. Validated at construction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

GroupKind = Literal["full", "sliding_window"]


class ConfigError(ValueError):
    """A setting that cannot work; the message says which, why, and what to do instead."""


def _require_int(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, got {value}")


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One KV-cache group: layers that keep their KV in blocks of one size, under one rule of what may be dropped."""

    block_size: int
    kind: GroupKind = "full"
    window: int | None = None

    def __post_init__(self) -> None:
        _require_int("block_size", self.block_size, 1)
        if self.kind not in ("full", "sliding_window"):
            raise ConfigError(f"group kind must be 'full' or 'sliding_window', got {self.kind!r}")
        if (self.kind == "sliding_window") != (self.window is not None):
            raise ConfigError("a sliding_window group needs a window, a full group has none")
        if self.window is not None:
            _require_int("window", self.window, 1)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The pool and the limits of a step.

    num_blocks: physical blocks in the pool, shared by all groups.
    groups: at least one KV-cache group.
    max_num_seqs: requests per step or running at once (the edition says which).
    max_num_batched_tokens: tokens computed per step at most.
    """

    num_blocks: int = 256
    groups: tuple[GroupSpec, ...] = (GroupSpec(16),)
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    seed: int = 0
    """Sampling seeds of requests that bring none of their own follow from this one and their id."""
    eos_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        _require_int("num_blocks", self.num_blocks, 1)
        _require_int("max_num_seqs", self.max_num_seqs, 1)
        _require_int("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        _require_int("seed", self.seed, 0)
        if not self.groups:
            raise ConfigError("groups must name at least one KV-cache group")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request picks its tokens and when it stops.

    temperature 0 is greedy. top_k and top_p None mean no cut. seed None lets the engine derive one from its own seed
    and the request's id. Sampling is a pure function of (seed, position, logits), so a step that is rolled back, or a
    request that is preempted, draws the same token again.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _require_int("max_tokens", self.max_tokens, 1)
        if not _is_number(self.temperature) or self.temperature < 0:
            raise ConfigError(f"temperature must be a finite number >= 0 (0 is greedy), got {self.temperature!r}")
        if self.top_k is not None:
            _require_int("top_k", self.top_k, 1)
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ConfigError(f"top_p must lie in (0, 1], got {self.top_p!r}")
        if self.seed is not None:
            _require_int("seed", self.seed, 0)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
