"""Live: vLLM in a lab breaks no rule; with a method replaced by a faulty one, the lab names the rule and its event.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/driven/test_vllm_watched.py
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import labengine
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.driven.calls import EngineRaisedError
from labengine.driven.drive import driven
from labengine.driven.driven import Patch
from labengine.session.violation_warnings import ViolationWarning

NUM_WORKLOADS = 40
NUM_SWEEP_WORKLOADS = 300
WINDOWS = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)]
SETTINGS: tuple[dict[str, Any], ...] = (
    {"num_blocks": 12, "policy": "priority"},
    {"num_blocks": 24, "max_num_batched_tokens": 16, "max_num_seqs": 3, "groups": WINDOWS},
)

TOUCH = """
def touch(self, blocks):
    for block in blocks:
        if block.ref_cnt == 0 and not block.is_null:
            self.free_block_queue.remove(block)
"""
FREE = """
def free(self, request):
    pass
"""
GET = """
def get_new_blocks(self, num_blocks):
    found = self.free_block_queue.popleft_n(num_blocks)
    for block in found:
        self._maybe_evict_cached_block(block)
        block.ref_cnt += 1
    used = [block for block in self.blocks if block.ref_cnt and block.block_hash is not None and block not in found]
    if used and found:
        found[0].ref_cnt -= 1
        self.free_block_queue.append_n(found[:1])
        used[0].ref_cnt += 1
        found[0] = used[0]
    return found
"""
ORDER = """
def free_blocks(self, ordered_blocks):
    blocks = list(ordered_blocks)
    for block in blocks:
        block.ref_cnt -= 1
    self.free_block_queue.append_n([block for block in reversed(blocks) if not block.ref_cnt and not block.is_null])
"""


def python() -> str:
    found = os.environ.get("LABENGINE_VLLM_PYTHON")
    if not found:
        pytest.skip("set LABENGINE_VLLM_PYTHON to an interpreter with vLLM 0.32; recorded streams of it were judged")
    return found


@pytest.fixture(scope="module", params=SETTINGS, ids=["priorities", "windows"])
def lab(request: pytest.FixtureRequest) -> Iterator[labengine.Lab]:
    with labengine.drive("vllm", python(), block_size=4, **request.param) as made:
        yield made


def play(lab: labengine.Lab, seed: int) -> None:
    """Add, step, abort and reset by chance, then step to the end."""
    draw = Random(seed)
    base, ids = [draw.randint(1, 9) for _ in range(24)], list[int]()
    for _ in range(draw.randint(10, 26)):
        what = draw.random()
        if what < 0.4 or not ids:
            tokens = base[: draw.randint(2, 24)] if draw.random() < 0.7 else [draw.randint(1, 3) for _ in range(12)]
            salt, priority = draw.choice([None, None, "a", "b"]), draw.randint(-1, 2)
            asked: dict[str, Any] = {"max_tokens": draw.randint(1, 10), "cache_salt": salt, "priority": priority}
            ids.append(lab.add(token_ids=tokens, **asked))
        elif what < 0.47:
            lab.abort(draw.choice(ids))
        elif what < 0.52:
            lab.reset_prefix_cache()
        else:
            lab.step()
    lab.run()


def check_workloads(lab: labengine.Lab, seeds: range) -> None:
    kinds = set[type[ev.Event]]()
    for seed in seeds:
        lab.reset()
        play(lab, seed)
        assert lab.check() == lab.violations == [], seed
        kinds |= {type(event) for event in lab.timeline.events()}
    assert kinds >= {ev.RequestPreempted, ev.PrefixHit, ev.BlockEvicted, ev.PrefixCacheReset}


def test_vllm_breaks_no_rule(lab: labengine.Lab) -> None:
    check_workloads(lab, range(NUM_WORKLOADS))


@pytest.mark.sweep
def test_vllm_breaks_no_rule_in_many_workloads(lab: labengine.Lab) -> None:
    check_workloads(lab, range(1000, 1000 + NUM_SWEEP_WORKLOADS))


def broken(method: str, text: str, **settings: Any) -> labengine.Lab:
    engine = driven("vllm", python(), None).patched(Patch(method, text))
    return labengine.Lab(engine, num_blocks=16, block_size=4, **settings)


def share(lab: labengine.Lab) -> None:
    """Run four requests that share a prefix, and end one after the other."""
    for number in range(4):
        lab.add(token_ids=[1, 2, 3, 4, 5, 6, 7, 8, 9][: 6 + number], max_tokens=1 + 2 * number)
        lab.step()
    lab.run()


@pytest.mark.parametrize(
    ("method", "text", "rule", "kind"),
    [
        ("BlockPool.touch", TOUCH, "ref_count", ev.BlockTouched),
        ("KVCacheManager.free", FREE, "ref_count", ev.RequestFinished),
        ("BlockPool.get_new_blocks", GET, "write", ev.SlotsWritten),
    ],
)
def test_a_broken_vllm_is_named(method: str, text: str, rule: str, kind: type[ev.Event]) -> None:
    with warnings.catch_warnings(record=True) as warned, broken(method, text) as lab:
        warnings.simplefilter("always")
        with suppress(EngineRaisedError):  # vLLM may notice it later
            share(lab)
        found = next((one for one in lab.violations if one.rule == rule), None)
        assert found is not None and found.first_event is not None, lab.violations
        assert found.step is not None and lab.why(event=found.first_event)
        cause = lab.timeline.events(found.first_event, found.first_event + 1)[0]
        assert isinstance(cause, kind), cause
        assert rule in lab.status()["violations"]
        lab.goto(found.step)
        assert any(issubclass(one.category, ViolationWarning) and rule in str(one.message) for one in warned)


def test_another_order_of_freed_blocks_breaks_no_rule() -> None:
    with broken("BlockPool.free_blocks", ORDER) as lab:
        share(lab)
        assert lab.check() == []


def test_a_violation_is_in_its_steps_report_and_stops_a_run() -> None:
    with warnings.catch_warnings(), broken("KVCacheManager.free", FREE, check="stop") as lab:
        warnings.simplefilter("ignore", ViolationWarning)
        lab.add(token_ids=range(6), max_tokens=2)
        assert lab.step().violations == ()
        lab.add(token_ids=range(6), max_tokens=9)
        lab.run()
        assert lab.session.breakpoints.is_hit and not lab.session.stepper.engine.scheduler.is_idle
        assert {one.rule for one in lab.session.stepper.engine.report.violations} >= {"ref_count"}


def test_without_checks_there_are_none() -> None:
    with labengine.drive("vllm", python(), num_blocks=8, block_size=4, check=False) as lab:
        assert lab.session.watch is None and "not checked" in lab.status()["violations"]
