"""The Prometheus endpoint of a running vLLM, read with Prometheus' own parser, and the dashboard over its metrics."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import labengine
from differential import vllm_streams
from labengine.config import ConfigError
from labengine.events import BlockEvicted
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.report import following, prometheus
from labengine.prefix_doctor.report.following import Following
from labengine.prefix_doctor.report.metric_sums import MAX_SETS, LabelledSum, MetricSums
from labengine.prefix_doctor.report.prometheus import PrometheusEndpoint
from labengine.record.files.file_access import Limits
from labengine.record.fold_state import RequestFold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.reader import LiveReader
from recorded_files import written
from streams import TappedEngine, quick_sockets
from waiting import wait_until

LIMITS = Limits("a recording", 10**9, 36_000.0)  # the time counts from here
RUNS = list(vllm_streams.read())

Labels = dict[str, str]


def followed(lines: list[bytes], looks: float, rng: Random, max_events: int = 100_000) -> tuple[Sums, MetricSums]:
    """Follow a stream line by line; return the sums before its end, and at it. looks: share of lines that are seen."""
    reader, sums, follower = LiveReader("a stream", Timeline(max_events), Hooks(), 10**9), MetricSums(), None
    for line in lines:
        reader.take(line)
        if follower is None and reader.pieces:
            follower = Following(reader, nullcontext, sums)
        elif follower is not None and rng.random() < looks:
            follower.follow(is_over=False)
    assert follower is not None
    before = sums.prompts.sums
    follower.follow(is_over=True)
    follower.follow(is_over=True)
    return before, sums


def by_cause(labelled: LabelledSum) -> dict[str, int]:
    found = Counter[str]()
    for (cause, _), number in labelled.sums.items():
        found[cause] += number
    return dict(found)


def recorded(items: list[dict[str, Any]], folder: Path) -> tuple[Sums, int]:
    """Return the sums of a complete stream, and its number of evictions."""
    recordings = recordings_of(written(items, folder), None, LIMITS)
    num_evicted = sum(isinstance(event, BlockEvicted) for one in recordings for event in one.events)
    return Sums.of(one for each in recordings for one in examine(each).look_ups if one.is_first), num_evicted


# -- each look-up once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [1.0, 0.2])
def test_sums_of_a_growing_stream_are_the_doctors(
    looks: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "REST", 1)
    num_before = num_prompts = 0
    for seed, (_, items) in enumerate(RUNS[::2]):
        before, sums = followed(vllm_streams.lines_of(items), looks, Random(seed))
        complete, num_evicted = recorded(items, tmp_path)
        assert sums.prompts.sums == complete and by_cause(sums.missed) == complete.missed
        assert sum(sums.evicted.sums.values()) == num_evicted and sums.num_gaps == 0
        num_before, num_prompts = num_before + before.num_look_ups, num_prompts + complete.num_look_ups
    assert num_before > num_prompts / 2, "most verdicts are given while the engine runs"


def test_tenants_are_the_digests_of_salts() -> None:
    _, sums = followed(vllm_streams.lines_of(RUNS[1][1]), 0.0, Random(0))
    assert {tenant for _, tenant in sums.missed.sums} == {"", "ca978112ca1bbdca"}


def test_lost_events_are_counted_as_a_gap_and_both_pieces_are_added(tmp_path: Path) -> None:
    _, items = RUNS[4]
    events = [i for i, one in enumerate(items) if "e" in one.get("message", {})]
    cut = [one for i, one in enumerate(items) if i != events[len(events) // 3]]
    _, sums = followed(vllm_streams.lines_of(cut), 1.0, Random(0))
    assert sums.prompts.sums == recorded(cut, tmp_path)[0] and sums.num_gaps == 1


def test_what_came_too_fast_to_be_judged_is_a_gap() -> None:
    lines = vllm_streams.lines_of(RUNS[13][1])
    _, sums = followed(lines, 0.0, Random(0), max_events=500)
    _, complete = followed(lines, 0.0, Random(0))
    assert 0 < sums.prompts.sums.num_look_ups < complete.prompts.sums.num_look_ups
    assert (sums.num_gaps, complete.num_gaps) == (1, 0)


def test_a_short_memory_is_examined_before_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "monotonic", lambda: 0.0)  # never due by time after the first
    lines = vllm_streams.lines_of(RUNS[13][1])
    _, sums = followed(lines, 1.0, Random(0), max_events=1000)
    _, complete = followed(lines, 0.0, Random(0))
    seen, all_of_them = sums.prompts.sums, complete.prompts.sums
    assert (seen.num_tokens, seen.num_hit, sums.num_gaps) == (all_of_them.num_tokens, all_of_them.num_hit, 0)


def test_a_prompt_that_is_never_computed_holds_verdicts_back_only_while_its_events_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = list[RequestFold]()

    def is_first(request: RequestFold) -> bool:
        first.extend([] if first else [request])
        return request is first[0]

    monkeypatch.setattr(following, "_is_computing", is_first)
    lines = vllm_streams.lines_of(RUNS[13][1])
    assert followed(lines, 1.0, Random(0))[0].num_look_ups == 0
    first.clear()
    before, sums = followed(lines, 1.0, Random(0), max_events=500)
    assert before.num_look_ups > 0 and sums.num_gaps == 1


# -- labels ------------------------------------------------------------------------------------------------------------


def test_label_sets_are_bounded_and_their_sum_stays() -> None:
    kept, rng = LabelledSum(num_rest=3), Random(1)
    added = Counter[str]()
    for _ in range(2000):
        cause, number = rng.choice(("new", "tail", "evicted")), rng.randrange(9)
        kept.add((cause, str(rng.randrange(400))), number)
        added[cause] += number
    assert len(kept.sums) <= MAX_SETS
    assert by_cause(kept) == added and kept.sums["new", "other"] > 0


# -- the endpoint ------------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TappedEngine, LiveStream]]:
    quick_sockets(monkeypatch, tmp_path)
    monkeypatch.setattr(prometheus, "PERIOD", 0.0)
    engine = TappedEngine(f"unix:{tmp_path / 'tap'}", 16)
    with labengine.attach(f"unix:{tmp_path / 'tap'}") as stream:
        assert isinstance(stream, LiveStream)
        yield engine, stream
    engine.scheduler.shutdown()


def scraped(endpoint: PrometheusEndpoint) -> dict[str, list[tuple[Labels, float]]]:
    """Return the samples of each metric, by Prometheus' own parser."""
    with urllib.request.urlopen(endpoint.address) as answer:
        text = answer.read().decode()
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_scraped_counters_are_the_doctors_sums(stream: tuple[TappedEngine, LiveStream]) -> None:
    engine, live = stream
    with PrometheusEndpoint([live], 0) as endpoint:
        for _ in range(40):
            engine.step()
            endpoint.follow(0.0)
        engine.shut_down()
        wait_until(lambda: endpoint.follow(0.1))
        found, pool = scraped(endpoint), live.fold()
        sums = Sums.of(one for one in examine(recordings_of(live, None, LIMITS)[0]).look_ups if one.is_first)
    assert found["labengine_prompt_tokens_total"] == [({}, sums.num_tokens)] and sums.num_look_ups > 8
    assert found["labengine_hit_tokens_total"] == [({}, sums.num_hit)]
    assert found["labengine_prompts_total"] == [({}, sums.num_look_ups)]
    assert {one["cause"]: number for one, number in found["labengine_missed_tokens_total"]} == sums.missed
    evicted = live.timeline.of_kind(BlockEvicted)
    assert sum(number for _, number in found["labengine_evicted_blocks_total"]) == len(evicted) > 0
    blocks = {one["state"]: number for one, number in found["labengine_pool_blocks"]}
    assert blocks["used"] == pool.num_used_blocks and blocks["cached_free"] + blocks["free"] == len(pool.free_queue)


HOSTILE = ['a"b\nc\\', "}\n# HELP x y\n", "\ud800", "x" * 5000]


def test_hostile_label_values_survive_and_the_dashboard_names_only_what_is_exported(
    stream: tuple[TappedEngine, LiveStream], project_root: Path
) -> None:
    _, live = stream
    with PrometheusEndpoint([live], 0) as endpoint:
        for number, tenant in enumerate(HOSTILE):
            endpoint._sums.missed.add(("evicted", tenant), number)
        endpoint._sums.evicted.add(("decode",), 1)
        endpoint.follow(0.0)
        found = scraped(endpoint)
    shown = {one["tenant"]: number for one, number in found["labengine_missed_tokens_total"]}
    assert shown == {HOSTILE[0]: 0, HOSTILE[1]: 1, "?": 2, "x" * 64: 3}
    dashboard = json.loads((project_root / "docs" / "doctor_grafana.json").read_text(encoding="utf-8"))
    source = {"type": "prometheus", "uid": f"${{{dashboard['__inputs'][0]['name']}}}"}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert set(re.findall(r"labengine_\w+", " ".join(expressions))) == found.keys()
    grouped = set(re.findall(r"by \((\w+)\)", " ".join(expressions)))
    assert grouped == {label for samples in found.values() for labels, _ in samples for label in labels}
    assert all(panel["datasource"] == source for panel in dashboard["panels"])
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_a_taken_port_and_a_missing_library_are_sentences(
    stream: tuple[TappedEngine, LiveStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    with PrometheusEndpoint([stream[1]], 0) as endpoint:
        port = int(endpoint.address.split(":")[2].split("/")[0])
        with pytest.raises(ConfigError, match=f"port {port} cannot be served .*choose another one"):
            PrometheusEndpoint([stream[1]], port)
    with pytest.raises(ConfigError, match="port must be"):
        PrometheusEndpoint([stream[1]], 70_000)
    monkeypatch.setattr("labengine.system.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"a Prometheus endpoint needs prometheus_client: .*\[exports\]"):
        PrometheusEndpoint([stream[1]], 0)
