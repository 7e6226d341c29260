"""A lab in a Python without threads, as in a browser: the event loop runs, sends and draws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from labengine.lab import Lab
from labengine.session.background import Background
from labengine.session.compare.comparing import compare
from labengine.session.stepper import LabClosedError
from waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("has_no_threads")

PROMPT = "Once upon a time there was a king who had a daughter"


async def until(is_so: Callable[[], object]) -> None:
    """Let the event loop work until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0)


class Countdown:
    """Steps until there is none left; an error at one of them."""

    def __init__(self, left: int, fails_at: int = -1) -> None:
        self.left, self.fails_at, self.num_ends = left, fails_at, 0

    def step(self) -> bool:
        if self.left == self.fails_at:
            raise RuntimeError("no further")
        self.left -= 1
        return self.left > 0

    def end(self) -> None:
        self.num_ends += 1


def test_a_run_leaves_the_loop_free_and_ends_by_itself() -> None:
    async def scenario() -> None:
        work = Countdown(2_000_000)
        background = Background(work.step, work.end)
        background.start()
        assert background.is_running and work.left == 2_000_000, "the caller goes on first"
        for _ in range(3):
            await asyncio.sleep(0)
        assert background.is_running and 0 < work.left < 2_000_000, "others come in between"
        work.left = 1
        await until(lambda: not background.is_running)
        assert (work.left, work.num_ends, background.error) == (0, 1, None)
        background.close()

    asyncio.run(scenario())


def test_pause_error_and_close() -> None:
    async def scenario() -> None:
        work = Countdown(1_000_000, fails_at=999_990)
        background = Background(work.step, work.end)
        background.start()
        background.pause()
        assert not background.is_running and work.num_ends == 1
        background.start()
        await until(lambda: not background.is_running)
        assert str(background.error) == "no further" and work.num_ends == 2
        background.close()
        with pytest.raises(LabClosedError):
            background.start()

    asyncio.run(scenario())


def test_posted_calls_come_in_order_and_who_waits_for_one_gets_it() -> None:
    async def scenario() -> None:
        done: list[Any] = []
        background = Background(lambda: False)
        first, failing, last = (
            background.post(call) for call in (lambda: done.append(1), lambda: 1 // 0, lambda: done.append(2) or "two")
        )
        assert done == [] and not first.done(), "a post never waits"
        assert last.result(timeout=PATIENCE) == "two" and done == [1, 2]
        assert isinstance(failing.exception(), ZeroDivisionError)
        another = background.post(lambda: "another")
        await until(another.done)
        background.close()

    asyncio.run(scenario())


def test_without_a_loop_the_refusal_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match="no thread can be started here, and no event loop is running"):
        Background(lambda: False).start()


class Viewer:
    """Keeps the kinds of messages, and the newest status."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.running: list[bool] = []
        self.num_saved = 0

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.kinds.append(content["type"])
        if content["type"] == "status":
            self.running.append(content["status"]["running"])

    def close(self) -> None:
        pass

    def update_saved(self) -> None:
        self.num_saved += 1


def test_a_lab_runs_in_the_background_and_its_view_hears_of_it() -> None:
    async def scenario() -> None:
        viewer = Viewer()
        with Lab("simulated", num_blocks=400, block_size=4) as lab:
            lab.feed.attach(viewer)
            for _ in "AB":
                lab.add(PROMPT, max_tokens=600)
            lab.start()
            await until(lambda: not lab.is_running)
            assert lab.stats().num_finished == 2 and lab.background_error is None
            await until(lambda: viewer.running[-1:] == [False] and "captions" in viewer.kinds and viewer.num_saved)
            assert "more" in viewer.kinds and not lab.feed.failures
            lab.start()
            lab.pause()
            assert lab.view_source().post("step").result(timeout=PATIENCE) is not None
            lab.feed.detach(viewer)

    asyncio.run(scenario())


def test_a_comparison_runs_in_the_background() -> None:
    async def scenario() -> None:
        with compare("nano-vllm", "nano-vllm+243", num_blocks=32, block_size=4) as both:
            for _ in "AB":
                both.add(PROMPT, max_tokens=20)
            both.start()
            await until(lambda: not both.is_running)
            assert [lab.stats().num_finished for lab in both.sides] == [2, 2]

    asyncio.run(scenario())
