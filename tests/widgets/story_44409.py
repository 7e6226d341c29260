"""vLLM 44409 as events: two groups, a hit of two blocks each, and two blocks more in the external tier.

The pool has blocks 1 to 10; block 0 pads tables. A has computed the beginning in #1, #2 (full) and #4, #5 (window).
"""

from __future__ import annotations

import hashlib

from labengine import events as ev

TOKENS = tuple(range(100, 117))


def content(index: int) -> bytes:
    """The hash of the prompt's block `index`."""
    return hashlib.sha256(bytes([index])).digest()


def before() -> list[ev.Event]:
    """A has come and gone, and its four full blocks are at the head of the free queue; B waits."""
    tables = {0: (1, 2, 3), 1: (4, 5, 6)}
    return [
        ev.EngineStarted(11, (("full", 4, None), ("sliding_window", 4, 16)), "vllm", 0),
        ev.RequestAdded(0, TOKENS[:9], 1),
        ev.StepStarted(1),
        ev.PrefixHit(0, 0, ((), ())),
        *(ev.BlockAllocated(i, 0, group, at) for group, ids in tables.items() for at, i in enumerate(ids)),
        *(
            ev.BlockCached(i, 0, group, at, content(at), (i,))
            for group, ids in tables.items()
            for at, i in enumerate(ids[:2])
        ),
        ev.RequestScheduled(0, 0, 9, True, "running"),
        *(
            ev.SlotsWritten(0, group, 0, tuple((i, 0, n) for i, n in zip(ids, (4, 4, 1), strict=True)))
            for group, ids in tables.items()
        ),
        ev.ForwardRan(1, 9),
        ev.BlocksSaved(0, tuple((g, at, ids[at], content(at)) for g, ids in tables.items() for at in range(2))),
        ev.TokensComputed(0, 9),
        ev.TokenSampled(0, 7, 9),
        *(
            ev.BlockFreed(tables[group][at], 0, group, at, 0, "head", "finished")
            for group, at in ((0, 2), (1, 2), (1, 0), (1, 1), (0, 0), (0, 1))
        ),
        ev.RequestFinished(0, "length"),
        ev.StepEnded(1),
        ev.RequestAdded(1, TOKENS, 2),
    ]


def interleaved() -> list[ev.Event]:
    """B is admitted in the old order: the full group's fresh blocks are the window group's hits."""
    return [
        ev.StepStarted(2),
        ev.PrefixHit(1, 8, ((1, 2), (4, 5))),
        ev.ExternalHit(1, 8),
        ev.BlockTouched(1, 1, 0, 0, 1),
        ev.BlockTouched(2, 1, 0, 1, 1),
        ev.BlockEvicted(5),
        ev.BlockEvicted(4),
        ev.BlockAllocated(5, 1, 0, 2),
        ev.BlockAllocated(4, 1, 0, 3),
        ev.BlockTouched(4, 1, 1, 0, 2),
        ev.BlockTouched(5, 1, 1, 1, 2),
        ev.BlockAllocated(6, 1, 1, 2),
        ev.BlockAllocated(3, 1, 1, 3),
        ev.BlockAllocated(7, 1, 0, 4),
        ev.BlockAllocated(8, 1, 1, 4),
        ev.RequestScheduled(1, 16, 1, True, "running"),
        ev.BlocksLoaded(
            1, ((0, 2, 5, content(2)), (0, 3, 4, content(3)), (1, 2, 6, content(2)), (1, 3, 3, content(3)))
        ),
    ]


def narrow() -> list[ev.Event]:
    """B is admitted in two phases, with a window that the first of its blocks lie outside of."""
    return [
        ev.StepStarted(2),
        ev.PrefixHit(1, 8, ((1, 2), (0, 5))),
        ev.ExternalHit(1, 8),
        ev.BlockTouched(1, 1, 0, 0, 1),
        ev.BlockTouched(2, 1, 0, 1, 1),
        ev.BlocksSkipped(1, 1, 1),
        ev.BlockTouched(5, 1, 1, 1, 1),
    ]
