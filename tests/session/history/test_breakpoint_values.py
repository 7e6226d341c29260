"""The values that a breakpoint may wait for: as printed, and refused if no event can have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from labengine import events as ev
from labengine.config import ConfigError
from labengine.lab import Lab
from sessions import story, two_equal_requests


@pytest.fixture
def lab() -> Iterator[Lab]:
    with two_equal_requests() as lab:
        yield lab


@pytest.mark.parametrize("letters", ["B", "b"])
def test_requests_by_their_letters(lab: Lab, letters: str) -> None:
    waiting = lab.break_on(ev.TokenSampled, request_id=letters, position=15)
    assert str(waiting.condition) == "TokenSampled request_id=1 position=15"
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.event == ev.TokenSampled(1, lab.output(1).token_ids[2], 15)
    lab.break_on(request_id="AB")
    assert str(lab.breakpoints[-1].condition) == "any event with request_id=27"


@pytest.mark.parametrize("shorten", [lambda h: h.hex(), lambda h: h.hex()[:8] + "…", lambda h: f"0:{h.hex()[:8]}",
                                     lambda h: h.hex()[:4].upper(), lambda h: h[:3], lambda h: h])  # fmt: skip
def test_hashes_as_they_are_printed(lab: Lab, shorten: Any) -> None:
    lab.step()
    cached = [event for event in story(lab) if isinstance(event, ev.BlockCached)][-1]
    lab.rewind(0)
    lab.break_on(ev.BlockCached, block_hash=shorten(cached.block_hash), request_id=cached.request_id)
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.event == cached


def test_rows_may_be_lists(lab: Lab) -> None:
    lab.break_on(ev.SlotsWritten, runs=[[0, 0, 4], (1, 0, 4), [2, 0, 4], [3, 0, 1]])
    lab.run()
    assert lab.snapshot().step == 1 and lab.stopped_at is not None and lab.stopped_at.breakpoint is lab.breakpoints[0]


def test_a_value_that_some_kinds_can_have_waits_for_those(lab: Lab) -> None:
    lab.break_on(reason="length")
    lab.run()
    assert lab.stopped_at is not None and lab.stopped_at.event == ev.RequestFinished(0, "length")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"block_id": "three"}, "block_id of BlockFreed must be a block, 0 to 11, got 'three'"),
        ({"block_id": 3.0}, "block_id of BlockFreed must be a block, 0 to 11, got 3.0"),
        ({"block_id": True}, "block_id of BlockFreed must be a block, 0 to 11, got True"),
        ({"block_id": 10**9}, "block_id of BlockFreed must be a block, 0 to 11, got 1000000000"),
        ({"block_id": -1}, "a block, 0 to 11, got -1"),
        ({"request_id": "three"}, 'request_id of BlockFreed must be a non-negative integer, such as 2 or "C"'),
        ({"request_id": -1}, "request_id of BlockFreed must be a non-negative integer"),
        ({"group": 1}, "group of BlockFreed must be a group, 0 to 0, got 1"),
        ({"queue_end": "middle"}, "queue_end of BlockFreed must be one of 'head', 'tail' or None, got 'middle'"),
        ({"reason": "reused"}, "reason of BlockFreed must be one of 'finished', 'aborted', "),
        ({"ref_count": None}, "ref_count of BlockFreed must be an integer, got None"),
    ],
)
def test_values_that_no_event_can_have_are_refused(lab: Lab, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        lab.break_on(ev.BlockFreed, **fields)
    assert lab.breakpoints == ()


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("BlockCached", {"block_hash": "xyz"}, "block_hash of BlockCached must be a hash in hex digits, got 'xyz'"),
        ("BlockCached", {"block_hash": ""}, "a hash in hex digits, got ''"),
        ("BlockCached", {"block_hash": 1234}, "a hash in hex digits, got 1234"),
        ("BlockCached", {"block_hash": "a:ab12"}, "a hash in hex digits, got 'a:ab12'"),
        ("BlockCached", {"block_hash": "ab" * 33}, "64 hex digits, got 66"),
        ("BlockCached", {"block_hash": "0:ab", "group": 1}, "names group 0, but group=1 was given"),
        ("BlockCached", {"is_full": 1}, "is_full of BlockCached must be True or False, got 1"),
        ("BlockCached", {"mapped": (3, 12)}, "a block, 0 to 11, got (3, 12)"),
        ("BlockMerged", {"into_block_id": 12}, "a block, 0 to 11, got 12"),
        ("SlotsWritten", {"runs": [(1, 2)]}, "each item (a block, 0 to 11, a non-negative integer,"),
        ("RequestFinished", {"reason": 3}, "reason of RequestFinished must be a string, got 3"),
        ("violation", {"request_ids": ["three"]}, "each item an integer"),
        (None, {"block_id": "three"}, "block_id of BlockEvicted must be a block, 0 to 11, got 'three'"),
        (None, {"block_id": 12}, "a block, 0 to 11, got 12"),
    ],
)
def test_values_of_other_kinds(lab: Lab, kind: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        lab.break_on(kind, **fields)
    assert lab.breakpoints == ()


def test_every_value_that_was_recorded_can_be_waited_for(lab: Lab) -> None:
    lab.run()
    for event in set(story(lab)):
        fields = {name: getattr(event, name) for name in type(event).__match_args__}
        with lab.break_on(type(event), **fields) as waiting:
            assert waiting.condition.is_met_by(event)
