"""Streams for tests: a tap on the fake scheduler, and the recording that attach makes of what it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from fake_vllm import FakeScheduler
from labengine.session.saved.trace import Trace
from labengine_vllm import tap as taps
from labengine_vllm.tap import Tap


def without_rate_limits(patch: pytest.MonkeyPatch) -> None:
    """Have every step preceded by a keyframe: each one is a check of the events before it."""
    patch.setattr(taps, "SECONDS_BETWEEN_KEYFRAMES", 0.0)
    patch.setattr(taps, "SECONDS_BETWEEN_CHECKS", 0.0)


def tapped(folder: Path, scheduler: Any = None) -> tuple[Any, Tap]:
    """Return a scheduler (a small one by default) and the tap on it, which writes into a folder."""
    scheduler = scheduler or FakeScheduler(8)
    return scheduler, Tap.attached(scheduler, f"file:{folder}")


def opened(folder: Path, scheduler: Any, **options: Any) -> Trace:
    """Shut a tapped scheduler down, and attach to what was written."""
    scheduler.shutdown()
    return labengine.attach(folder, **options)
