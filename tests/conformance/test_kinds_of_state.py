"""conform with drafts, priorities and states: vLLM 0.32's recorded schedulers, and recordings that were changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from differential.tapped import TappedRun
from labengine import events as ev
from labengine.config import ConfigError
from labengine.vllm.conformance.checks import violations_of
from recorded_files import written

Item = dict[str, Any]
RUNS = dict(zip(vllm_streams.recorded_kinds(), vllm_streams.read(vllm_streams.KINDS_PATH), strict=True))
HEADER = next(iter(RUNS.values()))[1][0]["header"]
KINDS = {kind: number for number, (kind, *_) in enumerate(HEADER["kinds"])}


def items_of(kind: str, *, is_async: bool = False) -> list[Item]:
    """Return a copy of the first recording of a kind."""
    items = next(
        items for (name, _), (workload, items) in RUNS.items() if (name, workload["async"]) == (kind, is_async)
    )
    copy: list[Item] = json.loads(json.dumps(items))
    return copy


def rows_of(items: list[Item], kind: str) -> list[list[Any]]:
    messages = (item["message"] for item in items if "message" in item)
    return [row for message in messages for row in message.get("e", ()) if row[0] == KINDS[kind]]


def test_the_workloads_are_those_that_are_recorded() -> None:
    assert [workload for workload, _ in RUNS.values()] == [vllm_streams.kinds_workload(*one) for one in RUNS]


def test_the_fold_equals_vllms_own_state_after_each_update() -> None:
    met = Counter[str]()
    for (name, seed), (_, items) in RUNS.items():
        run = TappedRun()
        assert run.take(items) is None, (name, seed)
        met.update({f"{name}: {kind}": number for kind, number in run.kinds.items()})
        met[f"{name}: updates"] += run.num_updates
        (piece,) = run.reader.pieces
        for event in piece.timeline.events():
            met["padding"] += isinstance(event, ev.TokensDrafted) and -1 in event.token_ids
            met["freed states"] += isinstance(event, ev.BlockFreed) and event.reason == "state"
            met["rejected"] += isinstance(event, ev.DraftsJudged) and event.num_rejected > 0
            met["accepted"] += isinstance(event, ev.DraftsJudged) and event.num_accepted > 0
            met["priorities"] += isinstance(event, ev.RequestAdded) and event.priority != 0
    assert min(met[name] for name in ("freed states", "rejected", "accepted", "priorities")) > 20 and met["padding"]
    assert min(met[f"{kind}: {what}"] for kind in vllm_streams.RECORDED_KINDS for what in ("updates", "PrefixHit")) > 10
    assert met["priority: RequestPreempted"] and met["states: StateCopied"] and met["states: RequestPreempted"]
    assert met["states and drafts: BlockMoved"] and not met["states and drafts: StateAdvanced"]


def test_every_recorded_stream_conforms_to_its_end(tmp_path: Path) -> None:
    editions = Counter[str]()
    for (kind, seed), (_, items) in RUNS.items():
        result = labengine.conform(written(items, tmp_path))
        assert result and result.num_judged == result.num_events, f"{kind} {seed}: {result!r}"
        editions[result.edition] += 1
    assert set(editions) == {"vllm", "vllm-async", "vllm, priority", "vllm-async, priority"}


Change = Callable[[list[Item]], None]


def _header(**settings: Any) -> Change:
    return lambda items: items[0]["header"]["settings"].update(settings)


def _speculation(**settings: Any) -> Change:
    return lambda items: items[0]["header"]["settings"]["speculation"].update(settings)


def _row(kind: str, field: int, value: Any, number: int = 0) -> Change:
    """Return a change of one field of a row of a kind, of those in which it is another one."""

    def change(items: list[Item]) -> None:
        [row for row in rows_of(items, kind) if row[field] != value][number][field] = value

    return change


WRONG = {
    "no policy": ("priority", _header(features=[]), None),
    "another priority": ("priority", _row("RequestAdded", 6, 7), None),
    "fewer drafts in a step": ("speculation", _row("RequestScheduled", 6, 0), ev.RequestScheduled),
    "other drafts than were offered": ("speculation", _row("TokensDrafted", 2, [9, 9]), ev.TokensDrafted),
    "a state is freed otherwise": ("states", _row("BlockFreed", 6, None), ev.BlockFreed),
    "another block for a state": ("states", _row("BlockAllocated", 1, 1, 5), ev.BlockAllocated),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_recording_in_which_something_else_happens_differs(name: str, tmp_path: Path) -> None:
    kind, change, event = WRONG[name]
    items = items_of(kind)
    change(items)
    result = labengine.conform(written(items, tmp_path))
    assert result.exit_code == 1 and result.difference is not None, repr(result)
    assert event is None or isinstance(result.difference.recorded.event, event)


UNJUDGED = {
    "several modules": (_speculation(num_prefill_lookahead=9), "whose slots and hits no edition models"),
    "numbers by batch": (_speculation(is_dynamic=True), "number of drafts depends on the batch"),
    "other slots": (_speculation(num_lookahead=99), "whose slots and hits no edition models"),
    "no drafts": (
        _speculation(num_drafts="many", num_lookahead="many"),
        "supports its scheduler's settings: num_drafts",
    ),
    "not a table": (_header(speculation=None), "does not say how it speculates"),
    "an assertion of vLLM's": (
        _header(long_prefill_token_threshold=1),
        "its settings: long_prefill_token_threshold",
    ),
}


@pytest.mark.parametrize("name", UNJUDGED)
def test_speculation_that_no_edition_has_is_named(name: str, tmp_path: Path) -> None:
    change, why = UNJUDGED[name]
    items = items_of("speculation")
    change(items)
    result = labengine.conform(written(items, tmp_path))
    assert result.exit_code == 2 and result.num_judged == 0 and why in result.why_unjudged


@pytest.mark.parametrize(
    "feature", ["checkpoints of states inside a chunk", "hits inside a block of a state", "a KV connector"]
)
def test_other_features_are_named(feature: str, tmp_path: Path) -> None:
    items = items_of("states")
    _header(features=["policy priority", feature])(items)
    assert labengine.conform(written(items, tmp_path)).why_unjudged == f"the engine runs with {feature}"


def test_an_output_without_tokens_ends_the_judging(tmp_path: Path) -> None:
    items = items_of("speculation")
    for item in items:
        rows = item.get("message", {}).get("e", [])
        rows[:] = [row for row in rows if row[0] != KINDS["DraftsJudged"]]
    result = labengine.conform(written(items, tmp_path))
    assert result.exit_code == 2 and "an output is missing the drafts" in result.why_unjudged


def test_the_oracle_follows_drafts_and_states() -> None:
    """An accepted draft that is another token than the one whose KV was written; a state that goes on elsewhere."""
    for kind in ("speculation", "states"):
        run, items = TappedRun(), items_of(kind)
        assert run.take(items) is None and not violations_of(run.reader.pieces[0])
    accepted = items_of("speculation")
    for item in accepted:
        rows = item.get("message", {}).get("e", ())
        for before, row in pairwise(rows):
            if before[0] == KINDS["DraftsJudged"] and before[2] > 0:
                row[2] += 7
    assert "read" in _rules(accepted)


def _rules(items: list[Item]) -> set[str]:
    reader = TappedRun()
    reader.take(item for item in items if "state" not in item)
    return {one.rule for one in violations_of(reader.reader.pieces[0])}


def test_traffic_with_drafts_is_not_run_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="guesses came from the recorded worker"):
        labengine.conform(written(items_of("speculation"), tmp_path)).against("labengine")


def test_traffic_by_priority_is_run_again(tmp_path: Path) -> None:
    result = labengine.conform(written(items_of("priority"), tmp_path))
    again = result.against("vllm")
    assert again.names[1] == "vllm, priority" and again.recorded == again.other
    with pytest.raises(ConfigError, match="priorities"):
        result.against("nano-vllm")
