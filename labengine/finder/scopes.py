"""Scopes: small bounds within which every workload is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from labengine.config import ConfigError, EngineConfig, GroupSpec
from labengine.core.block import Key
from labengine.core.connector import BlockKV, Connector
from labengine.core.editions import VLLM
from labengine.core.proposer import Proposer
from labengine.core.request import ExtraKeys
from labengine.engine.engine import Engine
from labengine.engine.external import Delayed, HostStore
from labengine.engine.external.store import StoreError
from labengine.engine.simulated import SimulatedRunner, default_next_token
from labengine.finder.operations import (
    Abort,
    Add,
    Branch,
    BreakOff,
    BreakOffAt,
    BrokenPhase,
    Fork,
    Operation,
    Reset,
    Rewind,
    TakeStep,
)
from labengine.record.hooks import Hooks

PICTURES: tuple[ExtraKeys, ...] = tuple((("mm_hash", f"{0:08}{number}{0:08}"),) for number in (1, 2))
"""Two pictures whose names differ only in the middle: a hash of the first or last characters confuses them."""

KEYS: tuple[ExtraKeys, ...] = ((), (("lora", "s"),), (("lora", "t"),), (("mm_hash", "s"),), *PICTURES)
"""Extra keys of a search: none, two adapters, and pictures; named like a salt, so that only the kind differs."""

TIER_BLOCKS = 6
"""Most blocks in a tier."""

OTHER = 60_000
"""Tokens from this id on never occur in sampled text."""


class FullStore(HostStore):
    """A tier filled by another engine: it has every block."""

    def has(self, group: int, block_hash: bytes) -> bool:
        """Return True."""
        return True

    def num_kept(self) -> int | None:
        """Return None, because no event records what the other engine has saved."""
        return None

    def _get(self, key: Key) -> BlockKV | None:
        return None


class FailingStore(HostStore):
    """A tier that loses every second block that it should load."""

    num_loaded = 0

    def _get(self, key: Key) -> BlockKV | None:
        self.num_loaded += 1
        if self.num_loaded % 2 == 0:
            raise StoreError("it no longer exists")
        return super()._get(key)


@dataclass(frozen=True)
class Tier:
    """A description of an external tier. store: its class; loads arrive steps_late steps late, or at once."""

    store: type[HostStore] = HostStore
    steps_late: int = 0

    def make(self) -> Connector:
        """Return the connector, empty."""
        store = self.store(max_blocks=TIER_BLOCKS)
        return Delayed(store, self.steps_late) if self.steps_late else store

    @property
    def code(self) -> str:
        """Python that makes the connector, with names from labengine.finder.scopes."""
        store = f"{self.store.__name__}(max_blocks={TIER_BLOCKS})"
        return f"Delayed({store}, {self.steps_late})" if self.steps_late else store


@dataclass(frozen=True)
class Scope:
    """Sizes of a pool and a step, and the operations that a workload may contain."""

    name: str
    config: EngineConfig
    max_requests: int = 3
    max_operations: int = 8
    num_prompt_blocks: int = 2
    """Number of full blocks of the longest prompt; one more token may follow."""
    max_tokens: tuple[int, ...] = (1, 3)
    salts: tuple[str | None, ...] = (None,)
    keys: tuple[ExtraKeys, ...] = ((),)
    """Extra keys that a request may have."""
    priorities: tuple[int, ...] = (0,)
    broken: tuple[BrokenPhase, ...] = ("forward", "sample")
    ends: tuple[BreakOffAt, ...] = ()
    """Steps that end at an event inside them."""
    repeats: bool = False
    """True if forks and rewinds may occur."""
    branches: bool = False
    """True if requests may branch off from others."""
    tier: Tier | None = None
    proposer: Proposer | None = None
    """The proposer of drafts, whose number is in config, too."""
    only: tuple[Add, ...] = ()
    """The requests that can be added, instead of all within the bounds."""

    @cached_property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """The prompts, shortest first: blocks of two contents, and up to one token less than a block.

        The first content continues like sampled text, so that a prompt can repeat an answer's content.
        """
        size = self.config.scheduler_block_size
        found = {prompt[:end] for prompt in _contents(self.num_prompt_blocks + 1, size) for end in self._ends(size)}
        return tuple(sorted(found - {()}, key=lambda prompt: (len(prompt), prompt)))

    def _ends(self, size: int) -> list[int]:
        full = [number * size for number in range(self.num_prompt_blocks + 1)]
        return sorted({end for one in full for end in (one, one + 1, one + size - 1)} - {0})

    @cached_property
    def adds(self) -> tuple[Add, ...]:
        """Every request that can be added."""
        if self.only:
            return self.only
        every = tuple(
            Add(prompt, max_tokens, salt, keys, priority)
            for prompt in self.prompts
            for max_tokens in self.max_tokens
            for salt in self.salts
            for keys in self.keys
            for priority in self.priorities
        )
        engine = Engine(self.config, SimulatedRunner(), VLLM, Hooks())  # the edition that can hold the fewest requests
        return tuple(add for add in every if _fits(add, engine))

    def operations(self, num_added: int, num_steps: int) -> Iterator[Operation]:
        """Yield the operations that may follow num_added requests and num_steps steps, the most telling first."""
        yield TakeStep()
        if num_added < self.max_requests:
            yield from self.adds
            if self.branches:
                yield from map(Branch, range(num_added))
        for request_id in range(num_added):
            yield Abort(request_id)
        for phase in self.broken:
            yield BreakOff(phase)
        yield Reset()
        yield from self.ends
        if self.repeats:
            yield Fork()
            yield from map(Rewind, range(num_steps))


def _fits(add: Add, engine: Engine) -> bool:
    """Return whether an empty pool can hold the request; an edition without beams counts one beam."""
    try:
        replace(add, n=1, beams=1).do(engine)
    except ConfigError:
        return False
    return True


def _contents(num_blocks: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yield every sequence of num_blocks blocks of the two contents."""
    for choice in range(2**num_blocks):
        tokens: list[int] = []
        for index in range(num_blocks):
            is_other = choice >> index & 1
            first = index * size
            tokens += (
                [OTHER + offset for offset in range(size)]
                if is_other
                else [default_next_token(0, position) for position in range(first, first + size)]
            )
        yield tuple(tokens)


# -- the scopes of a search --------------------------------------------------------------------------------------------


TO_LOAD = tuple(Add(tuple(range(first, first + length))) for first in (OTHER, 2 * OTHER) for length in (3, 5))
"""Prompts of two contents, each also half as long: with blocks of two, one or two blocks come from a tier."""
INTERRUPTS = (
    BreakOffAt("TokenSampled"),
    BreakOffAt("TokenSampled", 2),
    BreakOffAt("TokensComputed"),
    BreakOffAt("RequestFinished"),
    BreakOffAt("RequestFinished", 2),
    BreakOffAt("BlockAllocated"),
    BreakOffAt("BlockCached"),
    BreakOffAt("BlockMerged"),
    BreakOffAt("RequestPreempted"),
)
"""Steps that an interrupt ends at an event inside them."""
RAISES = tuple(replace(one, reason="RuntimeError") for one in INTERRUPTS)
"""Steps that end at an event because a part raises."""
ENDS = (*INTERRUPTS, *RAISES)
LATE_AND_FULL = Tier(FullStore, 1)


def of_different_tenants(keys: tuple[ExtraKeys, ...]) -> tuple[Add, ...]:
    """Return requests of one content, shorter and longer than a block of two, with each of the keys and with a salt.

    A lost key shows in two of them, because the longer one continues like the shorter one's answer.
    """
    content = tuple(default_next_token(0, position) for position in range(3))
    tenants = [*((None, key) for key in keys), ("s", ())]
    return tuple(
        Add(content[:length], max_tokens, salt, key) for length, max_tokens in ((1, 2), (3, 1)) for salt, key in tenants
    )


def small_scopes(keys: tuple[ExtraKeys, ...] = KEYS, **settings: Any) -> tuple[Scope, ...]:
    """Return scopes small enough for a complete search, the smallest first.

    keys: extra keys that requests may have; settings: of EngineConfig, for all scopes.
    """
    tenants = of_different_tenants(keys)
    few: dict[str, Any] = {"max_requests": 2, "num_prompt_blocks": 1, "broken": ()}
    return (
        Scope("two requests", config(3, **settings), max_operations=10, max_tokens=(1, 2), **few),
        Scope(
            "steps that end inside",
            config(3, **settings),
            **few,
            max_tokens=(2,),
            max_operations=4,
            ends=(*INTERRUPTS, RAISES[0]),
        ),
        Scope("different tenants", config(4, **settings), **few, only=tenants, max_operations=5),
        Scope("two requests in chunks", config(3, budget=2, **settings), max_operations=12, max_tokens=(1, 2), **few),
        Scope("prompts from a late tier", config(4, **settings), **few, only=TO_LOAD, tier=LATE_AND_FULL),
        Scope("a window", config(6, window=3, **settings), max_tokens=(1, 3), **few),
        Scope("broken steps", config(3, **settings), max_requests=2, num_prompt_blocks=1, max_tokens=(2,)),
        Scope("branches", config(5, **settings), **few, max_tokens=(3,), max_operations=7, branches=True),
        Scope("forks and rewinds", config(3, **settings), **few, max_operations=6, repeats=True),
        Scope("three requests", config(4, **settings), num_prompt_blocks=1, max_tokens=(1, 2), broken=()),
    )


def large_scopes(keys: tuple[ExtraKeys, ...] = KEYS, **settings: Any) -> tuple[Scope, ...]:
    """Return the scopes of a random search: groups, chunks, salts and tiers in different combinations.

    keys: extra keys for requests in scopes with salts.
    """
    long: dict[str, Any] = {"num_prompt_blocks": 3, "max_tokens": (1, 2, 4)}
    return (
        Scope("a small pool", config(5, **settings)),
        Scope("chunks", config(7, budget=3, **settings)),
        Scope("blocks of four", config(8, size=4, budget=8, **settings), num_prompt_blocks=3, max_tokens=(1, 2, 6)),
        Scope("a tight pool", config(4, budget=4, **settings)),
        Scope("salts", config(6, budget=8, **settings), salts=(None, "s"), keys=keys),
        Scope("a window", config(10, window=3, budget=8, **settings), **long),
        Scope("a window in chunks", config(9, window=4, budget=3, **settings), **long),
        Scope("a window of a block and a half", config(10, size=4, window=6, budget=8, **settings), **long),
        Scope("unlike blocks", config(14, size=4, window=4, window_size=2, **settings), **long),
        Scope("a tier", config(5, **settings), tier=Tier()),
        Scope("a late tier", config(5, **settings), tier=Tier(steps_late=1)),
        Scope("a later tier", config(5, **settings), tier=Tier(steps_late=2)),
        Scope("a full tier", config(6, **settings), tier=Tier(FullStore)),
        Scope("a window and a full tier", config(10, window=5, **settings), **long, tier=Tier(FullStore)),
        Scope("a window and a late tier", config(10, window=3, **settings), **long, tier=Tier(steps_late=1)),
        Scope("a late full tier", config(6, **settings), tier=Tier(FullStore, 1)),
        Scope("a tight pool and a late full tier", config(4, **settings), tier=Tier(FullStore, 1)),
        Scope("long prompts and a late full tier", config(9, **settings), **long, tier=Tier(FullStore, 1)),
        Scope("a tier that fails", config(5, **settings), tier=Tier(FailingStore)),
        Scope("a late tier that fails", config(6, **settings), **long, tier=Tier(FailingStore, 1)),
        Scope("a tight pool and a window", config(8, window=3, budget=2, **settings), **long),
        Scope("branches in a tight pool", config(6, budget=4, **settings), branches=True),
        Scope("branches and a window", config(12, window=3, budget=8, **settings), **long, branches=True),
        Scope("a small pool, steps that end inside", config(5, **settings), ends=ENDS, repeats=True),
        Scope("a window, steps that end inside", config(10, window=3, **settings), **long, ends=ENDS, repeats=True),
        Scope("a late tier, steps that end inside", config(5, **settings), tier=Tier(steps_late=1), ends=ENDS),
    )


def config(
    num_blocks: int,
    *,
    size: int = 2,
    window: int | None = None,
    window_size: int | None = None,
    state: int | None = None,
    budget: int = 16,
    **settings: Any,
) -> EngineConfig:
    """Return an engine's configuration: full attention, optionally with a window or states. state: their block size."""
    groups: tuple[GroupSpec, ...] = (GroupSpec(size),)
    if state is not None:
        groups += (GroupSpec(state, "state"),)
    if window is not None:
        groups += (GroupSpec(window_size or size, "sliding_window", window),)
    return EngineConfig(num_blocks, groups, **{"max_num_seqs": 3, "max_num_batched_tokens": budget, **settings})
