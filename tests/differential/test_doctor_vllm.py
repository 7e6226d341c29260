"""Live: the doctor on vLLM 0.32's own schedulers: every token has a cause, and vLLM takes all that is cached.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_doctor_vllm.py
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import labengine
from differential import vllm_streams
from differential.vllm_process import VllmProcess
from labengine.events import PrefixHit
from recorded_engines import recorded_engine

NUM_WORKLOADS = 30
NUM_SWEEP_WORKLOADS = 1000


def examined(vllm: VllmProcess, seeds: range, folder: Path) -> Counter[str]:
    """Examine a stream for each seed; return the verdicts on all look-ups, and the tokens of each cause."""
    verdicts, tokens, path = Counter[str](), Counter[str](), folder / "run.labstream"
    for seed in seeds:
        workload = vllm_streams.tapped_workload(seed)
        path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(vllm.run_tapped(workload))))
        found, events = labengine.doctor(path), recorded_engine(path).events
        assert all("never admitted" in note for note in found.report.notes)
        hits = [event.num_tokens for event in events if isinstance(event, PrefixHit)]
        assert [one.num_hit for one in found.look_ups] == hits
        for sums in (found.sums, found.report.sums_again):
            assert sums.num_hit + sum(sums.missed.values()) == sums.num_tokens
            assert not {"passed_over", "unknown"} & sums.missed.keys(), (seed, found)
            tokens.update({"hit": sums.num_hit, **sums.missed})
        verdicts.update(one.verdict for one in found.look_ups)
    print(f"{len(seeds)} workloads, {verdicts.total():,} look-ups: {dict(verdicts)}; tokens: {dict(tokens)}")
    return verdicts


@pytest.mark.timeout(600)
def test_every_token_of_vllms_prompts_has_its_cause(vllm: VllmProcess, tmp_path: Path) -> None:
    found = examined(vllm, range(300, 300 + NUM_WORKLOADS), tmp_path)
    assert min(found["evicted"], found["other_salt"], found["hit"], found["short_of_a_block"]) > 5


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_every_token_of_a_thousand_workloads_has_its_cause(vllm: VllmProcess, tmp_path: Path) -> None:
    examined(vllm, range(1000, 1000 + NUM_SWEEP_WORKLOADS), tmp_path)
