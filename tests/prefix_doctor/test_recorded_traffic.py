"""Recordings and KV events as traffic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from kv_batches import SOURCE, messages, payload, removed, stored
from labengine import events as ev
from labengine.config import ConfigError
from labengine.core.request import Image
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.traffic.recorded import traffic_of_recordings
from labengine.record.files.file_access import Limits
from labengine.vllm.cache_events.kv_files import EventRecorder
from recorded_engines import traffic_in
from recorded_files import written

RUNS = list(vllm_streams.read())


def test_a_lab_and_its_file_give_the_same_prompts(tmp_path: Path) -> None:
    lab = labengine.Lab("simulated", num_blocks=32, block_size=4, edition="vllm", policy="priority")
    lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=3, cache_salt="s", extra_keys={"lora": "a"}, priority=2)
    lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=2, images={1: ("cat", 2)}, skip_reading_prefix_cache=True)
    lab.run()
    lab.save(tmp_path / "run.lab")
    traffic = traffic_in(lab)
    first, second = traffic
    assert first.token_ids == [1, 2, 3, 4, 5] and first.extra_keys == (("lora", "a"), ("cache_salt", "s"))
    assert (first.priority, first.num_answer, len(first.answer), first.arrival, first.name) == (2, 3, 3, None, "A")
    assert second.images == (Image(1, 2, "cat"),) and second.skips_cache and not first.skips_cache
    assert list(traffic_in(tmp_path / "run.lab")) == list(traffic) == [first, second]


def test_a_stream_of_vllm_has_times_names_and_answers(tmp_path: Path) -> None:
    path = written(RUNS[1][1], tmp_path)
    (recording,) = recordings_of(path, None, Limits(path))
    added = [event for event in recording.events if isinstance(event, ev.RequestAdded)]
    sampled = sum(isinstance(event, ev.TokenSampled) for event in recording.events)
    prompts = list(traffic_in(path))
    assert [one.token_ids for one in prompts] == [list(event.token_ids) for event in added]
    assert [one.name for one in prompts] == [recording.name_of(event.request_id) for event in added]
    assert sum(len(one.answer) for one in prompts) == sampled
    arrivals: list[Any] = [one.arrival for one in prompts]
    assert arrivals[0] == 0 and arrivals == sorted(arrivals) and arrivals[-1] > 0
    assert any(one.extra_keys for one in prompts)


def test_the_streams_of_a_folder_are_replicas(tmp_path: Path) -> None:
    for rank, (_, items) in enumerate(RUNS[1:3]):
        written(items, tmp_path).rename(tmp_path / f"rank{rank}-x-0.labstream")
    traffic = traffic_in(tmp_path)
    prompts = list(traffic)
    assert {one.replica for one in prompts} == {0, 1}
    arrivals: list[Any] = [one.arrival for one in prompts]
    assert arrivals == sorted(arrivals) and list(traffic) == prompts
    assert traffic.notes[-1] == "Replicas from 0 on: rank0-x and rank1-x."
    alone = list(traffic_in(tmp_path / "rank0-x"))
    assert [one.token_ids for one in alone] == [one.token_ids for one in prompts if one.replica == 0]


def test_recordings_without_tokens_or_requests_are_refused(tmp_path: Path) -> None:
    path = written(RUNS[0][1], tmp_path)
    (recording,) = recordings_of(path, None, Limits(path))
    added = next(event for event in recording.events if isinstance(event, ev.RequestAdded))
    hidden = replace(recording, events=[replace(added, token_ids=(ev.UNKNOWN_TOKEN,))])
    with pytest.raises(ConfigError, match="recorded without token ids"):
        traffic_of_recordings({"": [hidden]})
    with pytest.raises(ConfigError, match="has no requests to play"):
        traffic_in(labengine.Lab("simulated", num_blocks=8, block_size=4))


def kv_file(folder: Path, *batches: tuple[int, bytes]) -> Path:
    path = folder / "events"
    with EventRecorder(path, (SOURCE, "tcp://127.0.0.1:5558")) as recorder:
        numbers = [0, 0]
        for source, batch in batches:
            recorder.keep(messages(batch, first=numbers[source], source=source)[0])
            numbers[source] += 1
    return path


def test_each_longest_stored_prefix_is_a_prompt(tmp_path: Path) -> None:
    path = kv_file(
        tmp_path,
        (0, payload(stored([1, 2], range(8)), at=10.0)),
        (0, payload(stored([3], range(8, 12), 2, lora_name="tuned"), removed([1]), at=11.0)),
        (1, payload(stored([1], range(4)), at=12.5)),
        (0, payload(stored([4], range(20, 24), 2), at=13.0)),
        (0, payload(stored([6], range(4), 5), at=14.0)),
    )
    traffic = traffic_in(path)
    prompts = list(traffic)
    expected = [
        (list(range(12)), 0.0, 0, (("lora", "tuned"),)),
        (list(range(4)), 1.5, 1, ()),
        ([*range(8), *range(20, 24)], 2.0, 0, ()),
    ]
    assert [(one.token_ids, one.arrival, one.replica, one.extra_keys) for one in prompts] == expected
    assert "not of requests" in traffic.notes[0] and traffic.notes[1].startswith("1 prefix left out")
