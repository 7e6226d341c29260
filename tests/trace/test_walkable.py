"""What opens can be shown, exported and walked; else it is refused at opening, whatever is wrong in it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import labengine
from damaged_traces import GROUNDS, damages, sound_lines
from grounds import Ground
from labengine.lab import Lab
from labengine.record.files.parsing import TraceError
from labengine.session.history.moments import recorded_steps
from labengine.session.saved.trace import Trace


def walk(trace: Trace, folder: Path) -> None:
    """Everything that one does with a trace."""
    trace.show()
    trace.export_html(folder / "run.html")
    first, newest = recorded_steps([trace.timeline])
    for step in range(first, newest + 1):
        trace.goto(step)
    for moment in range(trace.timeline.num_dropped, trace.timeline.end + 1, 7):
        trace.timeline.state(moment).snapshot()
    assert repr(trace) and trace.violations is not None
    trace.close()


def try_all(ground: Ground, seeds: range, number: int, folder: Path) -> Counter[str]:
    """How many of the damaged files were refused, and how many were walked."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        for damage in damages(ground, seed, number):
            (folder / "run.lab").write_bytes(damage.content)
            try:
                trace = labengine.open(folder / "run.lab")
            except TraceError:
                outcomes["refused"] += 1
                continue
            try:
                walk(trace, folder)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {damage.what}") from error
            outcomes["walked"] += 1
    return outcomes


@pytest.mark.parametrize("ground", GROUNDS, ids=str)
def test_what_opens_can_be_walked(ground: Ground, tmp_path: Path) -> None:
    outcomes = try_all(ground, range(1, 2), 16, tmp_path)
    assert outcomes["refused"] and outcomes["walked"]


@pytest.mark.sweep
@pytest.mark.parametrize("ground", GROUNDS, ids=str)
def test_what_opens_can_be_walked_of_many(ground: Ground, tmp_path: Path) -> None:
    outcomes = try_all(ground, range(6), 50, tmp_path)
    assert outcomes["refused"] > 150 and outcomes["walked"] > 20


@pytest.mark.parametrize("ground", GROUNDS, ids=str)
def test_sound_ones_open(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "run.lab").write_bytes(gzip.compress(b"\n".join(sound_lines(ground, 1))))
    with labengine.open(tmp_path / "run.lab") as trace:
        walk(trace, tmp_path)


FIELD_LIES = [
    lambda seam: seam.pop("class"),
    lambda seam: seam.update(seam=5),
    lambda seam: seam.update(methods={}),
    lambda seam: seam["methods"].append(None),
    lambda seam: seam.update(base={"class": "X"}),
    lambda seam: seam.update(line="x"),
]


@pytest.mark.parametrize("lie", FIELD_LIES)
def test_what_is_said_of_the_code_has_its_shape(lie: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    """Views and Why? read it field by field."""
    with Lab("simulated", num_blocks=8, block_size=4) as lab:
        lab.generate([[1, 2, 3]], max_tokens=2)
        lab.save(tmp_path / "run.lab")
    lines = gzip.decompress((tmp_path / "run.lab").read_bytes()).split(b"\n")
    facts = json.loads(lines[1])
    lie(facts["code"]["BlockFreed"])
    lines[1] = json.dumps(facts).encode()
    (tmp_path / "run.lab").write_bytes(gzip.compress(b"\n".join(lines), 1))
    with pytest.raises(TraceError, match="invalid methods"):
        labengine.open(tmp_path / "run.lab")
