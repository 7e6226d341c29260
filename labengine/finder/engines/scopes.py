"""The scopes of a search on another engine: those of the random search that the engine supports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from labengine.config import TUNING, EngineConfig, GroupSpec
from labengine.driven.drivable import drivable
from labengine.finder.operations import Abort, Add, Operation, Reset, TakeStep
from labengine.finder.scopes import OTHER, Scope, config, large_scopes

Transfers = tuple[int, int, int, int]


@dataclass(frozen=True)
class EngineScope(Scope):
    """A scope for another engine. engine: its name. edition: the one to compare it with, by default its own.

    new_token_ratio: SGLang's when it is idle. is_async: each step is scheduled before the previous step's tokens are
    known. transfers: of a connector: steps of a load (0: at once), steps of sending (0: not sent), one of how many
    loads fails (0: none), one of how many requests is told to ask again (0: none).
    """

    engine: str = "vllm"
    edition: str = ""
    new_token_ratio: float = 0.7
    is_async: bool = False
    transfers: Transfers | None = None

    @cached_property
    def adds(self) -> tuple[Add, ...]:
        """Every request that can be added."""
        return tuple(add for add in super().adds if self.can_hold(add))

    def can_hold(self, add: Add) -> bool:
        """Return whether an engine with this pool would take requests of this length.

        A pool that vLLM refuses at its start (_check_enough_kv_cache_memory) may leave a request waiting forever.
        """
        longest, size = len(add.token_ids) + add.max_tokens, self.config.scheduler_block_size
        if self.engine == "sglang":  # would lower max_tokens to keep a page and a slot free
            longest += -len(add.token_ids) % size + size + 1
        if self.engine != "vllm":
            return longest <= self.config.num_blocks * size
        in_flight = self.config.max_num_batched_tokens * (2 if self.is_async else 1)
        needed = 0
        for group in self.config.groups:
            if group.window is None:
                needed += ceil_div(longest, group.block_size)
            else:
                needed += ceil_div(min(group.window - 1 + in_flight, longest), group.block_size) + 1
        return needed < self.config.num_blocks  # one is the null block

    @property
    def settings(self) -> dict[str, Any]:
        """The driven engine's settings, in JSON types."""
        config = self.config
        same = "num_blocks", "max_num_seqs", "max_num_batched_tokens", *TUNING
        return {
            **{name: getattr(config, name) for name in same},
            "groups": [[group.block_size, group.window] for group in config.groups],
            "is_async": self.is_async,
            "transfers": None if self.transfers is None else list(self.transfers),
            "caches_all": self.engine == "nano-vllm",
            **({"new_token_ratio": self.new_token_ratio} if self.engine == "sglang" else {}),
            **({"policy": "priority"} if self.priorities[1:] else {}),
        }


def nano_scopes() -> tuple[EngineScope, ...]:
    """Return the scopes for nano-vLLM: one group, no salts."""
    plain = [scope for scope in large_scopes() if scope.tier is None and not scope.ends and not scope.config.groups[1:]]
    return tuple(_engine_scope(scope, engine="nano-vllm") for scope in plain if scope.salts == (None,))


def file_scopes(engine: str) -> tuple[EngineScope, ...]:
    """Return the scopes for a driver file: one group, and salts and priorities if its engine supports them."""
    known = drivable(engine).options
    plain = [one for one in large_scopes(((),)) if one.tier is None and not one.ends and not one.config.groups[1:]]
    plain += [
        Scope("prompts that fill the pool", config(4), only=FILLING),
        Scope("priorities in a tight pool", config(4, budget=4), priorities=(0, 1)),
    ]
    with_salts = [one for one in plain if "salt" in known or one.salts == (None,)]
    apt = [one for one in with_salts if "priority" in known or one.priorities == (0,)]
    return tuple(_engine_scope(one, engine=engine) for one in apt)


FILLING = (Add(tuple(range(7))), Add(tuple(range(OTHER, OTHER + 7))), Add((OTHER, OTHER + 1), 3))
"""Requests for a pool of 4 blocks of 2, which the first two fill by their prompts."""


def tree_scopes(engine: str) -> tuple[EngineScope, ...]:
    """Return the scopes for an engine with a prefix tree, with pages of one token and of several."""
    long: dict[str, Any] = {"num_prompt_blocks": 4, "max_tokens": (1, 2, 5)}
    plain = (
        Scope("pages of a token", config(24, size=1), max_requests=4, **long),
        Scope("pages of a token, a tight pool", config(11, size=1), **long),
        Scope("pages of a token, chunks", config(18, size=1, budget=3), **long),
        Scope("pages of two", config(12, max_num_seqs=6), max_requests=5, max_tokens=(1, 3, 6)),
        Scope("pages of two, a tight pool", config(7), max_tokens=(1, 2, 4)),
        Scope("pages of two, chunks", config(9, budget=4), num_prompt_blocks=3, max_tokens=(1, 3)),
        Scope("pages of four", config(8, size=4, budget=8), num_prompt_blocks=3, max_tokens=(1, 2, 6)),
    )
    return tuple(_engine_scope(scope, engine=engine) for scope in plain)


def sglang_scopes() -> tuple[EngineScope, ...]:
    """Return the scopes for SGLang: those of a tree, and such in which it reserves next to nothing, and retracts."""
    plain = tree_scopes("sglang")
    reckless = [replace(one, max_tokens=(4, 9), new_token_ratio=0.01) for one in (*plain[:3], plain[3], plain[6])]
    return (*plain, *(replace(one, name=f"{one.name}, nothing reserved") for one in reckless))


def vllm_scopes() -> tuple[EngineScope, ...]:
    """Return the scopes for vLLM's schedulers, each synchronous and asynchronous."""
    plain = [scope for scope in large_scopes() if scope.tier is None and not scope.ends]
    plain += [
        _changed(plain[1], "a watermark", watermark=0.2),
        _changed(plain[2], "long prompts in pieces", long_prefill_token_threshold=3),
        _changed(plain[5], "a window, sparsely kept", retention_interval=0),
        _changed(plain[5], "a window, kept now and then", retention_interval=4),
        _of_groups("two windows", plain[5], GroupSpec(2), _window(3), _window(6)),
        _of_groups("windows alone", plain[5], _window(3), _window(5)),
        _of_groups("unlike blocks, kept now and then", plain[8], *plain[8].config.groups, retention_interval=4),
        replace(_changed(plain[0], "long prompts", num_blocks=7), num_prompt_blocks=3, max_tokens=(1, 2)),
    ]
    tiers = [(plain[number], transfers) for number, transfers in TRANSFERS]
    every = [*((scope, None) for scope in plain), *tiers]
    return tuple(_vllm_scope(scope, transfers, is_async) for scope, transfers in every for is_async in (False, True))


TRANSFERS = (
    (0, (0, 0, 0, 0)),
    (0, (1, 0, 0, 0)),
    (0, (2, 1, 0, 0)),
    (0, (1, 0, 2, 0)),
    (1, (1, 0, 0, 0)),
    (3, (1, 0, 0, 0)),
    (3, (2, 0, 0, 0)),
    (5, (0, 0, 0, 0)),
    (5, (1, 0, 0, 0)),
    (5, (1, 1, 0, 0)),
    (5, (1, 0, 2, 0)),
    (8, (1, 0, 0, 0)),
    (-1, (1, 0, 0, 2)),
    (-1, (2, 0, 0, 3)),
    (5, (2, 0, 0, 3)),
)
"""Scopes with a connector: the index of a scope without one, and the transfers."""


def _engine_scope(scope: Scope, **more: Any) -> EngineScope:
    """Return the scope for another engine, whose steps do not break off. more: fields of such scopes."""
    kept = {one.name: getattr(scope, one.name) for one in fields(Scope)}
    return EngineScope(**{**kept, "broken": (), "branches": False, **more})


def _vllm_scope(scope: Scope, transfers: Transfers | None, is_async: bool) -> EngineScope:
    load, send, fails, asks = transfers or (0, 0, 0, 0)
    said = [f"loads of {load} steps" if load else "loads at once"] if transfers else []
    said += [f"sends of {send}"] if send else []
    said += [f"one of {fails} fails"] if fails else []
    said += [f"one of {asks} asks again"] if asks else []
    name = ", ".join([scope.name, *said, "asynchronous" if is_async else "synchronous"])
    settable = _settable(scope.config)
    return _engine_scope(scope, name=name, config=settable, keys=((),), is_async=is_async, transfers=transfers)


def can_hold_all(scope: EngineScope, workload: Sequence[Operation]) -> bool:
    """Return whether the pool can hold each request of a workload by itself."""
    return all(scope.can_hold(operation) for operation in workload if isinstance(operation, Add))


def ceil_div(number: int, size: int) -> int:
    """Return number / size, rounded up."""
    return -(-number // size)


def _settable(config: EngineConfig) -> EngineConfig:
    """Return settings that vLLM accepts, with a token per step for every running request."""
    return replace(config, max_num_seqs=min(config.max_num_seqs, config.max_num_batched_tokens))


def _changed(scope: Scope, name: str, **settings: Any) -> Scope:
    return replace(scope, name=name, config=replace(scope.config, **settings))


def _window(window: int) -> GroupSpec:
    return GroupSpec(2, "sliding_window", window)


def _of_groups(name: str, scope: Scope, *groups: GroupSpec, **settings: Any) -> Scope:
    config = scope.config
    limits: dict[str, Any] = {
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
    }
    return replace(scope, name=name, config=EngineConfig(2 * config.num_blocks, groups, **limits, **settings))


WORDS = {Add: "add", TakeStep: "step", Abort: "abort", Reset: "reset"}
"""Names of operations in driver.py."""


def wire_operation(operation: Operation) -> list[Any]:
    """Return an operation in JSON types. Raises TypeError for one that only labengine can do."""
    match operation:
        case Add(token_ids, max_tokens, salt, priority=priority):
            return ["add", list(token_ids), max_tokens, salt, *([{"priority": priority}] if priority else [])]
        case TakeStep():
            return ["step"]
        case Abort(request_id):
            return ["abort", request_id]
        case Reset():
            return ["reset"]
        case _:
            raise TypeError(f"{operation} works only with labengine's engine")


def wire_workload(scope: EngineScope, workload: Sequence[Operation]) -> dict[str, Any]:
    """Return a workload in JSON types."""
    return {
        "settings": scope.settings,
        "operations": [
            wire_operation(one) for one in workload if WORDS.get(type(one)) in drivable(scope.engine).operations
        ],
    }
