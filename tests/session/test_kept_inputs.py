"""A lab that runs for a day does not keep inputs forever, and calls that need them say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import labengine
from labengine.config import ConfigError
from labengine.lab import Lab


def busy(num_inputs: int, keep_inputs: int | None = 5) -> Lab:
    lab = Lab("simulated", num_blocks=16, block_size=4, keep_inputs=keep_inputs)
    for number in range(num_inputs):
        lab.add(token_ids=range(number, number + 3), max_tokens=1)
        lab.step()
    return lab


NEEDS_INPUTS: dict[str, Callable[[Lab], object]] = {
    "rewind": lambda lab: lab.rewind(1),
    "rewind to now": lambda lab: lab.rewind(lab.snapshot().step),
    "fork": lambda lab: lab.fork(),
    "fork at a step": lambda lab: lab.fork(1),
    "to_code": lambda lab: lab.to_code(),
    "to_test": lambda lab: lab.to_test(),
    "inputs": lambda lab: lab.inputs,
}


@pytest.mark.parametrize("name", NEEDS_INPUTS)
def test_what_needs_dropped_inputs_refuses_and_nothing_has_changed(name: str) -> None:
    with busy(6) as lab:
        before = lab.snapshot()
        with pytest.raises(ConfigError, match=r"keep_inputs"):
            NEEDS_INPUTS[name](lab)
        assert lab.snapshot() == before
        lab.add(token_ids=[1, 2], max_tokens=1)
        lab.step()
        assert lab.snapshot().step == before.step + 1 and lab.why(block=0)


def test_none_is_dropped_up_to_the_limit_and_a_reset_begins_anew() -> None:
    with busy(5) as lab:
        lab.rewind(2)
        assert lab.snapshot().step == 2
    with busy(6) as lab:
        lab.reset()
        lab.add(token_ids=[1, 2], max_tokens=1)
        lab.step()
        with lab.fork() as fork:
            assert fork.snapshot() == lab.snapshot()
    with busy(9, None) as lab:
        assert len(lab.inputs) == 9


def test_a_saved_lab_without_inputs_opens_and_has_no_code(tmp_path: Path) -> None:
    with busy(6) as lab:
        lab.save(tmp_path / "run.lab")
    with labengine.open(tmp_path / "run.lab") as trace:
        assert trace.snapshot().step == 6 and trace.why(block=0)
        with pytest.raises(ConfigError, match="more inputs than it kept"):
            trace.to_code()


def test_memory_of_inputs_is_bounded() -> None:
    with busy(0, 100) as lab:
        for _ in range(500):
            lab.abort(lab.add(token_ids=[1, 2], max_tokens=1))
            assert len(lab.session.inputs._known) <= 100
