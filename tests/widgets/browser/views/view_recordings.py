"""Recordings that the views are looked at with: preemption, branching chains, two groups with a tier, many requests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import labengine
from labengine import Lab
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.engine.external import HostStore


def _events(lab: Lab) -> list[ev.Event]:
    assert lab.timeline is not None
    return list(lab.timeline.events())


def preempting() -> list[ev.Event]:
    """Three requests outgrow a pool of 10 blocks: the last one gives way, and comes back."""
    with Lab("simulated", num_blocks=10, block_size=4, edition="vllm", seed=3) as lab:
        for first in (20, 40, 60):
            lab.add(token_ids=list(range(first, first + 9)), max_tokens=12)
        lab.run()
        return _events(lab)


def branching(between: Sequence[int] = ()) -> list[ev.Event]:
    """Two endings of one beginning, one after the other, so that the second branches off the first one's chain.

    between: another prompt between the two.
    """
    with Lab("simulated", num_blocks=24, block_size=4, edition="vllm", seed=1) as lab:
        common = list(range(100, 108))
        prompts = [*common, *range(200, 209)], between, [*common, *range(300, 309)]
        for prompt in filter(None, prompts):
            lab.add(token_ids=list(prompt), max_tokens=3)
            lab.run()
        return _events(lab)


def hybrid() -> list[ev.Event]:
    """A full and a window group over a small pool, with a tier in host memory."""
    groups = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))
    with Lab("simulated", num_blocks=40, groups=groups, edition="vllm", external=HostStore(), seed=5) as lab:
        for _ in range(2):
            lab.add(token_ids=list(range(30, 55)), max_tokens=6)
            lab.add(token_ids=[*range(30, 42), *range(70, 78)], max_tokens=6)
            lab.run()
            lab.reset_prefix_cache()
        return _events(lab)


def tree(block_size: int = 4, num_blocks: int = 18) -> list[ev.Event]:
    """Requests that share beginnings, on a prefix tree: it splits, locks, merges, and evicts; one is aborted."""
    common = range(100, 116)
    options: dict[str, Any] = {"num_blocks": num_blocks, "block_size": block_size, "edition": "mini-sglang+142"}
    with Lab("simulated", seed=1, **options) as lab:
        for first in (200, 300):
            lab.add(token_ids=[*common, *range(first, first + 8)], max_tokens=4)
        lab.run()
        lab.add(token_ids=[*common[:10], *range(400, 412)], max_tokens=4)
        lab.run()
        lab.add(token_ids=range(500, 530), max_tokens=3)
        lab.add(token_ids=[*common, *range(200, 208), 7, 8, 9], max_tokens=4)
        lab.step(2)
        lab.abort(4)
        lab.run()
        return _events(lab)


def crowd(num_requests: int = 64, num_blocks: int = 4096, num_steps: int = 4, tokens: int = 180) -> list[ev.Event]:
    """Many requests at once."""
    random = Random(7)
    options = {"num_blocks": num_blocks, "max_num_seqs": num_requests, "max_num_batched_tokens": 1 << 20}
    with Lab("simulated", block_size=16, edition="vllm", seed=2, check=False, **options) as lab:
        for _ in range(num_requests):
            lab.add(
                token_ids=[random.randrange(1000) for _ in range(random.randrange(tokens // 2, tokens))], max_tokens=40
            )
        for _ in range(num_steps):
            lab.step()
        return _events(lab)


def misplaced() -> list[ev.Event]:
    """nano-vLLM PR 71 as it was: a token's KV goes to the last slot of another block."""
    with labengine.bug("nano-vllm-71").broken() as lab:
        return _events(lab)


def moment_after(events: Sequence[ev.Event], kind: type[ev.Event], number: int = 1) -> int:
    """The moment after the number-th event of a kind."""
    found = [i for i, event in enumerate(events) if isinstance(event, kind)]
    return found[number - 1] + 1
