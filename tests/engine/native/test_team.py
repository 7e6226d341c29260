"""The team of threads: many callers, forks, and what torch's own settings must not change."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from engine.plan_builder import Dealer, plan_of
from labengine.engine.model_runner import ModelRunner
from labengine.engine.native.library import Team, library
from waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture
def runner(tiny_llama: Path) -> ModelRunner:
    return ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu")


def decode(runner: ModelRunner) -> torch.Tensor:
    request = Dealer(64, runner.groups).request(list(range(40)))
    return runner.forward(plan_of(request.take(40))).clone()


def test_several_threads_share_one_team(tiny_llama: Path) -> None:
    runners = [ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu") for _ in range(3)]
    wanted = decode(runners[0])
    with ThreadPoolExecutor(3) as threads:
        for logits in threads.map(decode, runners):
            assert torch.equal(logits, wanted)
        for results in [list(threads.map(decode, runners)) for _ in range(30)]:
            assert all(torch.equal(logits, wanted) for logits in results)


def _in_child(compute: Callable[[], torch.Tensor]) -> bool:
    """What a forked process computes, compared there."""
    wanted = compute()
    context = get_context("fork")
    outcome = context.Value(ctypes.c_int, -1)

    def work() -> None:
        outcome.value = int(torch.equal(compute(), wanted))

    child = context.Process(target=work, daemon=True)
    child.start()
    child.join(PATIENCE)
    if child.is_alive():
        child.kill()
    return outcome.value == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(runner: ModelRunner) -> None:
    assert _in_child(lambda: decode(runner))
    assert torch.equal(decode(runner), decode(runner))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_another_thread_computes(runner: ModelRunner, tiny_llama: Path) -> None:
    """In the child the lock is held by a thread that does not exist there."""
    other = ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu")
    with other._forward._team._is_taken:  # type: ignore[attr-defined]
        team = other._forward._team  # type: ignore[attr-defined]
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, b"free" if not team._is_taken.locked() else b"held")
            os._exit(0)
        assert os.read(read, 4) == b"free"
    assert torch.equal(decode(other), decode(runner))


def test_a_team_that_idles_sleeps() -> None:
    team = Team(3)

    def is_asleep() -> bool:
        before = time.process_time()
        time.sleep(0.3)
        return time.process_time() - before < 0.1

    wait_until(is_asleep, "the team to fall asleep")
    library().team_free(team._team)


def test_inference_mode_outside_changes_nothing(runner: ModelRunner) -> None:
    wanted = decode(runner)
    with torch.inference_mode():
        assert torch.equal(decode(runner), wanted)
        request = Dealer(64, runner.groups).request(list(range(100)))
        plan = plan_of(request.take(100))  # larger than any before: buffers grow here
        tokens = runner.sample(plan, runner.forward(plan))
    logits = runner.forward(plan)
    assert runner.sample(plan, logits) == tokens
    logits.neg_()
    assert runner.sample(plan, logits) == [int(logits.argmax())]


def test_a_default_device_changes_nothing(tiny_llama: Path) -> None:
    try:
        torch.set_default_device("meta")
        runner = ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu")
        request = Dealer(64, runner.groups).request(list(range(40)))
        plan = plan_of(request.take(40))
        token = runner.sample(plan, runner.forward(plan))
    finally:
        torch.set_default_device(None)  # not the one before: naming it leaves a mode behind, which patched methods meet
    runner = ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu")
    assert token == [int(decode(runner).argmax())]
