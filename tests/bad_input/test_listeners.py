"""Listeners that raise or steer the lab are dropped, with a reason, and do no harm."""

from __future__ import annotations

from typing import Any

import pytest

from labengine.events import Event, RequestScheduled, StepEnded
from labengine.lab import Lab


def test_a_listener_that_raises_is_dropped_kept_and_hurts_nobody(lab: Lab) -> None:
    undisturbed = Lab("simulated", num_blocks=12, block_size=4)
    heard: list[Event] = []

    def fail(event: Event) -> None:
        raise ValueError("cannot draw this")

    lab.hooks.subscribe(fail, RequestScheduled, StepEnded)
    lab.hooks.subscribe(heard.append, StepEnded)
    lab.run()
    (failure,) = lab.hooks.failures
    assert failure.listener is fail and isinstance(failure.event, RequestScheduled)
    assert str(failure.error) == "cannot draw this"
    assert len(heard) > 1, "who listens after it still hears everything"
    with undisturbed:
        undisturbed.add(token_ids=range(6), max_tokens=4)
        undisturbed.step()
        undisturbed.add(token_ids=range(9), max_tokens=4)
        undisturbed.run()
        assert undisturbed.snapshot() == lab.snapshot()


@pytest.mark.parametrize("call", ["step", "add", "abort", "reset", "run", "start", "close"])
def test_a_listener_that_steers_is_dropped_with_a_reason(lab: Lab, call: str) -> None:
    calls: dict[str, Any] = {
        "step": lab.step,
        "add": lambda: lab.add("a b c", max_tokens=2),
        "abort": lambda: lab.abort(0),
        "reset": lab.reset,
        "run": lab.run,
        "start": lab.start,
        "close": lab.close,
    }
    lab.hooks.subscribe(lambda event: calls[call](), RequestScheduled)
    report = lab.step()
    assert report and report.step == 2 and len(lab.snapshot().requests) == 2
    assert lab.snapshot().requests[0].status == "running" and lab.check() == []
    assert "inside a hook listener" in str(lab.hooks.failures[0].error)
