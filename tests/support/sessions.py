"""Random sessions with a lab: requests, steps, aborts, resets, open steps and broken ones, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import lcm
from random import Random
from typing import Any

from disturbing import Disturbance
from driving import queues
from labengine.config import ConfigError
from labengine.events import Event, StepStarted
from labengine.lab import Lab
from labengine.record.fold import surviving
from workloads import Workload


def lab_for(workload: Workload, edition: str, **settings: Any) -> Lab:
    """A simulated lab with the workload's pool and limits, whose requests go on as it says."""
    from driving import as_parts, num_null_blocks

    lab = Lab(
        "simulated",
        num_blocks=workload.num_blocks + num_null_blocks(as_parts(edition)),
        block_size=workload.block_size,
        groups=workload.groups or None,
        edition=edition,
        max_num_seqs=workload.max_num_seqs,
        max_num_batched_tokens=workload.max_num_batched_tokens,
        **({k: v for k, v in workload.settings.items() if k != "hash_block_size"} | settings),
    )
    runner: Any = lab.session.model.runner
    runner._next_token = workload.next_token
    return lab


def hybrid_workloads(num: int) -> list[Workload]:
    """Those whose groups' blocks are multiples of the smallest: a lab links its hashes by these."""
    from hybrid_workloads import random_hybrid_workload

    found: list[Workload] = []
    for seed in range(10 * num):
        workload = random_hybrid_workload(seed)
        sizes = [group.block_size for group in workload.groups]
        interval = workload.settings["retention_interval"] or 0
        if not any(size % min(sizes) for size in sizes) and not interval % lcm(*sizes):
            found.append(workload)
    return found[:num]


class Session:
    """A simulated user, who does one more random thing at each call."""

    def __init__(self, lab: Lab, workload: Workload, seed: int) -> None:
        self.lab, self.rng = lab, Random(seed)
        self._arrivals, self._num_added = workload.requests, 0

    def work(self, num_acts: int) -> None:
        """Some things in a row."""
        for _ in range(num_acts):
            self.act()

    def act(self) -> None:
        """One thing."""
        often = ("add", "add", "add", "step", "step", "step", "run", "phase", "break", "break", "abort")
        act = "reset" if self.rng.random() < 0.08 else self.rng.choice(often)
        getattr(self, f"_{act}")()

    def _add(self) -> None:
        wanted, rng = self._arrivals[self._num_added % len(self._arrivals)], self.rng
        self._num_added += 1
        keys = {"adapter": "x"} if rng.random() < 0.1 else None
        salt = wanted.salt or (rng.choice((None, "a")) if rng.random() < 0.2 else None)
        sampling: dict[str, Any] = {"max_tokens": wanted.max_tokens, "seed": rng.choice((None, 3))}
        with suppress(ConfigError):  # some of them could never run
            self.lab.add(token_ids=wanted.prompt, cache_salt=salt, extra_keys=keys, **sampling)

    def _step(self) -> None:
        self.lab.step()

    def _run(self) -> None:
        last = self.lab.snapshot().step + self.rng.randint(1, 3)
        self.lab.run(until=lambda lab: lab.snapshot().step >= last)

    def _phase(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.lab.next_phase()

    def _abort(self) -> None:
        requests = list(self.lab.snapshot().requests)
        if requests and self.rng.random() < 0.5:
            self.lab.abort(self.rng.choice(requests))

    def _reset(self) -> None:
        self.lab.reset_prefix_cache()

    def _break(self) -> None:
        with broken(self.lab, self.rng.choice(("forward", "sample"))), suppress(Disturbance):
            self.lab.step()


@contextmanager
def broken(lab: Lab, method: str, error: BaseException | None = None) -> Iterator[None]:
    """Meanwhile the model's method raises."""

    def fail(*_: object) -> None:
        raise error or Disturbance

    runner = lab.session.model.runner
    setattr(runner, method, fail)
    try:
        yield
    finally:
        delattr(runner, method)


def two_equal_requests() -> Lab:
    """Two equal requests of 13 tokens: they merge in step 1, and finish in step 6."""
    lab = Lab("simulated", num_blocks=12, block_size=4)
    for _ in range(2):
        lab.add(token_ids=range(13), max_tokens=6)
    return lab


def story(lab: Lab) -> list[Event]:
    """All that is recorded."""
    assert lab.timeline is not None
    return list(lab.timeline.events())


def events_until(events: list[Event], step: int) -> list[Event]:
    """What had happened when step `step + 1` was about to begin, for good."""
    lasting = set(surviving(events))
    for i, event in enumerate(events):
        if isinstance(event, StepStarted) and event.step == step + 1 and i in lasting:
            return events[:i]
    return events


def state(lab: Lab) -> tuple[Any, ...]:
    """All that a lab holds."""
    with lab.session.stepper.reading():
        engine = lab.session.stepper.engine
        outputs = [(r.token_ids, r.finish_reason, r.extra_keys, r.seed) for r in engine.requests.values()]
        return engine.snapshot(), queues(engine), outputs
