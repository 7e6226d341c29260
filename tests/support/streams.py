"""Streams for tests: a tap on the fake scheduler, and the recording that attach makes of what it wrote."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import labengine
import labengine_vllm
from fake_vllm import FakeRequest, FakeScheduler
from labengine.session.saved.trace import Trace
from labengine_vllm import broadcast, places, viewer
from labengine_vllm import tap as taps
from labengine_vllm.broadcast import Broadcast
from labengine_vllm.tap import Tap
from waiting import PATIENCE, join, wait_until


def without_rate_limits(patch: pytest.MonkeyPatch) -> None:
    """Have every step preceded by a keyframe: each one is a check of the events before it."""
    patch.setattr(taps, "SECONDS_BETWEEN_KEYFRAMES", 0.0)
    patch.setattr(taps, "SECONDS_BETWEEN_CHECKS", 0.0)


def quick_sockets(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have idle engines looked at often, secrets kept below a folder, and slow viewers admitted."""
    patch.setattr(broadcast, "POLL_SECONDS", 0.002)
    patch.setattr(viewer, "SECONDS_TO_ADMIT", PATIENCE)
    patch.setenv(places.SECRETS, str(folder / "secrets"))


def tapped(folder: Path, scheduler: Any = None) -> tuple[Any, Tap]:
    """Return a scheduler (a small one by default) and the tap on it, which writes into a folder."""
    scheduler = scheduler or FakeScheduler(8)
    return scheduler, Tap.attached(scheduler, f"file:{folder}")


def opened(folder: Path, scheduler: Any, **options: Any) -> Trace:
    """Shut a tapped scheduler down, and attach to what was written."""
    scheduler.shutdown()
    return labengine.attach(folder, **options)


def break_off(scheduler: Any) -> None:
    """Have a method of the scheduler's raise: the recording has a gap after it, with the reason BROKEN_OFF."""
    with suppress(KeyError):
        scheduler._free_blocks(FakeRequest("unknown", [], 1))


BROKEN_OFF = "FakeScheduler._free_blocks raised KeyError"


class TappedEngine:
    """A scheduler with a tap on a socket."""

    def __init__(self, address: str, num_blocks: int = 8) -> None:
        self.scheduler = FakeScheduler(num_blocks)
        self.untouched = dict(vars(self.scheduler.kv_cache_manager.block_pool))
        tap = labengine_vllm.attach(self.scheduler, address)
        assert isinstance(tap, Tap)
        self.tap, self.num_requests = tap, 0
        outbox = tap.outbox
        assert isinstance(outbox, Broadcast)
        self.outbox = outbox

    def step(self) -> None:
        """Take a step, with two requests running."""
        while len(self.scheduler.requests) < 2:
            self.scheduler.add_request(FakeRequest(f"r{self.num_requests}", list(range(6)), 5))
            self.num_requests += 1
        self.scheduler.update_from_output(self.scheduler.schedule(), None)

    def shut_down(self) -> None:
        """Shut the scheduler down, and wait until the viewers have got the end: the tap itself waits two seconds."""
        self.scheduler.shutdown()
        join(self.outbox._thread)

    def waits_for(self, has_audience: bool) -> None:
        wait_until(lambda: self.outbox.has_audience is has_audience)
