"""The doctor on recorded streams of vLLM with drafts, priorities and states."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from differential import vllm_streams
from labengine import events as ev
from labengine.prefix_doctor.diagnosis import Diagnosis
from recorded_engines import diagnosis_without_runs, recorded_engine
from recorded_files import written

RUNS = dict(zip(vllm_streams.recorded_kinds(), vllm_streams.read(vllm_streams.KINDS_PATH), strict=True))


def examined(kind: str, folder: Path) -> list[Diagnosis]:
    return [diagnosis_without_runs(written(items, folder)) for (name, _), (_, items) in RUNS.items() if name == kind]


def test_every_token_has_its_cause(tmp_path: Path) -> None:
    causes = Counter[str]()
    for kind in vllm_streams.RECORDED_KINDS:
        for found in examined(kind, tmp_path):
            for one in (found.sums, found.report.sums_again):
                assert one.num_hit + sum(one.missed.values()) == one.num_tokens
                causes.update(one.missed)
    assert not causes["unknown"] and not causes["passed_over"] and causes["dropped"] > 20, causes


def test_what_eagle_computes_again_is_no_fault_of_the_cache(tmp_path: Path) -> None:
    eagle = [
        diagnosis_without_runs(written(items, tmp_path)).look_ups
        for workload, items in RUNS.values()
        if workload.get("speculation", {}).get("drafter") == "eagle"
    ]
    dropped = [one for look_ups in eagle for one in look_ups if one.verdict == "dropped"]
    why = "were cached: the drafter needs the hidden states of a hit's last block"
    assert len(dropped) > 5 and all(why in one.sentence for one in dropped)
    assert all(miss.num_tokens <= 4 for one in dropped for miss in one.misses if miss.cause == "dropped")


def test_a_hit_needs_the_state_at_its_end_and_no_other(tmp_path: Path) -> None:
    sentences = [one.sentence for found in examined("states", tmp_path) for one in found.look_ups]
    assert any("the state group kept no state at their end" in one for one in sentences)
    assert not any("gave up its blocks before they were registered" in one for one in sentences)


def test_the_notes_count_drafts_and_overtaken_requests(tmp_path: Path) -> None:
    for workload, items in RUNS.values():
        if not workload.get("speculation"):
            continue
        path = written(items, tmp_path)
        note = diagnosis_without_runs(path).report.notes[0]
        judged = [event for event in recorded_engine(path).events if isinstance(event, ev.DraftsJudged)]
        numbers = [int(one.replace(",", "")) for one in re.findall(r"[0-9,]+(?= drafts?|(?= \())", note)]
        num_accepted = sum(event.num_accepted for event in judged)
        assert numbers == [num_accepted + sum(event.num_rejected for event in judged), num_accepted]
    assert any("more urgent" in note for note in notes("priority", tmp_path))
    assert not any("more urgent" in note for note in notes("states", tmp_path))


def notes(kind: str, folder: Path) -> list[str]:
    return [note for found in examined(kind, folder) for note in found.report.notes]
