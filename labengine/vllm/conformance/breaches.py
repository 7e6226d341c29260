"""Rules broken at a single event of a recording: hits across tenants, and blocks freed while in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

from labengine import events as ev
from labengine.check.differences import extra_keys_unlike
from labengine.check.registrations import Registrations
from labengine.check.scope import Scope
from labengine.core.block import Key
from labengine.core.request import ExtraKeys
from labengine.core.vllm.hash_chain import VllmHashChain
from labengine.record.fold import Fold
from labengine.record.violation import Violation
from labengine.record.wording import group_suffix
from labengine.vllm.conformance.edition_run import salts_of
from labengine.vllm.stream.pieces import Piece


def breaches_of(piece: Piece) -> Iterator[Violation]:
    """Yield the violations of the rules `scope` and `held` in a piece, oldest first."""
    _, fold, events = piece.timeline.kept()
    knows_salts = piece.start is not None or not piece.is_late
    salts, registrations = salts_of(piece), Registrations()
    first_under: dict[Key, int] = {}
    scope = Scope(registrations, VllmHashChain, [group.block_size for group in piece.fold.groups])
    for number, event in enumerate(events):
        found: Violation | None = None
        match event:
            case ev.BlockCached() if knows_salts:
                registrations.add(event, salts.get(event.request_id, ()), None, number)
                first = first_under.setdefault((event.group, event.block_hash), event.request_id)
                found = _named_alike(event, first, salts)
            case ev.BlockEvicted(block_id):
                registrations.evict(block_id)
            case ev.HashesMoved(block_id, into_block_id):
                registrations.move(block_id, into_block_id)
            case ev.PrefixHit() if knows_salts:
                request = SimpleNamespace(token_ids=[], extra_keys=salts.get(event.request_id, ()), images=())
                found = scope.judge(event, request)
            case ev.BlockUnpinned(block_id):
                found = _freed_in_use(fold, block_id)
        fold.apply(event)
        if found is not None:
            yield Violation(found.rule, found.message, found.request_ids, found.block_ids, fold.step)


def _named_alike(event: ev.BlockCached, first: int, salts: Mapping[int, ExtraKeys]) -> Violation | None:
    """Return the violation of a hash shared by blocks with different extra keys, so that each can hit the other's."""
    theirs, ours = salts.get(first, ()), salts.get(event.request_id, ())
    if theirs == ours:
        return None
    names = extra_keys_unlike(theirs, ours)
    text = (
        f"block {event.block_id} of request {event.request_id}, which has {names[1]}, is registered under the hash of "
        f"a block of request {first}, which has {names[0]}: each can hit the other's"
    )
    return Violation("scope", text, (first, event.request_id), (event.block_id,))


def entries_of(fold: Fold, block_id: int) -> list[tuple[int, int, int]]:
    """Return (request, group, index) of each table entry that leads to a block, if no other reference holds it."""
    if fold.pins.get(block_id):
        return []
    return [
        (request_id, group, table.index(block_id))
        for request_id, request in fold.requests.items()
        for group, table in enumerate(request.block_tables)
        if block_id in table
    ]


def _freed_in_use(fold: Fold, block_id: int) -> Violation | None:
    if not (entries := entries_of(fold, block_id)):
        return None
    request_id, group, index = entries[0]
    text = f"block {block_id} was freed, but is still table[{index}]{group_suffix(group)} of request {request_id}"
    return Violation("held", text, tuple(dict.fromkeys(entry[0] for entry in entries)), (block_id,))
