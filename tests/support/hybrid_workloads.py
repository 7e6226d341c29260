"""Random workloads on hybrid groups: full attention and one to three windows, blocks of different sizes, one pool.

As in workloads.py, a seed names a workload; what a set of them must meet is counted in test_hybrid_encounters.py.
"""

from __future__ import annotations

from math import lcm
from random import Random
from typing import Any

from labengine.config import GroupSpec
from labengine.core.editions import EDITIONS
from labengine.core.journal import Journal
from labengine.record.hooks import Hooks
from workloads import Arrival, Workload, colliding_prompts


def random_hybrid_workload(seed: int) -> Workload:
    """One workload in which every request fits the pool alone, and hardly two of them together."""
    rng = Random(seed)
    link = rng.choice((1, 2, 2, 3))
    groups = _groups(rng, link)
    aligned = lcm(*(group.block_size for group in groups))
    prompts = colliding_prompts(rng, aligned, rng.randint(3, 7))
    last_arrival = rng.choice((0, 0, 6, 20))
    salts = rng.choice(((None,), (None,), (None,), (None, None, "a")))
    requests = tuple(
        Arrival(rng.randint(0, last_arrival), prompt, rng.randint(1, 4 * aligned), rng.choice(salts))
        for prompt in prompts
    )
    budget = rng.choice((aligned, rng.randint(aligned, 3 * aligned), 12 * aligned))
    workload = Workload(
        num_blocks=1,
        block_size=groups[0].block_size,
        max_num_seqs=rng.choice((1, 2, 3, 16, 16)),
        max_num_batched_tokens=budget,
        requests=requests,
        alphabet=rng.choice((1, 2, 3, 50021)),
        streams=rng.choice((1, 1, 1, 2, len(requests))),
        groups=groups,
        settings=_settings(rng, link, aligned),
    )
    return _with_pool(workload, rng)


def _groups(rng: Random, link: int) -> tuple[GroupSpec, ...]:
    """In any order; now and then only windows, or two groups of full attention."""
    sizes = rng.choice(((1,), (2,), (1, 2), (1, 2, 4), (2, 4), (2, 3)))
    groups = [_window(rng, link * rng.choice(sizes)) for _ in range(rng.randint(1, 3))]
    groups += [GroupSpec(link * rng.choice(sizes)) for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 2)))]
    rng.shuffle(groups)
    return tuple(groups)


def _window(rng: Random, size: int) -> GroupSpec:
    return GroupSpec(size, "sliding_window", rng.choice((1, 2, size, size + 1, 2 * size, rng.randint(1, 4 * size))))


def _settings(rng: Random, link: int, aligned: int) -> dict[str, Any]:
    return {
        "hash_block_size": link,
        "watermark": rng.choice((0.0, 0.0, 0.0, 0.1, 0.3)),
        "long_prefill_token_threshold": rng.choice((0, 0, 0, aligned, rng.randint(1, 2 * aligned))),
        "retention_interval": rng.choice((None, None, 0, aligned, 2 * aligned)),
    }


def _with_pool(workload: Workload, rng: Random) -> Workload:
    """A pool that holds the largest request, and not much more."""
    plain = workload.to_dict()
    manager = EDITIONS["labengine"].assemble(workload.config(), Hooks(), Journal()).manager
    largest = max(manager.num_blocks_needed(len(r.prompt) + r.max_tokens - 1) for r in workload.requests)
    return Workload.from_dict(plain | {"num_blocks": largest + rng.choice((0, 0, 0, 1, 2, largest))})
