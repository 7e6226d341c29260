"""Blocks registered for equal prefixes, under any hash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.fold_state import Key
from labengine_widgets.why.locks import Numbered
from labengine_widgets.why.past import Past


class Lookup(NamedTuple):
    """A look-up in the prefix map, and the state at that moment."""

    number: int
    event: ev.PrefixHit
    state: Fold

    @property
    def token_ids(self) -> Sequence[int]:
        """Ids of the tokens looked up: the prompt, and after a preemption the generated tokens too."""
        return self.state.requests[self.event.request_id].token_ids

    @property
    def num_tokens(self) -> int:
        """Number of tokens looked up."""
        return len(self.token_ids)

    @property
    def has_tokens(self) -> bool:
        """False for a recording that leaves token ids out: all tokens would look equal."""
        return ev.UNKNOWN_TOKEN not in self.token_ids


class Registration(NamedTuple):
    """A BlockCached event of a block with equal tokens."""

    number: int
    event: ev.BlockCached

    @property
    def key(self) -> Key:
        """The block's key in the prefix map."""
        return self.event.group, self.event.block_hash


class Equals:
    """All registrations, before and after a look-up, of blocks with the requested prefix."""

    def __init__(self, registrations: Sequence[Registration], own: dict[tuple[int, int], bytes], at: int) -> None:
        self._by_place: dict[tuple[int, int], list[Registration]] = {}
        for registration in registrations:
            place = (registration.event.group, registration.event.index)
            self._by_place.setdefault(place, []).append(registration)
        self._own = own
        self._at = at

    def before(self, group: int, index: int) -> list[Registration]:
        """Return the registrations before the look-up, oldest first."""
        return [r for r in self._by_place.get((group, index), ()) if r.number < self._at]

    def after(self, group: int, index: int) -> list[Registration]:
        """Return the registrations after the look-up."""
        return [r for r in self._by_place.get((group, index), ()) if r.number >= self._at]

    def keys(self, group: int, index: int) -> set[Key]:
        """Return the keys that could have led to the block: the request's own if known, else all of equal tokens."""
        if (own := self._own.get((group, index))) is not None:
            return {(group, own)}
        return {r.key for r in self.before(group, index)}

    def own_hash(self, group: int, index: int) -> bytes | None:
        """Return the request's own hash of that block; None if it was never registered."""
        return self._own.get((group, index))


def equals_of(past: Past, lookup: Lookup) -> Equals:
    """Return all registrations of equal tokens, and the request's own hashes, from the whole recording.

    Without token ids, those under the request's own hashes.
    """
    asker = lookup.event.request_id
    registrations: list[Registration] = []
    own: dict[tuple[int, int], bytes] = _hit_hashes(lookup)
    for number, event in _that_count(past, lookup.number):
        if not isinstance(event, ev.BlockCached) or not event.is_full:
            continue
        if event.request_id == asker and number > lookup.number:
            own.setdefault((event.group, event.index), event.block_hash)
        registrations.append(Registration(number, event))
    is_equal = _has_equal_tokens(past, lookup) if lookup.has_tokens else _has_hash_of(own)
    return Equals([one for one in registrations if is_equal(one.event)], own, lookup.number)


def _has_equal_tokens(past: Past, lookup: Lookup) -> Callable[[ev.BlockCached], bool]:
    tokens, known = lookup.token_ids, dict[int, Sequence[int]]()
    final = past.timeline.state(None)

    def is_equal(event: ev.BlockCached) -> bool:
        theirs = known.setdefault(event.request_id, _tokens(final, event.request_id))
        end = (event.index + 1) * lookup.state.groups[event.group].block_size
        return end <= len(tokens) and theirs[:end] == tokens[:end]

    return is_equal


def _has_hash_of(own: dict[tuple[int, int], bytes]) -> Callable[[ev.BlockCached], bool]:
    return lambda event: own.get((event.group, event.index)) == event.block_hash


def _that_count(past: Past, lookup: int) -> list[Numbered]:
    """Return the events before the look-up, and the later ones that were not rolled back."""
    end = Past(past.timeline)
    return past.surviving(past.first, lookup) + end.surviving(lookup)


def _tokens(final: Fold, request_id: int) -> Sequence[int]:
    request = final.requests.get(request_id)
    return request.token_ids if request is not None else ()


def _hit_hashes(lookup: Lookup) -> dict[tuple[int, int], bytes]:
    """Return the hashes of the blocks that the look-up found, by group and block index."""
    own = {}
    for group, ids in enumerate(lookup.event.block_ids):
        for index, block_id in enumerate(ids):
            keys = [key for key in lookup.state.block_keys[block_id] if key[0] == group] if block_id >= 0 else []
            if len(keys) == 1:
                own[group, index] = keys[0][1]
    return own
