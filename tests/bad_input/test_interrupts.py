"""Ctrl-C in the middle of a forward of the real model, or while the core changes: the step never happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ctrl_c import press_ctrl_c
from labengine.engine.forward.native import NativeForward
from labengine.events import Event, RequestScheduled, StepRolledBack, TokenSampled
from labengine.lab import Lab

PROMPTS = ("Once upon a time there was", "The capital of France is")


@pytest.fixture(scope="module")
def loaded_module_by_module() -> Iterator[Lab]:
    lab = Lab("smollm2", num_blocks=64, block_size=4, attention="torch")
    yield lab
    lab.close()


@pytest.fixture(params=["one native program", "module by module"])
def smollm2(request: pytest.FixtureRequest) -> Lab:
    """The real model with an empty pool, on both ways to compute a step on a CPU."""
    is_native = request.param == "one native program"
    lab: Lab = request.getfixturevalue("loaded_smollm2" if is_native else "loaded_module_by_module")
    lab.reset()
    return lab


def answers(lab: Lab) -> list[tuple[int, ...]]:
    """Both prompts to the end: the tokens, computed without interrupts."""
    return [output.token_ids for output in lab.generate(PROMPTS, max_tokens=4)]


class PressedDuring:
    """A native program in which Ctrl-C is pressed: Python sees it when the program is over, and all KV is written."""

    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, step: Any) -> Any:
        self.forward(step)
        press_ctrl_c()
        raise AssertionError("the interrupt did not arrive")


@contextmanager
def ctrl_c_at(lab: Lab, layer: int) -> Iterator[None]:
    """Ctrl-C is pressed as the forward reaches a layer."""
    runner: Any = lab.session.model.runner
    forward = runner._forward
    hook = runner.model.layers[layer].register_forward_pre_hook(press_ctrl_c)
    if isinstance(forward, NativeForward):
        runner._forward = PressedDuring(forward)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        hook.remove()
        runner._forward = forward


@contextmanager
def interrupted(lab: Lab, layer: int = 7) -> Iterator[None]:
    """Ctrl-C is pressed as the forward reaches a layer; the step inside the block has to be rolled back."""
    before = lab.snapshot()
    with ctrl_c_at(lab, layer):
        yield
    after = lab.snapshot()
    assert after.step == before.step and after.requests == before.requests
    assert after.free_queue == before.free_queue
    assert [block.ref_count for block in after.blocks] == [block.ref_count for block in before.blocks]
    assert lab.check() == [] and lab.timeline is not None
    assert isinstance(lab.timeline.events()[-1], Event) and lab.timeline.of_kind(StepRolledBack)
    assert lab.timeline.state().snapshot() == after


def test_an_interrupted_prefill_never_happened(smollm2: Lab) -> None:
    expected = answers(smollm2)
    smollm2.reset()
    for prompt in PROMPTS:
        smollm2.add(prompt, max_tokens=4)
    with interrupted(smollm2):
        smollm2.step()
    smollm2.run()
    assert [smollm2.output(i).token_ids for i in range(2)] == expected
    assert smollm2.check() == []


def test_an_interrupted_decode_never_happened(smollm2: Lab) -> None:
    expected = answers(smollm2)
    smollm2.reset()
    for prompt in PROMPTS:
        smollm2.add(prompt, max_tokens=4)
    for _ in range(3):
        smollm2.step()
    assert [len(smollm2.output(i).token_ids) for i in range(2)] == [3, 3]
    with interrupted(smollm2):
        smollm2.step()
    with interrupted(smollm2, layer=29):
        smollm2.run()
    smollm2.run()
    assert [smollm2.output(i).token_ids for i in range(2)] == expected
    assert smollm2.check() == []


def test_an_interrupt_where_a_warm_block_was_overwritten_is_noticed(smollm2: Lab) -> None:
    """The interrupted step took cached blocks and wrote half of its KV over them: they must not be served again."""
    (expected,) = smollm2.generate(PROMPTS[0], max_tokens=1)
    smollm2.add(token_ids=[5] * 255, max_tokens=1)  # the whole pool of 64 blocks
    with interrupted_loosely(smollm2):
        smollm2.step()
    (again,) = smollm2.generate([smollm2.encode(PROMPTS[0])], max_tokens=1)
    assert again.token_ids == expected.token_ids
    assert smollm2.check() == []


@contextmanager
def interrupted_loosely(lab: Lab, layer: int = 7) -> Iterator[None]:
    """As above, and the cached content that was overwritten is gone from the map."""
    cached = set(lab.snapshot().prefix_map)
    assert cached, "nothing is cached: the test would show nothing"
    with ctrl_c_at(lab, layer):
        yield
    assert lab.snapshot().prefix_map == {}


def test_an_interrupt_while_the_core_changes_waits_and_then_takes_the_step_back(lab: Lab) -> None:
    """Ctrl-C inside schedule and inside update is held back until the core is consistent again."""
    for kind in (RequestScheduled, TokenSampled):
        before = lab.snapshot()
        with lab.hooks.subscribe(press_ctrl_c, kind), pytest.raises(KeyboardInterrupt):
            lab.step()
        assert lab.snapshot() == before and lab.check() == []
    assert lab.step() and lab.hooks.failures == []
