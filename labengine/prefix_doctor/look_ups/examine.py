"""Judges every look-up of a recording: how far it could have hit, and why it did not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import lcm

from labengine import events as ev
from labengine.prefix_doctor.look_ups.admitted import Admitted, Shared
from labengine.prefix_doctor.look_ups.content import CachedContent
from labengine.prefix_doctor.look_ups.look_up import LookUp, MissedTokens
from labengine.prefix_doctor.look_ups.missing import Known, Missing
from labengine.prefix_doctor.look_ups.own_hashes import facts_of
from labengine.prefix_doctor.look_ups.prefix_tree import Sequences, sequences_of
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.record.snapshot import GroupState


@dataclass(frozen=True)
class Examination:
    """The look-ups of a recording in order. num_waiting: number of requests never admitted."""

    recording: RecordedEngine
    sequences: Sequences
    groups: tuple[GroupState, ...]
    look_ups: tuple[LookUp, ...]
    num_waiting: int

    @property
    def unit(self) -> int:
        """Tokens between two places at which a hit may end, where all groups have complete blocks."""
        return unit_of(self.groups)


def unit_of(groups: tuple[GroupState, ...]) -> int:
    """Return the least common multiple of the block sizes."""
    return lcm(*(group.block_size for group in groups))


def examine(recording: RecordedEngine) -> Examination:
    """Judge every look-up of a recording."""
    facts = facts_of(recording)
    sizes = [group.block_size for group in facts.groups] or [1]
    sequences = sequences_of(sizes, facts.tokens, facts.hashes, recording.salts)
    known = Known(recording.is_late, facts, sequences, CachedContent(recording.first))
    known.untold.update(recording.first.prefix_map.keys() - facts.told)
    look_ups = tuple(_Walk(recording, known).look_ups())
    admitted = {one.request_id for one in look_ups} | known.admitted_before
    return Examination(recording, sequences, facts.groups, look_ups, len(facts.tokens.keys() - admitted))


class _Walk:
    """Applies the events in order, and judges each look-up in the state before it."""

    def __init__(self, recording: RecordedEngine, known: Known) -> None:
        self._recording, self._known = recording, known
        self._admitted = Admitted(known.sequences)
        self._counts: dict[int, int] = defaultdict(int)
        for request_id, request in recording.first.requests.items():
            if request.status != "waiting":
                known.admitted_before.add(request_id)
                self._counts[request_id] = 1
                self._admitted.add(request_id, len(request.token_ids))
            if any(request.block_tables):
                known.holders.add(request_id)

    def look_ups(self) -> Iterator[LookUp]:
        """Yield a look-up for each admission."""
        events = self._recording.events
        for number, event in enumerate(events):
            match event:
                case ev.PrefixHit():
                    following = events[number + 1] if number + 1 < len(events) else None
                    yield self._judge(event, number, _external(event, following))
                case ev.TokenSampled(request_id, _, position):
                    self._admitted.add(request_id, position + 1)
                case ev.RequestPreempted(request_id) | ev.RequestFinished(request_id):
                    self._known.holders.discard(request_id)
            self._known.content.apply(event)

    def _judge(self, event: ev.PrefixHit, moment: int, num_external: int) -> LookUp:
        request_id, num_hit = event.request_id, event.num_tokens
        self._counts[request_id] += 1
        state = self._known.content.state
        num_tokens = len(state.requests[request_id].token_ids)
        shared = self._admitted.shared_by(request_id, num_tokens)
        misses = _joined(self._misses(request_id, num_hit + num_external, num_tokens, shared))
        self._admitted.add(request_id, num_tokens)
        self._known.holders.add(request_id)
        return LookUp(
            request_id=request_id,
            name=self._recording.name_of(request_id),
            number=self._counts[request_id],
            step=state.step,
            moment=moment,
            num_tokens=num_tokens,
            num_hit=num_hit,
            num_external=num_external,
            num_shared=shared.num_tokens,
            shared_with=shared.request_id,
            misses=misses,
        )

    def _misses(self, request_id: int, start: int, num_tokens: int, shared: Shared) -> Iterator[MissedTokens]:
        """Yield the causes of all tokens from start on: those that a hit could have had, then the prompt's end."""
        unit = unit_of(self._known.groups)
        last = (num_tokens - 1) // unit * unit
        missing = Missing(request_id, shared, self._known)
        for end in range(start // unit * unit + unit, last + 1, unit):
            miss = missing.before(max(start, end - unit), end)
            if miss.cause == "passed_over" and miss.start == start and self._recording.drops_last_block:
                miss = replace(miss, cause="dropped")
            yield from _split(miss, shared)
        if num_tokens > max(start, last):
            yield MissedTokens("tail", max(start, last), num_tokens)


def _external(event: ev.PrefixHit, following: ev.Event | None) -> int:
    """Return the number of tokens in the external tier after a hit, as told by the next event."""
    if isinstance(following, ev.ExternalHit) and following.request_id == event.request_id:
        return following.num_tokens
    return 0


def _split(miss: MissedTokens, shared: Shared) -> Iterator[MissedTokens]:
    """Yield a miss; for new tokens, first those that another request shares, but not to the block's end."""
    if miss.cause == "new" and miss.start < shared.num_tokens < miss.end:
        yield replace(miss, cause="short_of_a_block", end=shared.num_tokens, request_id=shared.request_id)
        yield replace(miss, start=shared.num_tokens)
    else:
        yield miss


def _joined(misses: Iterable[MissedTokens]) -> tuple[MissedTokens, ...]:
    """Join neighbours with the same cause; the first one's details represent all."""
    found = list[MissedTokens]()
    for miss in misses:
        if found and found[-1].cause == miss.cause:
            found[-1] = replace(found[-1], end=miss.end)
        else:
            found.append(miss)
    return tuple(found)
