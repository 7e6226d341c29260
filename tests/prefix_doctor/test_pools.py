"""The same requests in a pool of another size: of a lab, of its file, and of streams that vLLM has left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labengine
from differential import vllm_streams
from labengine.__main__ import main
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.lab import Lab
from recorded_files import written

STREAMS = list(vllm_streams.read())


def thrashing(**settings: object) -> Lab:
    """Two conversations that evict each other in 8 blocks, and do not in 16."""
    lab = labengine.Lab("simulated", num_blocks=8, block_size=4, **settings)  # type: ignore[arg-type]
    for _ in range(3):
        for start in (100, 500):
            lab.generate([list(range(start, start + 21))], max_tokens=2)
    return lab


def test_a_pool_twice_as_large_is_put_beside_the_recorded_run() -> None:
    lab = thrashing()
    diagnosis = labengine.doctor(lab)
    found = diagnosis.with_pools()
    recorded, larger = found.runs
    assert (recorded.num_blocks, larger.num_blocks, found.num_requests) == (8, 16, 6)
    assert recorded.cost.hit_tokens == diagnosis.sums.num_hit < larger.cost.hit_tokens == 4 * 20
    missed = diagnosis.sums.missed["evicted"]
    assert larger.cost.hit_tokens == recorded.cost.hit_tokens + missed
    assert larger.cost.computed_tokens == recorded.cost.computed_tokens - missed
    assert "evicted" not in larger.sums.missed and larger.cost.peak_blocks == 6
    assert "labengine, 16 blocks" in repr(found) and "tokens evicted and missed" in found._repr_html_()


def test_a_salt_and_an_abort_come_again(tmp_path: Path) -> None:
    lab = labengine.Lab("simulated", num_blocks=16, block_size=4)
    for salt in (None, "x", "x"):
        lab.add(token_ids=list(range(21)), max_tokens=4, cache_salt=salt)
        lab.run()
    lab.add(token_ids=list(range(13)), max_tokens=40)
    lab.step()
    lab.abort(3)
    lab.save(tmp_path / "run.lab")
    for place in (lab, tmp_path / "run.lab"):
        found = labengine.doctor(place).with_pools(16)
        assert [run.name for run in found.runs] == ["recorded", "labengine, 16 blocks"]
        assert found.runs[0].cost == found.runs[1].cost


def test_recorded_vllm_traffic_costs_the_same_in_the_same_pool(tmp_path: Path) -> None:
    """So the columns of another pool tell of the pool alone."""
    evicted = 0
    for _, items in STREAMS[::6]:
        diagnosis = labengine.doctor(written(items, tmp_path))
        assert diagnosis.recording is not None and diagnosis.recording.repeatable is not None
        found = diagnosis.with_pools(diagnosis.recording.repeatable.config.num_blocks, 600)
        assert len(found.runs) == 3 and found.runs[0].cost == found.runs[1].cost
        assert found.runs[2].sums.missed.get("evicted", 0) == 0
        evicted += found.runs[0].sums.missed.get("evicted", 0)
    assert evicted


def test_the_command_prints_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run.lab")
    thrashing().save(path)
    assert main(["doctor", path, "--twice"]) == 0
    assert "16 blocks" in capsys.readouterr().out
    assert main(["doctor", path, "--twice", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["pools"]["runs"]
    assert [run["num_blocks"] for run in runs] == [8, 16]


def test_requests_that_cannot_be_run_again_are_refused_with_the_reason(tmp_path: Path) -> None:
    tiered, late, own = thrashing(external="host"), thrashing(record=20), thrashing(parts=Parts(name="mine"))
    own.save(tmp_path / "own.lab")
    own_class = labengine.Lab("simulated", parts=Parts(merge_policy=type("Mine", (LABENGINE.merge_policy,), {})))
    own_class.generate([[1, 2, 3]], max_tokens=1)
    own_class.save(tmp_path / "class.lab")
    for place, why in (
        (tiered, "has an external tier"),
        (late, "events were not kept"),
        (tmp_path / "class.lab", "custom classes"),
    ):
        with pytest.raises(labengine.ConfigError, match=why):
            labengine.doctor(place).with_pools()
    assert labengine.doctor(own).with_pools().num_requests == 6
    with pytest.raises(labengine.ConfigError, match="num_blocks must be"):
        labengine.doctor(own).with_pools(0)
    with pytest.raises(labengine.ConfigError, match="no requests yet"):
        labengine.doctor(labengine.Lab("simulated")).with_pools()
