"""Judges every look-up of a recording: how far it could have hit, and why it did not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from labengine import events as ev
from labengine.prefix_doctor.look_ups.admitted import Admitted, Shared
from labengine.prefix_doctor.look_ups.content import CachedContent
from labengine.prefix_doctor.look_ups.known import Known
from labengine.prefix_doctor.look_ups.look_up import LookUp, MissedTokens
from labengine.prefix_doctor.look_ups.missing import Missing, joined, misses_of, unit_of
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
        misses = joined(self._misses(request_id, num_hit + num_external, num_tokens, shared))
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
        known = self._known
        missing = Missing(known.groups, partial(known.cause_of, request_id, shared))
        for miss in misses_of(missing, start, num_tokens, unit_of(known.groups), shared=shared.num_tokens):
            is_dropped = miss.cause == "passed_over" and miss.start == start and self._recording.drops_last_block
            yield replace(miss, cause="dropped") if is_dropped else miss


def _external(event: ev.PrefixHit, following: ev.Event | None) -> int:
    """Return the number of tokens in the external tier after a hit, as told by the next event."""
    if isinstance(following, ev.ExternalHit) and following.request_id == event.request_id:
        return following.num_tokens
    return 0
