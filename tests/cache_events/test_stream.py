from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pytest

from kv_batches import SOURCE, messages, payload, stored, streamed
from labengine.vllm.cache_events.stream import EventStream, Message

BATCHES = [payload(stored([number], [number] * 4), at=1000.0 + number) for number in range(1, 9)]
ALL = messages(*BATCHES)


class Buffer:
    """What a publisher still has: the batches from one on."""

    def __init__(self, first: int = 0) -> None:
        self.asked: list[int] = []
        self._first = first

    def __call__(self, source: int, number: int) -> Iterable[Message]:
        self.asked.append(number)
        return [message for message in ALL if message.number >= max(number, self._first)]


def taken(numbers: Iterable[int], buffer: Buffer | None = None) -> tuple[EventStream, list[int]]:
    """The stream of these of the batches, and the numbers of those that were kept."""
    kept: list[int] = []
    keep = lambda message: kept.append(message.number)  # noqa: E731
    stream = EventStream((SOURCE,), buffer, keep) if buffer else EventStream((SOURCE,), keep=keep)
    for number in numbers:
        stream.take(ALL[number])
    return stream, kept


def test_missing_batches_are_asked_for_and_folded_in_order() -> None:
    buffer = Buffer()
    stream, kept = taken((0, 1, 5, 6), buffer)
    assert kept == [*range(7)] and buffer.asked == [1]
    assert (stream.num_replayed, stream.num_missing, list(stream.notes)) == (3, 0, [])


def test_what_is_not_replayed_is_a_gap_and_all_that_was_there_is_in_doubt() -> None:
    stream, kept = taken((0, 1, 5, 6), Buffer(first=4))
    assert kept == [0, 1, 4, 5, 6] and stream.num_missing == 2
    assert list(stream.notes) == [f"{SOURCE}, rank 0: batches 2 to 3 are missing"]
    ((presences),) = stream.cache.presences().values()
    assert sorted((one.value, number) for one, number in presences.items()) == [("cached", 3), ("unknown", 2)]


def test_a_late_reader_asks_for_the_beginning() -> None:
    stream, kept = taken((3, 4), Buffer())
    assert kept == [*range(5)] and not stream.late
    stream, kept = taken((3, 4), Buffer(first=2))
    assert kept == [2, 3, 4] and stream.late == {(0, 0): 2} and not stream.notes


def test_batches_that_wait_in_the_connection_after_a_replay_are_the_same_ones() -> None:
    stream, kept = taken((), Buffer())
    stream.catch_up(ALL[:5])
    for message in ALL[2:7]:
        stream.take(message)
    stream.take(ALL[6])
    assert not stream.notes and stream.num_batches == 7 and kept == [*range(7)]


def test_an_engine_that_begins_anew_begins_with_an_empty_cache() -> None:
    stream, _ = taken((0, 1, 2))
    stream.take(Message(0, 0, payload(stored([77], range(4)), at=2000.0)))
    assert list(stream.notes) == [f"{SOURCE}, batch 0: the engine restarted after batch 2, with an empty cache"]
    ((presences),) = stream.cache.presences().values()
    assert sorted((one.value, number) for one, number in presences.items()) == [("cached", 1), ("gone", 3)]


def test_an_engine_that_began_anew_while_nobody_listened_is_found_by_its_replay() -> None:
    now = messages(*(payload(stored([number], range(4)), at=2000.0 + number) for number in range(50, 59)))
    for other in ("gap", "silence"):
        stream = EventStream((SOURCE,), lambda source, number: now[number:])
        for message in ALL[:3]:
            stream.take(message)
        if other == "gap":
            stream.take(now[8])
        else:
            stream.catch_up(now[stream.newest_number(0) :])
        (note,) = stream.notes
        assert "the engine restarted after batch 2" in note
        ((presences),) = stream.cache.presences().values()
        assert sorted((one.value, number) for one, number in presences.items()) == [("cached", 9), ("gone", 3)]


def test_each_rank_numbers_its_own_batches() -> None:
    stream = EventStream(("tcp://a:1", "tcp://a:2"))
    ranks = (messages(*(payload(stored([n], [n] * 4), rank=rank) for n in (1, 2, 3)), source=rank) for rank in (0, 1))
    for message in chain.from_iterable(zip(*ranks, strict=True)):
        stream.take(message)
    assert not stream.notes and [place[:2] for place in sorted(stream.cache.places)] == [(0, 0), (1, 1)]


def test_bytes_that_are_no_batch_leave_a_gap() -> None:
    stream = streamed(BATCHES[0], b"\xc1", BATCHES[2])
    assert stream.num_unreadable == 1 and stream.num_missing == 1
    assert "batch 1 cannot be read: it must be msgpack" in stream.notes[0] and "batch 1 is missing" in stream.notes[1]


@pytest.mark.parametrize("number", [2**63, 2**64 - 2])
def test_a_number_far_away_is_a_gap_as_any_other(number: int) -> None:
    stream, _ = taken((0,))
    stream.take(Message(0, number, BATCHES[1]))
    assert stream.num_missing == number - 1
