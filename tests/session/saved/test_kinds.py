"""Sessions with n answers, beams, drafts, states, images and priorities are saved and repeated exactly."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine import FixedDrafts, GroupSpec, NGram
from labengine.engine.simulated import default_next_token
from labengine.events import Event
from labengine.lab import Lab
from labengine.scripts import break_off_at

RIGHT = tuple(default_next_token(0, position) if position % 3 else 1 for position in range(60))
STATES = [GroupSpec(4), GroupSpec(4, "state")]
SETTINGS: dict[str, dict[str, Any]] = {
    "all": {"groups": STATES, "speculation": FixedDrafts(RIGHT, 3), "policy": "priority"},
    "states": {"groups": STATES, "max_num_batched_tokens": 7, "policy": "priority"},
    "window": {"groups": [GroupSpec(4), GroupSpec(4, "sliding_window", 8)], "speculation": NGram(2, 1, 3)},
    "tier": {"block_size": 4, "external": "host", "speculation": FixedDrafts(RIGHT, 2), "policy": "priority"},
    "vllm": {"block_size": 4, "edition": "vllm", "speculation": FixedDrafts(RIGHT, 2, "eagle"), "policy": "priority"},
}


def played(name: str) -> Lab:
    """A lab after a session with events of all these kinds, an interrupted step and an abort."""
    lab = Lab("simulated", **{"num_blocks": 40, "max_num_seqs": 6, **SETTINGS[name]})
    priority = 1 if "policy" in SETTINGS[name] else 0
    prompt = [default_next_token(0, position) for position in range(6)]
    pictures = {0: ("cat", 2), 3: ("dog", 2)}
    first, *_ = lab.add(token_ids=prompt, n=2, max_tokens=9, seed=0, ignore_eos=True, images=pictures)
    lab.step(2)
    if name != "vllm":
        lab.add(token_ids=prompt, beams=2, max_tokens=5, priority=-priority, extra_keys={"lora": "sql"})
    lab.step()
    lab.branch(first, seed=3)
    break_off_at(lab, "TokenSampled", 1)
    lab.add(token_ids=prompt[:5], n=3, max_tokens=4, seed=0, priority=priority, cache_salt="s")
    lab.step(3)
    lab.abort(first)
    lab.run()
    assert lab.check() == []
    return lab


def events_of(lab: Any) -> list[Event]:
    return list(lab.timeline.events())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_saved_session_is_opened_and_run_again_exactly(name: str, tmp_path: Path) -> None:
    with played(name) as lab:
        lab.save(tmp_path / "run.lab")
        opened = labengine.open(tmp_path / "run.lab")
        assert events_of(opened) == events_of(lab) and opened.snapshot() == lab.snapshot()
        with opened.rerun(trust=True) as again:
            assert events_of(again) == events_of(lab) and again.snapshot() == lab.snapshot()


@pytest.mark.parametrize("name", SETTINGS)
def test_its_script_goes_the_same_way(name: str, tmp_path: Path) -> None:
    with played(name) as lab:
        names: dict[str, Any] = {}
        with redirect_stdout(StringIO()):
            exec(compile(lab.to_code(), "script", "exec"), names)
        assert events_of(names["lab"]) == events_of(lab)
        names["lab"].close()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_fork_and_a_rewind_come_to_the_same_state(name: str) -> None:
    with played(name) as lab:
        before = lab.snapshot()
        with lab.fork() as twin:
            assert twin.snapshot() == before
        lab.rewind(3)
        assert lab.check() == [] and lab.snapshot().step == 3
