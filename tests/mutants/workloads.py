"""Short seeded workloads on labs of all editions, and what can be observed of a lab while one is done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from labengine import GroupSpec, Lab, events
from labengine.config import ConfigError
from labengine.core.collaborator import Absent
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.engine.external.late import Delayed
from labengine.scripts import break_off_at
from mutants.live import abort_request, add_request, break_step_off, drain_and_reset, take_step

NUM_ACTS = 24
LAST_STEPS = 60
"""Steps after the acts, at most; a run that has not ended by then is observed as one."""

Act = Callable[[Any, Random], object]


def add_two_alike(lab: Any, rng: Random) -> None:
    """Two equal requests with equal continuations."""
    prompt, max_tokens = list(range(rng.choice((4, 8, 9, 13)))), rng.choice((1, 5, 9))
    for _ in range(2):
        _add(lab, prompt, max_tokens, seed=0)


def add_long(lab: Any, rng: Random) -> None:
    """A long request, several of which fill the pool."""
    _add(lab, [rng.randrange(3) for _ in range(rng.choice((3, 8, 11)))], rng.choice((14, 19)))


def break_step_off_inside(lab: Any, rng: Random) -> None:
    """A step ends at an event inside it, and is rolled back; one without the event ends as usual."""
    with suppress(KeyboardInterrupt):
        break_off_at(lab, rng.choice(("TokenSampled", "TokensComputed", "BlockFreed", "BlockCached", "BlockMerged")))


def _add(lab: Any, prompt: list[int], max_tokens: int, **more: Any) -> None:
    try:
        lab.add(token_ids=prompt, max_tokens=max_tokens, ignore_eos=True, **more)
    except ConfigError:  # it never fits this pool
        return


@dataclass(frozen=True)
class Workload:
    """Acts drawn from a seed, on a lab of an edition."""

    name: str
    edition: str
    seed: int
    acts: tuple[Act, ...]
    settings: dict[str, Any]
    tier: Callable[[Connector], Connector] | None = None
    """Makes the external tier of a store; None for a lab without one."""

    def lab(self, parts: Parts, make_store: Callable[..., Connector]) -> Lab:
        """Return a new lab, with default checks."""
        external = None if self.tier is None else self.tier(make_store(max_blocks=self.seed % 2 * 7 or None))
        return Lab("simulated", edition=self.edition, parts=parts, external=external, **self.settings)

    def each_act(self, lab: Lab) -> Iterator[Callable[[], object]]:
        """Yield the acts, each to be done before the next; then steps until nothing waits or runs."""
        rng = Random(self.seed)
        for _ in range(NUM_ACTS):
            act = rng.choice(self.acts)
            yield lambda act=act: act(lab, rng)
        for _ in range(LAST_STEPS):
            if lab.session.stepper.engine.scheduler.is_idle:
                return
            yield lab.step


_ONE, _WINDOW = [GroupSpec(4)], [GroupSpec(4, "sliding_window", 8)]
_HYBRID = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)]
_SIZES = [GroupSpec(8), GroupSpec(4, "sliding_window", 8)]
_BUSY = (add_request, add_request, take_step, take_step, take_step)


@dataclass(frozen=True)
class _Theme:
    name: str
    acts: tuple[Act, ...]
    num_blocks: int
    groups: list[GroupSpec] = field(default_factory=lambda: _ONE)
    tier: Callable[[Connector], Connector] | None = None
    more: dict[str, Any] = field(default_factory=dict)


_EVERYWHERE = (
    _Theme("duplicates", (add_two_alike, take_step, take_step), 30),
    _Theme("hits and eviction", (*_BUSY, drain_and_reset), 12),
    _Theme("preemption", (add_long, add_long, take_step, take_step, take_step), 11),
    _Theme("chunks", (*_BUSY, add_two_alike), 40, more={"max_num_batched_tokens": 13, "keep_finished": 3}),
    _Theme("aborts", (*_BUSY, add_two_alike, abort_request), 14),
    _Theme("steps broken off", (*_BUSY, add_two_alike, add_long, break_step_off, break_step_off_inside), 13),
)
_THRESHOLD = {"long_prefill_token_threshold": 6, "watermark": 0.1}
_WITH_WINDOWS = (
    _Theme("short chunks and a watermark", (*_BUSY, add_long), 16, more=_THRESHOLD),
    _Theme("a window", (*_BUSY, abort_request, add_long), 9, _WINDOW),
    _Theme("full and window", (*_BUSY, add_two_alike, add_long), 22, _HYBRID),
    _Theme("two block sizes", (*_BUSY, add_long), 22, _SIZES),
    _Theme("two full groups and a window", (*_BUSY, add_two_alike, drain_and_reset), 44, [_ONE[0], *_HYBRID]),
    _Theme("retention", (*_BUSY, drain_and_reset), 24, _HYBRID, more={"retention_interval": 0}),
    _Theme("a tier", (*_BUSY, add_two_alike, drain_and_reset), 11, tier=lambda store: store),
    _Theme("a tier and a window", (*_BUSY, drain_and_reset), 20, _HYBRID, tier=lambda store: store),
    _Theme("a late tier", (*_BUSY, abort_request, drain_and_reset), 12, tier=Delayed),
    _Theme(
        "a late tier, preemption",
        (*_BUSY, add_long, add_long, break_step_off_inside, drain_and_reset),
        11,
        tier=Delayed,
    ),
)
_HAVE_WINDOWS = ("labengine", "vllm")
_HAVE_TREES = tuple(name for name, parts in EDITIONS.items() if parts.prefix_tree is not Absent)
_COUNT_TOKENS = ("mini-sglang", "mini-sglang+142")
"""These count prompts in tokens but take whole blocks, so a step may fail for want of blocks of several tokens."""


def workloads() -> list[Workload]:
    """Return the workloads, each with its own seed."""
    pairs = [(theme, edition) for theme in _EVERYWHERE for edition in EDITIONS if edition not in _HAVE_TREES]
    pairs += [(theme, edition) for theme in _WITH_WINDOWS for edition in _HAVE_WINDOWS]
    pairs += [(theme, edition) for theme in _EVERYWHERE for edition in _HAVE_TREES]  # last: the others keep their seeds
    return [_workload(theme, edition, seed) for seed, (theme, edition) in enumerate(pairs)]


def _workload(theme: _Theme, edition: str, seed: int) -> Workload:
    num_blocks, groups = theme.num_blocks, theme.groups
    if edition in _COUNT_TOKENS:
        num_blocks, groups = num_blocks * groups[0].block_size, [GroupSpec(1)]
    settings = {"num_blocks": num_blocks, "groups": groups, "max_num_batched_tokens": 32, **theme.more}
    return Workload(theme.name, edition, seed, theme.acts, settings, theme.tier)


# -- observing ---------------------------------------------------------------------------------------------------------

_FACETS = {
    "hits": (events.PrefixHit, events.ExternalHit),
    "work": (events.RequestScheduled, events.RequestPreempted, events.RequestFinished, events.SlotsWritten),
    "transfers": (events.BlocksLoaded, events.BlocksSaved, events.LoadFailed),
    "events": (events.Event,),
}


class Observed:
    """What happened in a lab, as checksums: tokens, tables, cache and queue after each act, and its events."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._sums = {name: hashlib.sha256() for name in ("tokens", "tables", "cache", "queue", *_FACETS)}
        lab.hooks.subscribe(self._note)

    def _note(self, event: events.Event) -> None:
        if isinstance(event, events.ViolationFound):  # its message names the overrides
            return
        for name, kinds in _FACETS.items():
            if isinstance(event, kinds):
                self._sums[name].update(repr(event).encode())

    def note_state(self) -> None:
        """Add the present state."""
        state = self._lab.snapshot()
        for number, request in state.requests.items():
            self._add("tokens", number, request.status, request.token_ids)
            self._add("tables", number, request.block_tables, request.num_computed_tokens)
        self._add("cache", state.prefix_map, [block.grouped_hashes for block in state.blocks])
        self._add("queue", state.free_queue)

    def _add(self, facet: str, *values: object) -> None:
        self._sums[facet].update(repr(values).encode())

    @property
    def sums(self) -> dict[str, str]:
        """The checksums, by facet."""
        return {name: one.hexdigest()[:16] for name, one in self._sums.items()}
