"""Chooses the seeds of tests/support/seeds.py, and prints the table: `python tests/support/choose_seeds.py`."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[i]) for i in range(3)]

from driving import recorded
from grounds import ALL_GROUNDS, Ground
from labengine.events import Event, ExternalHit, PrefixHit
from labengine.record.hooks import Hooks

NUM_SEEDS = 60


@cache
def met(ground: Ground, seed: int) -> set[Hashable]:
    """Return what a workload meets: its events by kind and words, which kind follows which, and hits in two places."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    for _ in ground.drive(seed, hooks).operations(Random(seed)):
        pass
    follows = {(type(one), type(next_one)) for one, next_one in pairwise(events)}
    return {_kind(event) for event in events} | follows | _hits_in_two_places(events)


def _hits_in_two_places(events: Sequence[Event]) -> set[Hashable]:
    """Return a name if a request found tokens in the tier behind those that it found in the pool."""
    num_local: dict[int, int] = {}
    for event in events:
        if isinstance(event, PrefixHit):
            num_local[event.request_id] = event.num_tokens
        elif isinstance(event, ExternalHit) and num_local.get(event.request_id):
            return {"external hit behind a local one"}
    return set()


def covering(ground: Ground) -> tuple[int, ...]:
    """Return few seeds that meet all that the first NUM_SEEDS meet, greedily: the one that adds most is next."""
    seeds: tuple[int, ...] = ()
    while missing := uncovered(ground, seeds):
        seeds += (max(range(NUM_SEEDS), key=lambda seed: len(met(ground, seed) & missing)),)
    return seeds


def uncovered(ground: Ground, seeds: Sequence[int]) -> set[Hashable]:
    """Return what the first NUM_SEEDS meet, and these do not."""
    covered = set[Hashable]().union(*(met(ground, seed) for seed in seeds))
    return set[Hashable]().union(*(met(ground, seed) for seed in range(NUM_SEEDS))) - covered


def _kind(event: Event) -> tuple[Hashable, ...]:
    values = (getattr(event, name) for name in _names(type(event)))
    return (type(event).__name__, *(value for value in values if isinstance(value, str | bool | None)))


@cache
def _names(kind: type[Event]) -> Sequence[str]:
    return [field.name for field in fields(kind)]


if __name__ == "__main__":
    for ground in ALL_GROUNDS:
        print(f'    "{ground}": {covering(ground)},', flush=True)
