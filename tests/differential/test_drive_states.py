"""Live: engines without a tap, followed by their states, and a lab on nano-vLLM beside one on its edition.

LABENGINE_NANO_VLLM=..., LABENGINE_MINI_SGLANG=..., LABENGINE_SGLANG=..., LABENGINE_SGLANG_PYTHON=... name the engines.
The interpreter of the tests drives nano-vLLM, and needs xxhash and numpy for that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import cast

import pytest

from differential.driven_states import play
from labengine import drive
from labengine import events as ev
from labengine.driven.drivable import ENGINES
from labengine.driven.process import DrivenEngine, EngineProcess
from labengine.finder.engines.scopes import EngineScope, nano_scopes, sglang_scopes, tree_scopes, wire_workload
from labengine.finder.random_search import RandomWorkloads
from labengine.finder.scopes import Scope
from labengine.lab import Lab

NUM_WORKLOADS = 300
SCOPES = {
    "nano-vllm": nano_scopes(),
    "mini-sglang": tree_scopes("mini-sglang"),
    "sglang": sglang_scopes(),
}


def interpreter(name: str) -> str:
    """The interpreter that drives an engine; skips without one."""
    known = ENGINES[name]
    for variable in filter(None, (known.folder, known.python)):
        if variable not in os.environ:
            pytest.skip(f"set {variable} to drive {name}")
    if not known.python:
        pytest.importorskip("xxhash")
    return os.environ[known.python] if known.python else sys.executable


@pytest.fixture(params=SCOPES)
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, EngineProcess]]:
    with EngineProcess(DrivenEngine(request.param, interpreter(request.param))) as process:
        yield request.param, process


def test_the_events_lead_to_every_state(engine: tuple[str, EngineProcess]) -> None:
    name, process = engine
    source, num_played = RandomWorkloads(SCOPES[name], 7), 0
    while num_played < NUM_WORKLOADS:
        case = source.next()
        followed = play(process, cast(EngineScope, case.scope), case.workload)
        if followed.error:  # mini-sglang evicts more than it has after it has freed a block of a table
            assert name == "mini-sglang" and followed.error[4] == "RadixPrefixCache.evict", followed.error
            continue
        told = [one.message for one in followed.events if isinstance(one, ev.ViolationFound)]
        assert not followed.found and not [one for one in told if "itself" not in one], case.workload
        num_played += 1


def labs_of(scope: Scope) -> tuple[Lab, Lab]:
    config = scope.config
    limits = {name: getattr(config, name) for name in ("num_blocks", "max_num_seqs", "max_num_batched_tokens")}
    settings = {**limits, "block_size": config.groups[0].block_size}
    return drive("nano-vllm", **settings), Lab("simulated", edition="nano-vllm", check=False, **settings)


def test_a_driven_nano_vllm_has_the_snapshots_of_its_edition() -> None:
    interpreter("nano-vllm")
    source, labs, num_played = RandomWorkloads(SCOPES["nano-vllm"], 8), dict[str, tuple[Lab, Lab]](), 0
    while num_played < NUM_WORKLOADS:
        case = source.next()
        if case.scope.name not in labs:
            labs[case.scope.name] = labs_of(case.scope)
        pair = labs[case.scope.name]
        for lab in pair:
            lab.reset()
        for what, *values in wire_workload(cast(EngineScope, case.scope), case.workload)["operations"]:
            for lab in pair:
                lab.add(token_ids=values[0], max_tokens=values[1]) if what == "add" else lab.step()
            assert pair[0].snapshot() == pair[1].snapshot(), case.workload
        while [lab for lab in pair if lab.step()]:
            assert pair[0].snapshot() == pair[1].snapshot(), case.workload
        num_played += 1
    for pair in labs.values():
        for lab in pair:
            lab.close()
