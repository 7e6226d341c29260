"""Rules broken at a single event of a recording: hits across tenants, and blocks freed while in a table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from types import SimpleNamespace

from labengine import events as ev
from labengine.check.differences import extra_keys_unlike
from labengine.check.first_event import Breach
from labengine.check.registrations import Registrations
from labengine.check.scope import Scope
from labengine.core.block import Key
from labengine.core.request import ExtraKeys
from labengine.core.vllm.hash_chain import VllmHashChain
from labengine.record.fold import Fold
from labengine.record.violation import Violation
from labengine.record.wording import group_suffix


class Breaches:
    """Follows one engine, and finds violations of the rules `scope` and `held`.

    fold: the state, which does not yet include the event followed. extra_keys: of the requests that have any; None if
    the recording does not tell, and `scope` cannot be judged.
    """

    def __init__(self, fold: Fold, extra_keys: Mapping[int, ExtraKeys] | None) -> None:
        self._fold, self._extra_keys = fold, extra_keys
        self._registrations, self._numbers = Registrations(), count()
        self._scope = Scope(self._registrations, VllmHashChain, [group.block_size for group in fold.groups])
        self._first_under: dict[Key, tuple[int, ExtraKeys]] = {}
        """Per hash: the first request with a block under it, and its extra keys."""

    def follow(self, event: ev.Event) -> Breach | None:
        """Follow one event; return its violation, if it is one."""
        found = self._judge(event)
        return None if found is None else Breach(found, event)

    def _judge(self, event: ev.Event) -> Violation | None:
        match event:
            case ev.BlockCached() if self._extra_keys is not None:
                return self._register(event, self._scope.keys_of(self._extra_keys.get(event.request_id, ())))
            case ev.BlockEvicted(block_id):
                self._registrations.evict(block_id)
            case ev.HashesMoved(block_id, into_block_id):
                self._registrations.move(block_id, into_block_id)
            case ev.StepStarted():
                self._registrations.open_step()
            case ev.PrefixHit() if self._extra_keys is not None:
                own = self._extra_keys.get(event.request_id, ())
                return self._scope.judge(event, SimpleNamespace(token_ids=[], extra_keys=own, images=()))
            case ev.BlockUnpinned(block_id):
                return _freed_in_use(self._fold, block_id)
        return None

    def _register(self, event: ev.BlockCached, ours: ExtraKeys) -> Violation | None:
        """Return the violation of a hash shared by blocks with different extra keys: each can hit the other's."""
        self._registrations.add(event, ours, None, next(self._numbers))
        first, theirs = self._first_under.setdefault((event.group, event.block_hash), (event.request_id, ours))
        if theirs == ours:
            return None
        names = extra_keys_unlike(theirs, ours)
        text = (
            f"block {event.block_id} of request {event.request_id}, which has {names[1]}, is registered under the hash "
            f"of a block of request {first}, which has {names[0]}: each can hit the other's"
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
