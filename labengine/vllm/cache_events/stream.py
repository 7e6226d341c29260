"""Orders the messages of one or several publishers: gaps, replays, restarts, and unreadable messages."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.decoding import Decoder
from labengine.vllm.cache_events.schema import Batch

MAX_BLOCKS = 200_000
MAX_NOTES = 50
MAX_TIMES = 20_000
"""Number of batches of a rank whose times are kept; a publisher replays 10,000."""

Key = tuple[int, int | None]
"""A source and a data-parallel rank, since each rank numbers its batches."""


class Message(NamedTuple):
    """An encoded batch."""

    source: int
    number: int
    payload: bytes


Replay = Callable[[int, int], Iterable[Message]]
"""Called with (source, number of a batch); returns the publisher's messages from that batch on."""

Keep = Callable[[Message], None]


def no_replay(source: int, number: int) -> Iterable[Message]:
    """Return no messages."""
    return ()


class EventStream:
    """Folds messages in the order of their arrival.

    sources: their names. replay: asked for missing batches. keep: called with every folded message, in order.
    """

    def __init__(
        self,
        sources: tuple[str, ...],
        replay: Replay = no_replay,
        keep: Keep | None = None,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        self.sources = sources
        self.cache = EventCache(max_blocks)
        self.notes: deque[str] = deque(maxlen=MAX_NOTES)
        """Sentences on missing batches and restarts; the newest ones."""
        self.num_batches = 0
        self.num_replayed = 0
        self.num_missing = 0
        """Number of batches missing inside the stream, not counting those before its beginning."""
        self.num_unreadable = 0
        self.late: dict[Key, int] = {}
        """Number of the first batch of each rank whose stream did not begin with 0."""
        self._next: dict[Key, int] = {}
        self._times: dict[Key, dict[int, float]] = defaultdict(dict)
        """Times of the newest batches, by number, because replayed ones may also wait in the connection."""
        self._decoder = Decoder()
        self._replay, self._keep = replay, keep

    def take(self, message: Message) -> None:
        """Fold a message, and before it any missing messages from a replay."""
        batch = self._batch(message)
        if batch is not None:
            self._take(message, batch, self._replay)

    def catch_up(self, messages: Iterable[Message]) -> None:
        """Fold a replay from the newest batch on, because no later message has shown whether any are missing."""
        for message in messages:
            batch = self._batch(message)
            if batch is not None and self._take(message, batch, no_replay):
                self.num_replayed += 1

    def newest_number(self, source: int) -> int:
        """Return the number of a source's newest batch, of the rank furthest behind; 0 before the first."""
        return min((number - 1 for (of, _), number in self._next.items() if of == source), default=0)

    def _take(self, message: Message, batch: Batch, replay: Replay) -> bool:
        """Fold a batch; return False if it is already known."""
        key = message.source, batch.rank
        expected = self._next.get(key)
        if expected is None:
            self._begin(message, key, replay)
        elif self._times[key].get(message.number) == batch.at:
            return False
        elif message.number < expected:
            self._restart(message, key, expected)
        elif message.number > expected:
            self._fill(message, key, expected, replay)
        self._fold(message, batch, key)
        return True

    def _begin(self, message: Message, key: Key, replay: Replay) -> None:
        if message.number == 0:
            return
        missed = self._replayed(message, key, 0, replay)
        first = missed[0][0].number if missed else message.number
        if first > 0:
            self.late[key] = first
            self.cache.miss(*key)
        self._follow(missed, key, first, message.number)

    def _fill(self, message: Message, key: Key, expected: int, replay: Replay) -> None:
        """Fold missing messages before a message. Ask also for the newest known batch, to check that it is the same."""
        answers = self._replayed(message, key, expected - 1, replay)
        if answers and answers[0][0].number == expected - 1:
            _, known = answers.pop(0)
            if known.at != self._times[key].get(expected - 1):
                self._restart(message, key, expected)
                return
        self._follow(answers, key, expected, message.number)

    def _restart(self, message: Message, key: Key, expected: int) -> None:
        where = self._where(message)
        self.notes.append(f"{where}: the engine restarted after batch {expected - 1}, with an empty cache")
        self.cache.restart(*key)
        self.late.pop(key, None)
        self._times.pop(key, None)
        self._next[key] = 0
        if message.number > 0:
            self._follow(self._replayed(message, key, 0, self._replay), key, 0, message.number)

    def _follow(self, missed: list[tuple[Message, Batch]], key: Key, expected: int, end: int) -> None:
        """Fold replayed batches from `expected` to `end`, the batch that came; note those still missing."""
        for one, batch in missed:
            self._note_missing(one.source, key, expected, one.number)
            self._fold(one, batch, key)
            self.num_replayed += 1
            expected = one.number + 1
        self._note_missing(key[0], key, expected, end)

    def _note_missing(self, source: int, key: Key, expected: int, end: int) -> None:
        if expected >= end:
            return
        these = f"batch {expected} is" if end == expected + 1 else f"batches {expected} to {end - 1} are"
        self.notes.append(f"{self.sources[source]}{_rank_text(key)}: {these} missing")
        self.num_missing += end - expected
        self.cache.miss(*key)

    def _replayed(self, message: Message, key: Key, first: int, replay: Replay) -> list[tuple[Message, Batch]]:
        """Return readable replayed batches of this rank from `first` up to the message, by number."""
        found = {}
        for one in replay(message.source, first):
            if first <= one.number < message.number and one.number not in found:
                batch = self._batch(one)
                if batch is not None and batch.rank == key[1]:
                    found[one.number] = one, batch
        return [found[number] for number in sorted(found)]

    def _fold(self, message: Message, batch: Batch, key: Key) -> None:
        self._next[key] = message.number + 1
        times = self._times[key]
        times[message.number] = batch.at
        if len(times) > MAX_TIMES:
            del times[next(iter(times))]
        self.num_batches += 1
        if self._keep is not None:
            self._keep(message)
        self.cache.apply(message.source, batch, self._where(message))

    def _batch(self, message: Message) -> Batch | None:
        """Return the batch; None for unreadable bytes, which leave a gap."""
        try:
            return self._decoder.batch(message.payload)
        except ValueError as error:
            self.num_unreadable += 1
            self.notes.append(f"{self._where(message)} cannot be read: {error}")
            return None

    def _where(self, message: Message) -> str:
        return f"{self.sources[message.source]}, batch {message.number}"


def _rank_text(key: Key) -> str:
    return "" if key[1] is None else f", rank {key[1]}"
