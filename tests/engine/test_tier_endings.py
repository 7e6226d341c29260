"""How dealings with the external tier end: labs closed, requests aborted, loads broken off. Nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from labengine import GroupSpec, HostStore, Lab
from labengine.core.connector import BlockTransfer
from labengine.engine.external import Delayed, Threaded
from labengine.events import BlocksLoaded, LoadFailed

PROMPT = list(range(100, 133))


def filled(prompts: Sequence[list[int]] = (PROMPT,), **settings: Any) -> HostStore:
    """A store that holds the prompts' full blocks."""
    store = HostStore()
    with Lab("simulated", num_blocks=80, block_size=4, external=store, **settings) as lab:
        lab.generate(list(prompts), max_tokens=1)
    return store


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_two_requests_do_not_preempt_each_other_for_ever(edition: str) -> None:
    """Each would load what the other needs to go on; the one that runs takes it from the one that loads."""
    groups = [GroupSpec(8), GroupSpec(4, "sliding_window", 1)]
    prompts = [list(range(1000, 1049)), list(range(2000, 2049))]
    store = filled([prompt[:41] for prompt in prompts], groups=groups, edition=edition)
    tight = {"num_blocks": 13 + (edition == "vllm"), "max_num_seqs": 2, "max_num_batched_tokens": 3}
    with Lab("simulated", groups=groups, external=Delayed(store, 1), edition=edition, **tight) as lab:
        for prompt in prompts:
            lab.add(token_ids=prompt, max_tokens=1)
        for _ in range(200):
            if not lab.step():
                break
        assert [lab.output(i).finish_reason for i in (0, 1)] == ["length", "length"]
        assert lab.check() == [] and lab.snapshot().num_used_blocks == 0


def test_a_closed_lab_leaves_no_load_behind() -> None:
    tier = Delayed(filled(), 3)
    first = Lab("simulated", num_blocks=40, block_size=4, external=tier)
    first.add(token_ids=PROMPT, max_tokens=1)
    first.step()
    first.close()
    with Lab("simulated", num_blocks=40, block_size=4, external=tier) as second:
        second.add(token_ids=list(range(500, 536)), max_tokens=30)
        second.step()
        second.add(token_ids=PROMPT, max_tokens=1)
        second.run()
        assert second.check() == []
        assert second.output(1).finish_reason == "length"


class BreaksOff(HostStore):
    """A load ends with a BaseException that is not an Exception."""

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: Any) -> None:
        raise asyncio.CancelledError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_load_that_is_broken_off_has_failed() -> None:
    store = BreaksOff()
    with Lab("simulated", num_blocks=40, block_size=4, external=store) as lab:
        lab.generate([PROMPT], max_tokens=1)
    with Lab("simulated", num_blocks=40, block_size=4, external=Threaded(store)) as lab:
        lab.generate([PROMPT], max_tokens=1)
        assert lab.timeline is not None
        assert not lab.timeline.of_kind(BlocksLoaded) and lab.timeline.of_kind(LoadFailed)
        assert lab.check() == []


class Unreachable(HostStore):
    """Everything that can raise does."""

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: Any) -> None:
        raise OSError("the tier is gone")

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        raise OSError("the tier is gone")


def test_a_tier_that_raises_costs_only_the_recompute() -> None:
    store = Unreachable()
    with Lab("simulated", num_blocks=40, block_size=4, external=store) as lab:
        lab.generate([PROMPT], max_tokens=1)
    with Lab("simulated", num_blocks=40, block_size=4, external=store) as lab:
        (output,) = lab.generate([PROMPT], max_tokens=3)
        assert output.finish_reason == "length" and len(output.token_ids) == 3
        assert any("the tier is gone" in failure for failure in store.failures)
        assert lab.check() == []


class CannotCancel(Delayed):
    """The tier does not even take a cancellation."""

    def cancel(self, request_id: int) -> None:
        raise OSError("the tier is gone")


def test_an_abort_frees_the_blocks_even_if_the_tier_does_not_answer() -> None:
    with Lab("simulated", num_blocks=40, block_size=4, external=CannotCancel(filled(), 5)) as lab:
        lab.add(token_ids=PROMPT, max_tokens=1)
        lab.step()
        with pytest.raises(OSError, match="the tier is gone"):
            lab.abort(0)
        assert lab.snapshot().num_used_blocks == 0 and lab.output(0).finish_reason == "abort"
        assert lab.check() == [] and not lab.step()
        lab.external = None
