"""conform --against: recorded traffic on other parts, without vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labengine
from differential import vllm_streams
from labengine.__main__ import main
from labengine.core.editions import VLLM, VLLM_ASYNC
from labengine.vllm.conformance.against import cost_of
from recorded_files import written

RUNS = list(vllm_streams.read())
HYBRID = next(items for workload, items in RUNS if not workload["async"] and len(workload["groups"]) > 1)
FULL = next(items for workload, items in RUNS if not workload["async"] and len(workload["groups"]) == 1)

PATCH = """
from labengine.core.editions import VLLM

class Stingy(VLLM.kv_cache_manager):
    def find_prefix(self, request):
        hit = super().find_prefix(request)
        return hit._replace(num_tokens=0, block_ids=tuple(() for _ in hit.block_ids))

class Exits(VLLM.block_pool):
    def reused_first(self, block_ids):
        raise SystemExit(0)

class ExitsUnseen(VLLM.block_pool):
    def reused_first(self, block_ids):
        import os
        os._exit(0)

class Broken(VLLM.block_pool):
    def reused_first(self, block_ids):
        raise ZeroDivisionError("no block")
"""


def test_the_traffic_on_its_own_edition_costs_what_it_has_cost(tmp_path: Path) -> None:
    """Arrivals, aborts, resets and tokens come at their steps: nothing else decides."""
    for workload, items in RUNS:
        result = labengine.conform(written(items, tmp_path))
        found = result.against(result.edition)
        assert found.recorded == found.other, (workload, found)
        assert found.recorded.forward_passes and found.num_requests == len(workload["requests"])


def test_figures_are_counted_from_events() -> None:
    lab = labengine.Lab("simulated", num_blocks=8, block_size=4, edition="vllm")
    lab.generate([[1, 2, 3, 4, 5]], max_tokens=4)
    lab.generate([[1, 2, 3, 4, 9]], max_tokens=1)
    figures = cost_of(lab.timeline.events())
    assert (figures.forward_passes, figures.computed_tokens, figures.hit_tokens) == (5, 9, 4)
    assert (figures.peak_blocks, figures.preemptions, figures.evicted_blocks) == (2, 0, 0)


def test_other_parts_are_put_beside_the_recorded_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_patch.py"
    file.write_text(PATCH)
    path = str(written(FULL, tmp_path))
    assert main(["conform", path, "--against", f"{file}:Stingy"]) == 0
    printed = capsys.readouterr().out
    assert "vllm + Stingy" in printed and "hit tokens" in printed and "peak blocks" in printed
    assert main(["conform", path, "--against", f"{file}:Stingy", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["other"]["hit_tokens"] == 0 < figures["recorded"]["hit_tokens"]
    assert figures["other"]["computed_tokens"] > figures["recorded"]["computed_tokens"]
    assert main(["conform", path, "--against", "labengine"]) == 0


def test_what_cannot_run_the_traffic_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_patch.py"
    file.write_text(PATCH)
    path = str(written(HYBRID, tmp_path))
    for asked, why in (
        (f"{file}:Broken", "vllm + Broken raises in step"),
        (f"{file}:Exits", "of the traffic: it ends the process: SystemExit: 0, raised in Exits.reused_first"),
        (f"{file}:ExitsUnseen", "it ends the process (exit code 0), in ExitsUnseen.reused_first"),
        (f"{file}:Nothing", "does not define Nothing"),
        ("nano-vllm", "no sliding-window groups"),
        ("vlm", "does not name a class"),
    ):
        assert main(["conform", path, "--against", asked]) == 2
        assert why in capsys.readouterr().err
    with pytest.raises(labengine.ConfigError, match="an override must be"):
        labengine.conform(path).against(3)
    assert labengine.conform(path).against(VLLM).other == labengine.conform(path).against("vllm").other


def test_traffic_that_cannot_be_judged_cannot_be_run(tmp_path: Path) -> None:
    changed = json.loads(json.dumps(FULL))
    changed[0]["header"]["settings"]["features"] = ["a KV connector"]
    result = labengine.conform(written(changed, tmp_path))
    with pytest.raises(labengine.ConfigError, match="the engine runs with a KV connector"):
        result.against("vllm")


def test_the_asynchronous_edition_runs_no_lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for settings in ({"edition": "vllm-async"}, {"parts": VLLM_ASYNC}):
        with pytest.raises(labengine.ConfigError, match="vllm-async is only for recordings"):
            labengine.Lab("simulated", num_blocks=8, **settings)
    assert main(["conform", str(written(FULL, tmp_path)), "--against", "vllm-async"]) == 0
    assert "vllm-async" in capsys.readouterr().out


NEVER = """
class Never(VLLM.scheduler):
    def admit(self, request, limit, *, is_first):
        return None
"""


def test_parts_that_never_get_through_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "never.py"
    file.write_text("from labengine.core.editions import VLLM\n" + NEVER)
    assert main(["conform", str(written(FULL, tmp_path)), "--against", f"{file}:Never"]) == 2
    assert "does not finish the traffic" in capsys.readouterr().err
