"""Random workloads for the simulated model: small pools under pressure, prompts that collide in content.

Everything comes from one random.Random, so a seed names a workload. What a set of them must meet (preemption, merges,
hits on free blocks ...) is counted in test_differential_nano.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from labengine.config import EngineConfig, GroupSpec


@dataclass(frozen=True)
class Arrival:
    """A request that joins before the step of its `step`."""

    step: int
    prompt: tuple[int, ...]
    max_tokens: int
    salt: str | None = None
    n: int | None = None
    """Answers, where there are several."""
    is_search: bool = False
    """True: the answers are the beams of a search."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; no salt, no key."""
        plain = asdict(self) | {"prompt": list(self.prompt)}
        return {key: value for key, value in plain.items() if value is not None and value is not False}


@dataclass(frozen=True)
class Workload:
    """A pool, the limits of a step, the requests, and how they go on: in `streams` ways, over `alphabet` tokens.

    num_blocks are those that requests can hold; an edition that sets a null block aside needs one more.
    """

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    requests: tuple[Arrival, ...]
    alphabet: int
    streams: int
    groups: tuple[GroupSpec, ...] = ()
    """One group of full attention with blocks of block_size, when there are none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of EngineConfig."""

    def next_token(self, request_id: int, position: int) -> int:
        """Requests of one stream continue alike, so that blocks completed in decode collide too."""
        return (request_id % self.streams * 7919 + position * 104729) % self.alphabet

    def config(self, num_null_blocks: int = 0) -> EngineConfig:
        """What an engine needs to run it."""
        return EngineConfig(
            num_blocks=self.num_blocks + num_null_blocks,
            groups=self.groups or (GroupSpec(self.block_size),),
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            **self.settings,
        )

    def for_simulate(self) -> dict[str, Any]:
        """The workload in simulate's own keys."""
        plain = self.to_dict() | dict(self.settings)
        return {key: value for key, value in plain.items() if key not in ("alphabet", "streams", "settings")}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; what is as usual is left out."""
        plain = asdict(self) | {"requests": [request.to_dict() for request in self.requests]}
        return {key: value for key, value in plain.items() if value or key not in ("groups", "settings")}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Workload:
        """The inverse of to_dict."""
        requests = tuple(Arrival(**(r | {"prompt": tuple(r["prompt"])})) for r in plain["requests"])
        groups = tuple(GroupSpec(**group) for group in plain.get("groups", ()))
        return cls(**(plain | {"requests": requests, "groups": groups}))


def random_workload(seed: int) -> Workload:
    """One workload in which every request fits the pool alone, and hardly two of them together."""
    rng = Random(seed)
    block_size = min(rng.randint(2, 16), rng.randint(2, 16))
    prompts = colliding_prompts(rng, block_size, rng.randint(2, 8))
    last_arrival = rng.choice((0, 0, 6, 20))
    requests = tuple(
        Arrival(rng.randint(0, last_arrival), prompt, rng.randint(1, 3 * block_size)) for prompt in prompts
    )
    largest = max(-(-(len(r.prompt) + r.max_tokens - 1) // block_size) for r in requests)
    return Workload(
        num_blocks=largest + rng.choice((0, 0, 1, 2, 3, largest)),
        block_size=block_size,
        max_num_seqs=rng.choice((1, 2, 3, 16)),
        max_num_batched_tokens=rng.choice((block_size, rng.randint(block_size, 3 * block_size), 12 * block_size)),
        requests=requests,
        alphabet=rng.choice((1, 2, 3, 50021)),
        streams=rng.choice((1, 1, 2, len(requests))),
    )


def with_forks(workload: Workload, seed: int, *, has_beams: bool) -> Workload:
    """The same workload, and most of its requests have several answers, or are searches with so many beams."""
    rng, most = Random(f"forks {seed}"), min(4, workload.max_num_seqs)
    requests = tuple(replace(r, n=rng.randint(1, most)) for r in workload.requests)
    if has_beams:
        requests = tuple(replace(r, is_search=r.n != 1 and rng.random() < 0.4) for r in requests)
    return replace(workload, requests=requests)


def colliding_prompts(rng: Random, block_size: int, num_prompts: int) -> list[tuple[int, ...]]:
    """Prompts over few tokens that repeat, extend or share the beginning of one another."""
    stems = [_tokens(rng, rng.randint(1, 4 * block_size)) for _ in range(rng.randint(1, 2))]
    prompts: list[tuple[int, ...]] = []
    for _ in range(num_prompts):
        if prompts and rng.random() < 0.35:
            prompts.append(rng.choice(prompts))
        else:
            stem = rng.choice(stems)
            kept = stem[: rng.randint(1, len(stem))] if rng.random() < 0.5 else stem
            prompts.append(kept + _tokens(rng, rng.randint(0, block_size)))
    return prompts


def _tokens(rng: Random, num_tokens: int) -> tuple[int, ...]:
    alphabet = rng.choice((1, 2, 5))
    return tuple(rng.randrange(alphabet) for _ in range(num_tokens))
