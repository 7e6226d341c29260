"""A user's settings for the pool, a step, and one request's sampling. They are validated at construction."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from math import gcd, lcm
from numbers import Real
from operator import index
from pathlib import Path
from struct import error as StructError
from struct import pack
from typing import Any, Literal, TypedDict, get_args

GroupKind = Literal["full", "sliding_window", "state"]
Drafter = Literal["lookup", "draft_model", "eagle", "mtp"]
"""Kinds of drafters, by what vLLM keeps for them in the pool: nothing for "lookup"; the KV of a second model; or the KV
of a head on the model's hidden states, which also needs the last block of a hit recomputed."""


class ConfigError(ValueError):
    """Raised for a setting that cannot work; the message gives the setting, the reason, and what to do instead."""


MAX_PRIORITY = 2**31 - 1
"""Bounds the priorities of requests, on both sides of 0."""

MAX_NUM_BLOCKS = 10_000_000
"""Guards against a typing error that would take all memory: the core spends a few hundred bytes per block."""


def shown(value: object) -> str:
    """Return the value's repr for a message, cut in the middle when it is longer than 200 characters."""
    if isinstance(value, (list, tuple)) and len(value) > 200:  # a user's value may have millions of items
        return f"{repr(value[:100])[:120]}...{repr(value[-100:])[-40:]}"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]}...{text[-40:]}"


def is_single_int(value: object) -> bool:
    """Return True for one integer of Python, numpy or torch; False for booleans and for sequences of integers."""
    is_truth_value = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    return hasattr(value, "__index__") and not is_truth_value and not getattr(value, "ndim", 0)


def checked_token_ids(token_ids: Iterable[object], vocab_size: int | None = None) -> list[int]:
    """Return token ids as Python ints. Raises ConfigError unless all are integers >= 0 (and below vocab_size)."""
    if isinstance(token_ids, (str, bytes)) or not hasattr(token_ids, "__iter__"):
        raise ConfigError(f"token_ids must be a list of integers, got {shown(token_ids)}")
    ids: list[Any] = list(token_ids)
    if _are_token_ids(ids) and (vocab_size is None or max(ids) < vocab_size):
        return ids
    return [_checked_token_id(position, token_id, vocab_size) for position, token_id in enumerate(ids)]


def _are_token_ids(ids: list[Any]) -> bool:
    """Return True for a list of ints from 0 to 2**63 - 1, and at least one; a loop, or min and max, need far longer."""
    if not ids or [*map(type, ids)].count(int) < len(ids):
        return False
    try:
        return pack(f"<{len(ids)}q", *ids)[7::8].isascii()  # the bytes with the signs
    except StructError:
        return False


def checked_text(name: str, text: object) -> str:
    """Return the text itself. Raises ConfigError unless it is a str that can be written as UTF-8."""
    if not isinstance(text, str):
        raise ConfigError(f"{name} must be a string, got {shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} has half a surrogate pair at {error.start}: decode it again as UTF-8") from None
    return text


def _checked_token_id(position: int, value: object, vocab_size: int | None) -> int:
    token_id = as_int(value)
    if token_id is None or not 0 <= token_id < 2**63:
        raise ConfigError(f"token_ids[{position}] must be a non-negative integer, got {value!r}")
    if vocab_size is not None and token_id >= vocab_size:
        raise ConfigError(f"token_ids[{position}] must be below the vocabulary size, {vocab_size}, got {token_id}")
    return token_id


def as_int(number: Any) -> int | None:
    """Return one integer of Python, numpy or torch as an int; None for anything else. Any: users pass anything."""
    try:
        return index(number) if is_single_int(number) else None
    except TypeError:  # numpy and torch give every number an __index__, which raises for a fraction
        return None


def _as_float(value: object) -> float:
    """Return the value as a float; NaN unless it is a number that a float can hold."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def checked_int(name: str, value: object, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return the value as a Python int. Raises ConfigError unless it is an integer within the bounds."""
    number = as_int(value)
    if number is None:
        raise ConfigError(f"{name} must be an integer, got {shown(value)}")
    if minimum is not None and number < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, got {number}")
    if maximum is not None and number > maximum:
        raise ConfigError(f"{name} must be at most {maximum:,}, got {number:,}")
    return number


def checked_bool(name: str, value: object) -> bool:
    """Return the value as a Python bool. Raises ConfigError unless it is True or False, Python's or numpy's."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        raise ConfigError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def checked_call(name: str, value: object, *arguments: str) -> None:
    """Raise ConfigError unless `value` can be called with these arguments; the message names them."""
    takes = f"a function of ({', '.join(arguments)})"
    if not callable(value):
        raise ConfigError(f"{name} must be {takes}, got {shown(value)}")
    try:
        signature(value).bind(*arguments)
    except TypeError as error:
        raise ConfigError(f"{name} must be {takes}, got {shown(value)}: {error}") from None
    except ValueError:  # some functions in C have no signature
        pass


def checked_path(name: str, value: object) -> Path:
    """Return the path.

    Raises ConfigError for another type, and for an impossible path: too long, or with a NUL.
    """
    if not isinstance(value, (str, os.PathLike)) or isinstance(os.fspath(value), bytes):
        raise ConfigError(f"{name} must be a path (a string or a pathlib.Path), got {shown(value)}")
    try:
        os.lstat(value)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name} must be a usable path, got {shown(value)}: {getattr(error, 'strerror', None) or error}"
        ) from None
    return Path(value)


def _make_int(record: object, name: str, minimum: int, maximum: int | None = None) -> None:
    """Convert a frozen record's field to a Python int. Raises ConfigError unless it is an integer within the bounds."""
    object.__setattr__(record, name, checked_int(name, getattr(record, name), minimum, maximum))


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One KV-cache group: layers with one block size and one rule for dropping blocks.

    A block of a "state" group (Mamba, linear attention) holds one state of all its layers, the one after some number of
    tokens. Its block_size only decides after which tokens a state may be cached. If it is the length of the longest
    request, each request keeps one block all its life and never has a hit (vLLM's mode "none").
    """

    block_size: int
    kind: GroupKind = "full"
    window: int | None = None
    checkpoint_alignment: int | None = None
    """For state groups: a chunk can also leave a state after any multiple of this many of its tokens. With None the
    layers leave only the state at a chunk's end. Edition vllm has these states computed, and registers them.
    vLLM: MambaSpec.prefill_checkpoint_alignment."""

    def __post_init__(self) -> None:
        _make_int(self, "block_size", 1)
        if self.kind not in ("full", "sliding_window", "state"):
            raise ConfigError(f"group kind must be 'full', 'sliding_window' or 'state', got {shown(self.kind)}")
        if (self.kind == "sliding_window") != (self.window is not None):
            raise ConfigError("a sliding_window group needs a window; a full or state group must not have one")
        if self.window is not None:
            _make_int(self, "window", 1)
        if self.checkpoint_alignment is not None:
            _make_int(self, "checkpoint_alignment", 1)
            if self.kind != "state":
                raise ConfigError("checkpoint_alignment is only for state groups: others keep the KV of every token")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The pool and the limits of a step.

    num_blocks: physical blocks in the pool, shared by all groups.
    groups: at least one KV-cache group.
    max_num_seqs: maximum number of requests per step or running at once, depending on the edition.
    max_num_batched_tokens: maximum number of tokens computed per step.
    """

    num_blocks: int = 256
    groups: tuple[GroupSpec, ...] = (GroupSpec(16),)
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    seed: int = 0
    """Base of the sampling seeds: a request without a seed derives one from this and its id."""
    eos_token_ids: frozenset[int] = frozenset()
    hash_block_size: int = 0
    """Tokens per link of the hash chain; every group's block size is a multiple of it. 0: the smallest block size."""
    watermark: float = 0.0
    """The share of the pool that must stay free when a request is admitted while another one runs."""
    long_prefill_token_threshold: int = 0
    """Maximum number of one prompt's tokens per step while there are several requests; 0 for no limit."""
    retention_interval: int | None = None
    """Which blocks of a sliding window are cached. None: all that a hit could use. 0: only those before a prompt's end.
    n: also those before every n-th token. vLLM: prefix_cache_retention_interval."""
    num_drafts: int = 0
    """Maximum number of a proposer's tokens that a step judges per request; 0 without speculation."""
    drafter: Drafter = "lookup"
    """The kind of drafter. Only edition vllm keeps room in the pool for it; labengine's drafters have separate memory.

    "mtp" means several modules, one per draft; a single module that guesses all drafts is an "eagle"."""
    eagle_groups: tuple[int, ...] = ()
    """Groups of the drafter's own layers: in these, edition vllm drops the last block of a hit if the drafter is
    "eagle" or "mtp". () for all groups."""
    max_model_len: int = 0
    """Maximum number of positions of a request, which bounds vLLM's room for drafts; 0 for no limit."""
    keep_finished: int | None = None
    """Number of newest finished requests to keep (>= 0); None keeps all."""

    def __post_init__(self) -> None:
        _make_int(self, "num_blocks", 1, MAX_NUM_BLOCKS)
        _make_int(self, "max_num_seqs", 1)
        _make_int(self, "max_num_batched_tokens", 1)
        _make_int(self, "seed", 0)
        if not isinstance(self.groups, tuple):
            raise ConfigError(f"groups must be a list of GroupSpecs, got {shown(self.groups)}")
        if not self.groups:
            raise ConfigError("groups must contain at least one KV-cache group")
        if not all(isinstance(group, GroupSpec) for group in self.groups):
            raise ConfigError(f"groups must contain only GroupSpecs, got {shown(self.groups)}")
        _make_int(self, "long_prefill_token_threshold", 0)
        _make_int(self, "num_drafts", 0)
        _make_int(self, "max_model_len", 0)
        if self.drafter not in get_args(Drafter):
            raise ConfigError(f"drafter must be one of {', '.join(get_args(Drafter))}, got {shown(self.drafter)}")
        if not isinstance(self.eagle_groups, tuple) or not all(
            is_single_int(index) and 0 <= index < len(self.groups) for index in self.eagle_groups
        ):
            raise ConfigError(
                f"eagle_groups must be a tuple of indices below {len(self.groups)}, got {shown(self.eagle_groups)}"
            )
        if self.keep_finished is not None:
            _make_int(self, "keep_finished", 0)
        if not 0 <= _as_float(self.watermark) < 1:
            raise ConfigError(f"watermark must be a fraction of the pool (0 <= x < 1), got {shown(self.watermark)}")
        self._check_block_sizes()

    @property
    def scheduler_block_size(self) -> int:
        """A hit ends at a multiple of this many tokens, where every group has a whole block."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def drops_hit_blocks(self) -> bool:
        """True if hits of edition vllm end one block early: the drafter needs the hidden states of its tokens."""
        return self.num_drafts > 0 and self.drafter in ("eagle", "mtp")

    def _check_block_sizes(self) -> None:
        sizes = [group.block_size for group in self.groups]
        if len(state_sizes := {group.block_size for group in self.groups if group.kind == "state"}) > 1:
            raise ConfigError(
                f"state groups must share one block_size, got {', '.join(map(str, sorted(state_sizes)))}: a chunk ends "
                "where all their states can be cached"
            )
        _make_int(self, "hash_block_size", 0)
        object.__setattr__(self, "hash_block_size", self.hash_block_size or min(sizes))
        for group, size in enumerate(sizes):
            if size % self.hash_block_size:
                raise ConfigError(
                    f"group {group}: block_size {size} must be a multiple of {self.hash_block_size}, a link of the "
                    f"hash chain (by default the smallest block): use hash_block_size={gcd(*sizes)}"
                )
        if self.retention_interval is not None:
            _make_int(self, "retention_interval", 0)
            if self.retention_interval % self.scheduler_block_size:
                raise ConfigError(f"retention_interval must be a multiple of {self.scheduler_block_size} tokens, or 0")


TUNING = ("watermark", "long_prefill_token_threshold", "retention_interval", "hash_block_size")
"""The settings of EngineConfig that change decisions and have a default: workloads, recordings and find() name them."""


class SamplingKeywords(TypedDict, total=False):
    """The fields of SamplingParams, as keywords of a call."""

    max_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None
    ignore_eos: bool
    beams: int
    skip_reading_prefix_cache: bool


CUTS = ("temperature", "top_k", "top_p")
"""The fields of SamplingParams that change how likely a token is to be drawn."""


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
    beams: int = 1
    """Number of beams of a beam search, which keeps the likeliest continuations; 1 for no beam search."""
    skip_reading_prefix_cache: bool = False
    """True: look up no prefix, neither here nor in the external tier. The blocks that the request computes are cached
    as usual. Source: vLLM's SamplingParams, which sets it where the log-probabilities of the prompt are asked for."""

    def __post_init__(self) -> None:
        _make_int(self, "max_tokens", 1)
        _make_int(self, "beams", 1)
        if not 0 <= _as_float(self.temperature) < math.inf:
            raise ConfigError(f"temperature must be a finite number >= 0 (0 is greedy), got {shown(self.temperature)}")
        if self.top_k is not None:
            _make_int(self, "top_k", 1)
        if self.top_p is not None and not 0 < _as_float(self.top_p) <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1, got {shown(self.top_p)}")
        if self.seed is not None:
            _make_int(self, "seed", 0)
        for name in ("ignore_eos", "skip_reading_prefix_cache"):
            object.__setattr__(self, name, checked_bool(name, getattr(self, name)))
        if self.beams > 1:
            self._refuse_sampling()

    @property
    def is_greedy(self) -> bool:
        """True if the likeliest token is taken, and nothing drawn."""
        return self.temperature == 0

    def kept(self, vocab_size: int) -> tuple[int, float]:
        """Return how many of the likeliest tokens top_k leaves, and which share top_p; vocab_size and 1.0: all."""
        return min(self.top_k or vocab_size, vocab_size), self.top_p or 1.0

    def _refuse_sampling(self) -> None:
        for name in (*CUTS, "seed"):
            if getattr(self, name) is not None and (name != "temperature" or not self.is_greedy):
                raise ConfigError(
                    f"beams={self.beams} searches for the likeliest text and samples nothing: omit {name}"
                )
