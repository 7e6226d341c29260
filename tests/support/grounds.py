"""What the engine's big tests run on: an edition, one group or several, and an external tier: none, prompt or late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, Literal

import pytest

from differential.nano_upstream_2025_07 import workload_2025_07
from driving import ALL_EDITIONS, TOKEN_BUDGET_EDITIONS, UNSOUND_EDITIONS, Drive, num_reserved_blocks, tokens_of
from fake_tier import FakeTier, Luck
from hybrid_workloads import random_hybrid_workload
from labengine.core.block import Key
from labengine.core.connector import BlockKV
from labengine.core.editions import EDITIONS
from labengine.core.parts import Parts
from labengine.record.hooks import Hooks
from seeds import selected
from workloads import Workload, random_workload, with_forks

Tier = Literal["none", "prompt", "late"]


@dataclass(frozen=True)
class Ground:
    """Makes a drive for a seed. A tier holds most of what an earlier run of the same workload had saved there."""

    edition: str
    is_hybrid: bool = False
    tier: Tier = "none"
    has_forks: bool = False

    def __str__(self) -> str:
        """A test's id."""
        words = (
            self.edition,
            "hybrid" if self.is_hybrid else "",
            self.tier if self.tier != "none" else "",
            "forks" if self.has_forks else "",
        )
        return "-".join(filter(None, words))

    def seeds(self, num_seeds: int) -> Sequence[int]:
        """Return seeds of workloads: those that cover what the ground's workloads meet, at most `num_seeds`.

        With EVERY_SEED all of them on the first grounds, half and a quarter where decisions are shared.
        """
        return selected(str(self), num_seeds // (1 if self in FIRST_GROUNDS else 4 if self.is_hybrid else 2))

    def busy_seeds(self, num_seeds: int) -> Sequence[int]:
        """Return at most as many; on hybrid groups only those of workloads that preempt a request."""
        if not self.is_hybrid:
            return self.seeds(num_seeds)
        preempting = [seed for seed in selected(str(self), 50) if _preempts(replace(self, tier="none"), seed)]
        return preempting[: num_seeds // 4]

    def workload(self, seed: int) -> Workload:
        """The workload of that number."""
        if self.edition in UNSOUND_EDITIONS:
            return workload_2025_07(seed)
        workload = random_hybrid_workload(seed) if self.is_hybrid else random_workload(seed)
        return with_forks(workload, seed, has_beams=self.edition == "labengine") if self.has_forks else workload

    def drive(
        self,
        seed: int,
        hooks: Hooks | None = None,
        luck: Luck | None = None,
        parts: Parts | None = None,
        keep_finished: int | None = None,
    ) -> Drive:
        """At the workload's beginning; with other parts, if any, than the edition's."""
        return Drive(
            self.workload(seed),
            parts or self.edition,
            hooks,
            self._tier(seed, luck),
            checks_reads=self.edition not in UNSOUND_EDITIONS,
            keep_finished=keep_finished,
        )

    def undisturbed(self, seed: int) -> dict[int, tuple[int, ...]]:
        """What each request holds at the end when nothing happens to it, and there is no tier."""
        return _undisturbed(replace(self, tier="none"), seed)

    def _tier(self, seed: int, luck: Luck | None) -> FakeTier | None:
        if self.tier == "none":
            return None
        tier = FakeTier(luck, seed, delay=None if self.tier == "prompt" else seed % 4)
        tier.blocks.update(_saved_before(self, seed))
        return tier


@cache
def _undisturbed(ground: Ground, seed: int) -> dict[int, tuple[int, ...]]:
    return tokens_of(ground.drive(seed).run().snapshot())


@cache
def _preempts(ground: Ground, seed: int) -> bool:
    drive = ground.drive(seed)
    while not drive.is_done:
        list(drive.arrive())
        if drive.engine.step().preempted:
            return True
    return False


@cache
def _saved_before(ground: Ground, seed: int) -> dict[Key, BlockKV | None]:
    tier, rng = FakeTier(), Random(seed)
    Drive(ground.workload(seed), ground.edition, connector=tier).run()
    return {key: kv for key, kv in tier.blocks.items() if rng.random() < 0.9}


FIRST_GROUNDS = tuple(Ground(edition) for edition in ("labengine", "nano-vllm", "nano-vllm+243"))
"""Between them, they take every decision there is about one group."""

PLAIN = tuple(Ground(edition) for edition in (*ALL_EDITIONS, *UNSOUND_EDITIONS))
HYBRID = tuple(Ground(edition, True) for edition in TOKEN_BUDGET_EDITIONS)
TIERED = tuple(Ground(e, True, tier) for e in TOKEN_BUDGET_EDITIONS for tier in ("prompt", "late"))
FORKS = (
    Ground("labengine", has_forks=True),
    Ground("labengine", True, has_forks=True),
    Ground("labengine", True, "late", has_forks=True),
    Ground("vllm", has_forks=True),
)
ALL_GROUNDS = (*PLAIN, *HYBRID, *TIERED, *FORKS)

PREEMPTING_GROUNDS = tuple(ground for ground in ALL_GROUNDS if not num_reserved_blocks(EDITIONS[ground.edition]))
"""Without the editions that keep blocks free beside a request: their workloads preempt none."""

GATE_GROUNDS = (
    Ground("labengine"),
    Ground("nano-vllm"),
    Ground("vllm", True, "prompt"),
    Ground("labengine", True, has_forks=True),
    Ground("labengine", True, "late", has_forks=True),
)
"""Each edition's scheduler, several groups, both kinds of tiers, and forks."""


def at_every_change(grounds: Iterable[Ground]) -> list[Any]:
    """Return grounds as parameters; those outside GATE_GROUNDS are for the sweeps."""
    return [pytest.param(ground, marks=[] if ground in GATE_GROUNDS else pytest.mark.sweep) for ground in grounds]
