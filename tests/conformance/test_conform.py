"""conform: vLLM 0.32's recorded schedulers against editions vllm and vllm-async, without vLLM."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import labengine
from checkout import ROOT
from differential import vllm_streams
from labengine import events as ev
from labengine.__main__ import main
from labengine.record.files.file_access import Limits
from labengine.record.timeline import Timeline
from labengine.vllm.conformance.checks import violations_of
from labengine.vllm.conformance.recorded import read
from recorded_files import written

Item = dict[str, Any]
RUNS = list(vllm_streams.read())
SYNC, ASYNC = (next(items for workload, items in RUNS if workload["async"] is flag) for flag in (False, True))

KINDS = [kind for kind, *_ in RUNS[0][1][0]["header"]["kinds"]]


def changed(items: list[Item], change: Callable[[Item], bool]) -> list[Item]:
    """Return a copy with the first message or header changed that `change` takes."""
    copy: list[Item] = json.loads(json.dumps(items))
    assert any(change(item) for item in copy)
    return copy


def in_header(**settings: Any) -> Callable[[Item], bool]:
    def change(item: Item) -> bool:
        item["header"] |= {key: value for key, value in settings.items() if key != "settings"}
        item["header"]["settings"] |= settings.get("settings", {})
        return True

    return change


def in_row(kind: str, field: int, value: Any, number: int = 0) -> Callable[[Item], bool]:
    """Return a change of one field, from 1, of the row of a kind after `number` others."""
    left = number

    def change(item: Item) -> bool:
        nonlocal left
        for row in item.get("message", {}).get("e", ()):
            if KINDS[row[0]] == kind and row[field] != value:
                if not left:
                    row[field] = value
                    return True
                left -= 1
        return False

    return change


def test_every_recorded_stream_conforms_to_its_end(tmp_path: Path) -> None:
    steps, editions = Counter[str](), Counter[str]()
    for workload, items in RUNS:
        result = labengine.conform(written(items, tmp_path))
        assert result and result.exit_code == 0 and result.num_judged == result.num_events, repr(result)
        assert result.edition == ("vllm-async" if workload["async"] else "vllm")
        editions[result.edition] += 1
        steps[result.edition] += result.num_steps
    assert min(editions.values()) >= 5 and min(steps.values()) > 200


def test_the_recordings_have_what_is_hard() -> None:
    """Aborts in flight, outputs that come after a preemption, salts and resets."""
    words, stale = Counter[str](), 0
    for _, items in RUNS:
        preempted: set[int] = set()
        for item in items:
            words.update(word for _, word, *_ in item.get("message", {}).get("inputs", ()))
            for row in item.get("message", {}).get("e", ()):
                kind = KINDS[row[0]]
                if kind == "RequestPreempted":
                    preempted.add(row[1])
                elif kind == "RequestScheduled":
                    preempted.discard(row[1])
                stale += kind == "TokenSampled" and row[1] in preempted
    assert stale > 5 and {"schedule", "update", "abort", "reset", "salt", "links"} == set(words)


def test_the_first_difference_names_step_request_and_both_methods(tmp_path: Path) -> None:
    """A recording in which one block went to the head of the queue."""
    items = changed(SYNC, in_row("BlockFreed", 6, "head", 3))
    result = labengine.conform(written(items, tmp_path))
    found = result.difference
    assert found is not None and not result and result.exit_code == 1
    assert isinstance(found.recorded.event, ev.BlockFreed) and found.recorded.event.queue_end == "head"
    assert isinstance(found.expected.event, ev.BlockFreed) and found.expected.event.queue_end == "tail"
    assert found.recorded.method.startswith("BlockPool.free_blocks, vllm/v1/core/block_pool.py, line ")
    assert found.expected.method == "BlockPool.reused_first, labengine.core.block_pool"
    assert found.request and found.number == result.num_judged and f"step {found.step}, request" in str(found)
    comparison = result.compare()
    same = comparison.first_difference()
    assert same is not None and same.moments == (found.number, found.number) and same.step == found.step
    assert comparison.title.startswith("vllm 0.32.0 Scheduler") and "edition vllm" in comparison.names


def test_a_decision_that_is_missing_is_the_difference(tmp_path: Path) -> None:
    items = changed(ASYNC, _without("BlockCached"))
    found = labengine.conform(written(items, tmp_path)).difference
    assert found is not None and isinstance(found.expected.event, ev.BlockCached)


def _without(kind: str) -> Callable[[Item], bool]:
    def change(item: Item) -> bool:
        rows = item.get("message", {}).get("e", [])
        place = next((n for n, row in enumerate(rows) if KINDS[row[0]] == kind), None)
        if place is None:
            return False
        del rows[place]
        inputs = item["message"]["inputs"]
        item["message"]["inputs"] = [[n - (n > place), *words] for n, *words in inputs]
        return True

    return change


def test_hashes_may_be_others_but_not_fall_together(tmp_path: Path) -> None:
    """Each engine has a hash function of its own; two contents under one hash are a difference."""
    hashes = [row[5] for item in SYNC for row in item.get("message", {}).get("e", ()) if KINDS[row[0]] == "BlockCached"]
    other = next(n for n, found in enumerate(hashes) if found not in hashes[:n] and n)
    items = changed(SYNC, in_row("BlockCached", 5, hashes[0], other))
    found = labengine.conform(written(items, tmp_path)).difference
    assert found is not None and isinstance(found.recorded.event, ev.BlockCached)


BROKEN = [(workload["broken"], items) for workload, items in vllm_streams.read(vllm_streams.BROKEN_PATH)]


@pytest.mark.parametrize(("name", "items"), BROKEN, ids=[name for name, _ in BROKEN])
def test_the_first_wrong_event_of_a_broken_vllm_is_named(name: str, items: list[Item], tmp_path: Path) -> None:
    """Recorded with copies of vLLM in which one method was changed: differential/vllm_upstream_broken.py."""
    result = labengine.conform(written(items, tmp_path))
    found = result.difference
    assert found is not None and result.exit_code == 1 and 0 < result.num_judged < result.num_events
    broken, method, kind = {
        "free order reversed": ("BlockPool.free_blocks, differential/", "KVCacheGroup.freeing_order", ev.BlockFreed),
        "touch leaves the queue": ("BlockPool._maybe_evict_cached_block, vllm/", "BlockPool.take", ev.BlockEvicted),
        "unhashed to the tail": ("BlockPool.free_blocks, differential/", "BlockPool.reused_first", ev.BlockFreed),
        "late merge": ("BlockPool.touch", "", ev.BlockPinned),
        "freed too early": ("BlockPool.free_blocks, vllm/", "KVCacheManager.slot_runs", ev.BlockUnpinned),
        "salt left out": ("KVCacheManager.get_computed_blocks", "", ev.PrefixHit),
        "youngest first": ("FCFSRequestQueue.add_request, differential/", "Scheduler.next_waiting", ev.PrefixHit),
    }[name]
    assert found.recorded.method.startswith(broken) and found.expected.method.startswith(method)
    assert isinstance(found.recorded.event, kind)
    if name not in ("freed too early", "salt left out"):
        assert isinstance(found.expected.event, type(None) if name == "late merge" else kind)
    if name == "late merge":
        assert found.request and "is pinned" in str(found)
    if name == "unhashed to the tail":
        assert isinstance(found.recorded.event, ev.BlockFreed) and isinstance(found.expected.event, ev.BlockFreed)
        assert (found.recorded.event.queue_end, found.expected.event.queue_end) == ("tail", "head")
        assert found.recorded.event.block_id == found.expected.event.block_id
    rules = {one.rule for one in result.violations}
    assert ("held" in rules) == (name == "freed too early") and (name != "touch leaves the queue" or "read" in rules)
    assert ("scope" in rules) == (name == "salt left out") and (not rules or "first" not in name)
    if name == "freed too early":
        assert found.request and re.search(r"Block #\d+ was freed, but is still \w+'s table\[0\]", str(found))
        assert re.search(r"block \d+ was freed, but is still table\[0\] of request \d+", str(result))
    assert result.compare().timelines[1].end > found.number or name == "late merge"


def test_a_notebook_shows_both_sides_at_the_first_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, items = BROKEN[0]
    labengine.conform(written(items, tmp_path))._ipython_display_()
    verdict, *sides = capsys.readouterr().out.split("block")
    assert "First difference: step 3" in verdict and len(sides) > 2
    labengine.conform(written(SYNC, tmp_path))._ipython_display_()
    assert capsys.readouterr().out.endswith("in 21 steps.\n")


def test_the_how_to_prints_what_the_command_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "vllm_bisect.md").read_text(encoding="utf-8")
    judged = {name: labengine.conform(written(items, tmp_path)) for name, items in reversed(BROKEN)}
    reversed_order, merge = judged["free order reversed"], judged["late merge"]
    assert repr(reversed_order) in page and repr(reversed_order.against("vllm")) in page
    assert str(merge.difference) in page


# -- what cannot be judged ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            in_header(engine="vllm 0.31.0"),
            "the stream is from vllm 0.31.0, but the editions decide like vllm 0.32",
        ),
        (in_header(settings={"features": ["no prefix caching"]}), "the engine runs with no prefix caching"),
        (in_header(settings={"features": None}), "its header is missing the scheduler's settings"),
        (in_header(settings={"watermark": 7}), "no edition supports its scheduler's settings: watermark must be"),
        (in_header(settings={"max_num_seqs": None}), "no edition supports its scheduler's settings: max_num_seqs"),
        (in_header(settings={"max_model_len": None}), "the maximum length of a request"),
    ],
)
def test_nothing_is_judged_of_what_no_edition_is(change: Any, why: str, tmp_path: Path) -> None:
    result = labengine.conform(written(changed(SYNC, change), tmp_path))
    assert result.exit_code == 2 and result.num_judged == 0 and why in result.why_unjudged
    with pytest.raises(labengine.ConfigError, match="nothing to compare"):
        result.compare()


def test_a_request_that_skips_the_cache_is_followed(tmp_path: Path) -> None:
    """As one with prompt_logprobs does. The first request finds nothing in any case."""

    def unread(item: Item) -> bool:
        rows = item.get("message", {}).get("e")
        if rows:
            item["message"]["inputs"].append([len(rows), "unread", 0])
        return bool(rows)

    skipped = changed(SYNC, in_row("PrefixHit", 4, True))
    assert labengine.conform(written(changed(skipped, unread), tmp_path))
    found = labengine.conform(written(skipped, tmp_path)).difference
    assert found is not None and isinstance(found.recorded.event, ev.PrefixHit)
    assert labengine.conform(written(changed(SYNC, unread), tmp_path)).exit_code == 1


def _unusual(item: Item) -> bool:
    inputs = item.get("message", {}).get("inputs", [])
    if item.get("message", {}).get("n", 0) < 6 or not inputs:
        return False
    inputs.insert(0, [inputs[0][0], "unusual", "request cmpl-3 has a LoRA adapter"])
    return True


def test_a_feature_ends_the_judging_where_it_comes(tmp_path: Path) -> None:
    result = labengine.conform(written(changed(SYNC, _unusual), tmp_path))
    assert result.exit_code == 2 and 0 < result.num_judged < result.num_events
    assert "request cmpl-3 has a LoRA adapter. Up to there it conforms, in" in result.verdict


def test_an_end_that_no_edition_knows_ends_the_judging(tmp_path: Path) -> None:
    items = next(items for workload, items in RUNS if "aborts" in workload and _has_abort(items))
    result = labengine.conform(written(changed(items, _as_error), tmp_path))
    assert result.exit_code == 2 and "ended with 'error'" in result.why_unjudged and result.num_judged


def _has_abort(items: list[Item]) -> bool:
    return any(word == "abort" for item in items for _, word, *_ in item.get("message", {}).get("inputs", ()))


def _as_error(item: Item) -> bool:
    for row in item.get("message", {}).get("e", ()):
        if KINDS[row[0]] == "RequestFinished" and row[2] == "abort":
            row[2] = "error"
            return True
    return False


def test_a_gap_a_cut_and_a_missing_end_are_never_taken_for_conformance(tmp_path: Path) -> None:
    messages = [item for item in SYNC if "message" in item]
    last = next(item for item in reversed(messages) if "k" in item["message"])
    gap = labengine.conform(written([SYNC[0], *messages[:5], last, messages[-1]], tmp_path))
    assert gap.exit_code == 2 and "a gap (messages 5 to" in gap.why_unjudged and gap.num_judged > 20
    idle = next(i for i, item in enumerate(messages) if item["message"].get("idle"))
    path = written([SYNC[0], *messages[:idle]], tmp_path)
    assert "without an end" in labengine.conform(path).why_unjudged
    path.write_bytes(path.read_bytes()[:-5])
    cut = labengine.conform(path)
    assert cut.exit_code == 2 and "in the middle of a line" in cut.why_unjudged
    short = labengine.conform(written(SYNC, tmp_path), max_events=100)
    assert short.exit_code == 2 and "use a larger max_events" in short.why_unjudged


# -- rules and oracle --------------------------------------------------------------------------------------------------


def test_rules_and_oracle_judge_the_recording(tmp_path: Path) -> None:
    for _, items in RUNS:
        assert violations_of(_piece(items, tmp_path)) == []
    num_parts = sum(
        row[1] for _, items in RUNS for item in items for row in _rows(item) if KINDS[row[0]] == "ForwardRan"
    )
    assert num_parts > 1000


def test_kv_that_goes_to_another_block_is_found(tmp_path: Path) -> None:
    piece = _piece(ASYNC, tmp_path)
    timeline = Timeline()
    for event in piece.timeline.events():
        if isinstance(event, ev.SlotsWritten) and event.start == 0:
            (block_id, *others), *following = event.runs
            event = replace(event, runs=((block_id + 1, *others), *following))
        timeline.record(event)
    changed_piece: Any = SimpleNamespace(
        timeline=timeline, fold=piece.fold, inputs=[], salts={}, is_late=False, start=None
    )
    rules = {one.rule for one in violations_of(changed_piece)}
    assert {"slot", "read"} <= rules


def _rows(item: Item) -> list[list[Any]]:
    rows: list[list[Any]] = item.get("message", {}).get("e", [])
    return rows


def _piece(items: list[Item], folder: Path) -> Any:
    return read(written(items, folder), Limits("a stream"), 1_000_000).piece


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_commands_exit_status_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(SYNC, tmp_path))
    assert main(["conform", path]) == 0
    assert "Conforms to edition vllm: all " in capsys.readouterr().out
    written(changed(SYNC, in_row("BlockFreed", 6, "head", 3)), tmp_path)
    assert main(["conform", path, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == "differs" and printed["difference"]["recorded"]["event"] == "BlockFreed"
    written(SYNC[:9], tmp_path)
    assert main(["conform", path]) == 2
    assert "Cannot be judged to the end" in capsys.readouterr().out
    assert main(["conform", str(tmp_path / "nothing")]) == 2
    assert "this scheduler is not tapped" in capsys.readouterr().err


def test_a_stream_without_an_end_is_judged_to_its_last_idle_moment(tmp_path: Path) -> None:
    """vLLM kills the engine of an ordinary LLM() at exit: no end is written."""
    items: list[Item] = json.loads(json.dumps([item for item in SYNC if "end" not in item.get("message", {})]))
    with_events = [item["message"] for item in items if item.get("message", {}).get("e")]
    with_events[-1]["idle"] = True
    result = labengine.conform(written(items, tmp_path))
    assert result.exit_code == 0 and result.num_judged == result.num_events
    assert f"event {result.num_events:,}, after which all requests were done" in repr(result)
    assert result.to_dict()["note"] == result.note
    wrong = changed(items, in_row("BlockFreed", 6, "head", 3))
    assert labengine.conform(written(wrong, tmp_path)).exit_code == 1
    cut = written(items, tmp_path)
    cut.write_bytes(cut.read_bytes() + b'{"n": 9')
    assert "in the middle of a line" in labengine.conform(cut).note
