"""The step of nano-vLLM #219 as events written by hand: two equal prompts of 14 tokens, blocks of 4, a pool of 12."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from labengine import events as ev

PROMPT = tuple(range(100, 114))
SAMPLED = 7


def block_hash(index: int) -> bytes:
    """The chain's hash of the prompt's block `index`."""
    return sha256(bytes([index])).digest()


def begin() -> list[ev.Event]:
    """An empty engine, and both requests in line."""
    return [
        ev.EngineStarted(12, (("full", 4, None),), "nano-vllm+243"),
        ev.RequestAdded(0, PROMPT, 16),
        ev.RequestAdded(1, PROMPT, 16),
    ]


def _schedule(request_id: int) -> Iterator[ev.Event]:
    yield ev.PrefixHit(request_id, 0, ((),))
    for index in range(4):
        yield ev.BlockAllocated(4 * request_id + index, request_id, 0, index)
    yield ev.RequestScheduled(request_id, 0, 14, True, "running")


def _forward(request_id: int) -> ev.Event:
    runs = tuple((4 * request_id + index, 0, 4 if index < 3 else 2) for index in range(4))
    return ev.SlotsWritten(request_id, 0, 0, runs)


def schedule_and_forward() -> list[ev.Event]:
    """The first half of the step: eight blocks, and the same KV computed twice."""
    events: list[ev.Event] = [ev.StepStarted(1), *_schedule(0), *_schedule(1), _forward(0), _forward(1)]
    return [*events, ev.ForwardRan(2, 28), ev.TokensComputed(0, 14)]


def _cached(request_id: int) -> list[ev.Event]:
    first = 4 * request_id
    return [ev.BlockCached(first + i, request_id, 0, i, block_hash(i), (first + i,)) for i in range(3)]


def _merged() -> Iterator[ev.Event]:
    for index in range(3):
        yield ev.BlockMerged(4 + index, index, 1, 0, index, 2)
        yield ev.BlockFreed(4 + index, 1, 0, index, 0, "head", "merged")


def _end(request_id: int) -> ev.Event:
    return ev.TokenSampled(request_id, SAMPLED, 14)


def merging_step() -> list[ev.Event]:
    """The complete step with late merge: eight blocks, then five."""
    first = [*schedule_and_forward(), *_cached(0), _end(0), ev.TokensComputed(1, 14)]
    return [*first, *_merged(), _end(1), ev.StepEnded(1)]


def overwriting_step() -> list[ev.Event]:
    """The complete step as in the issue: eight blocks, three of them lost."""
    first = [*schedule_and_forward(), *_cached(0), _end(0), ev.TokensComputed(1, 14)]
    return [*first, *_cached(1), _end(1), ev.StepEnded(1)]
