"""Events and states as JSON: each one is read back equal, and anything else is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounds import ALL_GROUNDS, Ground
from labengine.events import (
    EVENT_KINDS,
    BlockCached,
    BlockFreed,
    BlocksLoaded,
    EngineStarted,
    Event,
    PrefixCacheReset,
    StepRolledBack,
    StepStarted,
    TokenSampled,
    ViolationFound,
)
from labengine.record.files.codec import KINDS, check_rows, dumps, event_of, renumbering, rows
from labengine.record.files.keyframe import checked_fold, fold_of, keyframe
from labengine.record.files.parsing import TraceError
from labengine.record.files.shapes import PoolSize
from labengine.record.fold import Fold
from labengine.record.wording import visible
from random_cases import UNHURRIED
from recordings import recording

SAMPLES: tuple[Event, ...] = (
    EngineStarted(8, (("full", 4, None), ("sliding_window", 2, 8)), "vllm", 0),
    PrefixCacheReset(),
    BlockFreed(3, 0, 1, 2, 0, "tail", "window"),
    BlockFreed(3, 0, 1, 2, 1, None, "finished"),
    BlockCached(1, 2, 0, 3, b"\x00\xff", (1, 2), False),
    BlocksLoaded(0, ((0, 1, 2, b"\x01"), (1, 1, 3, b""))),
    ViolationFound("rule", "\ud800 </script> \u2028", (1,), (), 2, None),
)


POOL = PoolSize(8, 2)


def read(row: Any) -> Event:
    check_rows([row], POOL)
    return event_of(row)


def decoded(events: list[Event]) -> list[Event]:
    """Through JSON and back."""
    return list(map(event_of, json.loads(dumps(rows(events)))))


def test_every_kind_has_its_fields_in_the_table() -> None:
    assert [kind[0] for kind in KINDS] == [kind.__name__ for kind in EVENT_KINDS]
    assert all(names == [f.name for f in fields(kind)] for kind, (_, *names) in zip(EVENT_KINDS, KINDS, strict=True))


def test_rows_are_plain_and_short() -> None:
    number = EVENT_KINDS.index(BlockFreed)
    assert (
        dumps(rows([BlockFreed(3, 0, 0, 1, 0, "tail", "finished")]))
        == f'[[{number},3,0,0,1,0,"tail","finished"]]'.encode()
    )
    assert b"\\u2028" in dumps(rows(SAMPLES)), "no line ends inside a line"


def as_shown(event: Event) -> Event:
    """Return an event whose texts hide nothing."""
    texts = {f.name: value for f in fields(event) if isinstance(value := getattr(event, f.name), str)}
    return replace(event, **{name: visible(text) for name, text in texts.items()})


def test_selected_events_come_back_equal_but_for_what_hides_text() -> None:
    shown = list(map(as_shown, SAMPLES))
    assert decoded(list(SAMPLES)) == shown != list(SAMPLES)
    assert list(map(event_of, json.loads(dumps(rows(SAMPLES))))) == shown


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_every_event_and_state_of_random_runs_comes_back_equal(ground: Ground) -> None:
    for seed in range(3):
        timeline, rng = recording(ground, seed), Random(seed)
        events = list(timeline.events())
        assert decoded(events) == events
        for _ in range(5):
            state = timeline.state(rng.randint(0, timeline.end))
            assert_same_fold(fold_of(json.loads(dumps(keyframe(state)))), state)


def assert_same_fold(one: Fold, other: Fold) -> None:
    for name in vars(other).keys() - {"changes"}:
        assert getattr(one, name) == getattr(other, name), name
    assert list(one.free_queue) == list(other.free_queue)
    assert list(one.requests) == list(other.requests)


def test_an_integer_of_another_library_becomes_an_integer() -> None:
    numpy = pytest.importorskip("numpy")
    assert decoded([TokenSampled(0, numpy.int64(7), 3)]) == [TokenSampled(0, 7, 3)]


def test_an_event_that_holds_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="ids, integers, strings and hashes"):
        dumps(rows([TokenSampled(0, {1}, 3)]))  # type: ignore[arg-type]


def test_rows_of_an_older_version_take_the_defaults() -> None:
    kinds = [
        ["StepStarted", "step"],
        ["BlockCached", "block_id", "request_id", "group", "index", "block_hash", "mapped"],
    ]
    older = renumbering(kinds)
    assert read(older([0, 5])) == StepStarted(5)
    assert read(older([1, 1, 2, 0, 3, "ab", [1]])) == BlockCached(1, 2, 0, 3, b"\xab", (1,), is_full=True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["BlockMelted", "block_id"], "event 'BlockMelted'"),
        (["StepStarted", "step", "colour"], "has fields other than"),
        (["StepRolledBack", "reason", "step"], "has fields other than"),
        ([], "no name"),
    ],
)
def test_kinds_of_a_newer_version_are_refused(kind: list[str], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        renumbering([kind])


STARTED = EVENT_KINDS.index(EngineStarted)


@pytest.mark.parametrize(
    "row",
    [
        [],
        None,
        "ab",
        {"a": 1},
        [-1, 5],
        [True, 5],
        [len(KINDS), 5],
        [EVENT_KINDS.index(StepStarted)],
        [EVENT_KINDS.index(StepStarted), 1, 2],
        [EVENT_KINDS.index(StepStarted), "1"],
        [EVENT_KINDS.index(StepStarted), True],
        [EVENT_KINDS.index(StepStarted), 1.0],
        [EVENT_KINDS.index(StepRolledBack), 1, None],
        [EVENT_KINDS.index(BlockCached), 1, 2, 0, 3, "xyz", [1], True],
        [EVENT_KINDS.index(BlockCached), 1, 2, 0, 3, "ab", ["1"], True],
        [STARTED, 10**15, [["full", 4, None]], "labengine", -1],
        [STARTED, -1, [["full", 4, None]], "labengine", -1],
        [STARTED, 4, [["full", 4]], "labengine", -1],
    ],
)
def test_what_is_no_event_is_refused(row: Any) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        read(row)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
@UNHURRIED
def test_any_json_is_an_event_or_refused(row: Any) -> None:
    try:
        event = read(row)
    except (LookupError, TypeError, ValueError):
        return
    assert decoded([event]) == [event]


FRAME = json.loads(dumps(keyframe(recording(Ground("labengine"), 3).state())))


@given(st.sampled_from(sorted(FRAME)), JSON)
@UNHURRIED
def test_any_keyframe_is_a_state_or_refused(name: str, value: Any) -> None:
    try:
        state = checked_fold(FRAME | {name: value})
    except ValueError:
        return
    state.copy()


@pytest.mark.parametrize("document", [None, [], {}, FRAME | {"free_queue": [10**6]}, FRAME | {"ref_counts": []}])
def test_what_is_no_keyframe_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="keyframe"):
        checked_fold(document)
