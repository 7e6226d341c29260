"""The state that events add up to. Folding the stream rebuilds the engine's snapshot at any moment."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from labengine import events as ev
from labengine.record.fold_state import FINISHED, Changes, FoldState, RequestFold
from labengine.record.snapshot import GroupState, Snapshot
from labengine.record.tree_fold import TreeFold
from labengine.system.code_roles import Role, plays

plays(__name__, Role.FOLLOWS_EVENTS)

_OfATable = (
    ev.BlockAllocated
    | ev.BlockTouched
    | ev.BlocksSkipped
    | ev.EntryReplaced
    | ev.BlockFreed
    | ev.BlockMoved
    | ev.FreeDeferred
)

_ReplacesEntry = ev.EntryReplaced | ev.BlockFreed | ev.BlockMoved


class Fold(FoldState):
    """State built up event by event: apply one, read the state, apply the next.

    A faulty part may emit an event that cannot follow the ones before it: a block leaves a queue that it is not in, a
    table is too short for the index, a request does not exist. Such an event counts in `num_impossible`, and applying
    it never raises. Its changes are made in the order of its method here, up to the first that names a missing block,
    request, group or entry; `changes` has those made until then. The browser's fold (widgets/browser/model/fold.ts)
    does the same.
    """

    def apply(self, event: ev.Event) -> None:
        """Apply one event. Timeline and `fold` handle StepRolledBack, which needs history."""
        apply = _APPLY.get(type(event))
        if apply is None:
            return
        try:  # suppress() would double the cost of an event
            apply(self, event)
        except LookupError:  # no such block, request, group or table entry
            self.num_impossible += 1

    def apply_all(self, events: Iterable[ev.Event]) -> list[int]:
        """Apply events one after the other; return the positions of impossible ones."""
        impossible: list[int] = []
        method_of = _APPLY.get
        for position, event in enumerate(events):
            apply = method_of(type(event))
            if apply is None:
                continue
            before = self.num_impossible
            try:
                apply(self, event)
            except LookupError:
                self.num_impossible += 1
            if self.num_impossible > before:
                impossible.append(position)
        return impossible

    def is_lost(self, block_id: int) -> bool:
        """Return True for a referenced, hashed block that no look-up of its hashes finds."""
        keys = self.block_keys[block_id]
        # Compared one by one: a user's policy may map a key to a string, in which no number can be looked up.
        is_found = any(block_id == mapped for key in keys for mapped in self.prefix_map.get(key, ()))
        return bool(self.ref_counts[block_id] and keys and not is_found)

    # -- one method per kind of event ----------------------------------------------------------------------------------

    def _engine_started(self, event: ev.EngineStarted) -> None:
        self.step, self.requests = 0, {}
        self.groups = tuple(GroupState(*group) for group in event.groups)
        self.ref_counts = [0] * event.num_blocks
        self.block_keys = [()] * event.num_blocks
        self.block_tokens = [()] * event.num_blocks
        self.null_block = event.null_block
        self.free_queue = OrderedDict.fromkeys(i for i in range(event.num_blocks) if i != event.null_block)
        self.prefix_map = {}
        self.pins, self.holding, self.tree = {}, set(), TreeFold()
        self.states, self.spoiled = {}, set()
        self.changes = Changes()

    def _step_started(self, event: ev.StepStarted) -> None:
        self.step = event.step

    def _request_added(self, event: ev.RequestAdded) -> None:
        if event.request_id in self.requests:
            self._note_entries(event.request_id)
        tables: list[list[int]] = [[] for _ in self.groups]
        num_prompt = len(event.token_ids) - event.num_generated
        tokens = list(event.token_ids)
        request = RequestFold("waiting", tokens, num_prompt, 0, tables, event.priority)
        if event.num_beams > 1:
            request.first_beam = event.request_id if event.from_request_id is None else event.from_request_id
        request.images = event.images
        self.requests[event.request_id] = request
        self.changes.requests.add(event.request_id)

    def _prefix_hit(self, event: ev.PrefixHit) -> None:
        self._request(event.request_id).num_computed_tokens = event.num_tokens

    def _request_forked(self, event: ev.RequestForked) -> None:
        request = self._request(event.request_id)
        request.status, request.num_computed_tokens = "running", event.num_tokens

    def _beam_replaced(self, event: ev.BeamReplaced) -> None:
        request = self._request(event.request_id)
        self.num_impossible += any(map(len, request.block_tables))
        request.token_ids[request.num_prompt_tokens :] = event.token_ids
        request.num_computed_tokens = 0

    def _external_hit(self, event: ev.ExternalHit) -> None:
        request = self._request(event.request_id)
        if event.is_loading:
            request.status = "waiting"
        else:
            request.num_computed_tokens += event.num_tokens

    def _request_scheduled(self, event: ev.RequestScheduled) -> None:
        request = self._request(event.request_id)
        self.num_impossible += request.num_computed_tokens != event.start
        self.num_impossible += event.num_drafts > len(request.drafts)
        request.status, request.drafts = event.status, request.drafts[: event.num_drafts]
        if request.rejected is not None:
            request.rejected = max(request.rejected[0], event.start + event.num_tokens), request.rejected[1]

    def _request_preempted(self, event: ev.RequestPreempted) -> None:
        self._clear(event.request_id, "preempted")

    def _request_finished(self, event: ev.RequestFinished) -> None:
        request = self._request(event.request_id)
        if event.holds_blocks:
            request.status, request.num_computed_tokens, request.drafts = FINISHED, 0, ()
            self.holding.add(event.request_id)
        else:
            self._clear(event.request_id, FINISHED)

    def _request_released(self, event: ev.RequestReleased) -> None:
        self.num_impossible += event.request_id not in self.holding
        self.holding.discard(event.request_id)
        self._clear(event.request_id, FINISHED)

    def _request_forgotten(self, event: ev.RequestForgotten) -> None:
        self.changes.requests.add(event.request_id)
        if event.request_id in self.requests:
            self._note_entries(event.request_id)
        self.requests.pop(event.request_id, None)
        self.holding.discard(event.request_id)

    def _tokens_computed(self, event: ev.TokensComputed) -> None:
        request = self._request(event.request_id)
        request.num_computed_tokens = event.num_computed_tokens
        if not event.num_computed_tokens:
            request.block_tables = [t if any(i != self.null_block for i in t) else [] for t in request.block_tables]

    def _token_sampled(self, event: ev.TokenSampled) -> None:
        token_ids = self._request(event.request_id).token_ids
        self.num_impossible += len(token_ids) != event.position
        token_ids.append(event.token_id)

    def _tokens_drafted(self, event: ev.TokensDrafted) -> None:
        self._request(event.request_id).drafts = event.token_ids

    def _drafts_judged(self, event: ev.DraftsJudged) -> None:
        request = self._request(event.request_id)
        self.num_impossible += len(request.drafts) != event.num_accepted + event.num_rejected
        request.drafts = ()
        if not event.num_rejected:
            return
        start = len(request.token_ids) + event.num_accepted
        end = start + event.num_rejected
        request.rejected = start, max(end, request.rejected[1] if request.rejected else 0)
        for group, table in zip(self.groups, request.block_tables, strict=True):
            if group.keeps_states:
                self.spoiled.update(block_id for block_id in table if self.states.get(block_id, 0) > start)

    def _state_advanced(self, event: ev.StateAdvanced) -> None:
        self._request(event.request_id)
        self.note_state(self._known(event.block_id), event.end)

    def _state_copied(self, event: ev.StateCopied) -> None:
        self.note_state(self._known(event.into_block_id), event.num_tokens)

    def _transferred(self, event: ev.BlocksLoaded | ev.RequestReceived) -> None:
        """Note states that have come from a tier or another lab."""
        for group, index, block_id, _ in event.transfers:
            size, end = self._size(group), (index + 1) * self._size(group)
            if self.groups[group].keeps_states:
                num_tokens = min(end, event.num_tokens) if isinstance(event, ev.RequestReceived) else end
                self.note_state(block_id, num_tokens, end - size)

    _blocks_loaded = _request_received = _transferred

    def _block_evicted(self, event: ev.BlockEvicted) -> None:
        block_id = self._known(event.block_id)
        for key in self.block_keys[block_id]:
            left = tuple(i for i in self.prefix_map.get(key, ()) if i != block_id)
            if left:
                self.prefix_map[key] = left
            else:
                self.prefix_map.pop(key, None)
            self.changes.keys.add(key)
        self.block_keys[block_id], self.block_tokens[block_id] = (), ()
        self.changes.blocks.add(block_id)

    def _block_allocated(self, event: ev.BlockAllocated) -> None:
        block_id = event.block_id
        self._leave_queue(block_id)
        if block_id < 0:
            raise LookupError
        self.ref_counts[block_id] = 1
        self.states.pop(block_id, None)
        self.spoiled.discard(block_id)
        self.changes.blocks.add(block_id)
        self._append(event)

    def _blocks_skipped(self, event: ev.BlocksSkipped) -> None:
        self._table(event).extend([self.null_block] * event.num_blocks)

    def _block_touched(self, event: ev.BlockTouched) -> None:
        if self.ref_counts[event.block_id] == 0:
            self._leave_queue(event.block_id)
        self._count(event.block_id, event.ref_count, 1)
        self._append(event)

    def _block_cached(self, event: ev.BlockCached) -> None:
        block_id, key = self._known(event.block_id), (event.group, event.block_hash)
        size = self._size(event.group)
        self.changes.blocks.add(block_id)
        self.changes.keys.add(key)
        self.block_keys[block_id] = (*self.block_keys[block_id], key)
        if event.is_full:
            tokens = self.requests[event.request_id].token_ids[event.index * size : (event.index + 1) * size]
            self.block_tokens[block_id] = tuple(tokens)
        self.changes.blocks.update(self.prefix_map.get(key, ()))
        if event.mapped:
            self.prefix_map[key] = event.mapped

    def _block_merged(self, event: ev.BlockMerged) -> None:
        self._replace(event, self._known(event.into_block_id))
        self._count(event.into_block_id, event.ref_count, 1)

    def _block_freed(self, event: ev.BlockFreed) -> None:
        self._count(event.block_id, event.ref_count, -1)
        self._enter_queue(event.block_id, event.queue_end)
        if event.reason not in ev.ENTRY_REPLACED:
            table = self._replace(event, self.null_block)
            while event.reason not in ("window", "state") and table and table[-1] == self.null_block:
                table.pop()

    def _free_deferred(self, event: ev.FreeDeferred) -> None:
        table = self._table(event)
        held = [block_id for block_id in table if block_id != self.null_block]
        self.num_impossible += held != list(event.block_ids)
        table.clear()
        self.changes.blocks.update(held)
        self.changes.entries.update((event.request_id, block_id) for block_id in held)
        for block_id in event.block_ids:
            self._pin(self._known(block_id), 1)

    def _block_pinned(self, event: ev.BlockPinned) -> None:
        if self.ref_counts[event.block_id] == 0:
            self._leave_queue(event.block_id)
        self._count(event.block_id, event.ref_count, 1)
        self._pin(event.block_id, 1)

    def _block_unpinned(self, event: ev.BlockUnpinned) -> None:
        self._count(event.block_id, event.ref_count, -1)
        self._enter_queue(event.block_id, event.queue_end)
        self._pin(event.block_id, -1)

    def _block_copied(self, event: ev.BlockCopied) -> None:
        self._leave_queue(event.into_block_id)
        self._replace(event, self._known(event.into_block_id))
        num_references = 1 + event.is_pinned
        self._count(event.into_block_id, num_references, num_references)
        for block_id in (event.block_id, event.into_block_id) if event.is_pinned else ():
            self._pin(block_id, 1)

    def _block_moved(self, event: ev.BlockMoved) -> None:
        table = self._replace(event, self.null_block)
        self.num_impossible += len(table) != event.into_index
        table.append(event.block_id)

    def _hashes_moved(self, event: ev.HashesMoved) -> None:
        block_id, into = self._known(event.block_id), self._known(event.into_block_id)
        self.num_impossible += bool(self.block_keys[into])
        for key in self.block_keys[block_id]:
            mapped = self.prefix_map.get(key, ())
            if block_id in mapped:
                self.prefix_map[key] = (*(i for i in mapped if i != block_id), into)
            self.changes.keys.add(key)
        self.block_keys[into], self.block_keys[block_id] = self.block_keys[block_id], ()
        self.block_tokens[into], self.block_tokens[block_id] = self.block_tokens[block_id], ()
        self.changes.blocks.update((block_id, into))

    def _node_inserted(self, event: ev.NodeInserted) -> None:
        self.num_impossible += not self.tree.insert(event.node_id, event.parent_id, event.first_index, event.block_ids)
        for block_id in event.block_ids:
            self._count(self._known(block_id), self.ref_counts[block_id] + 1, 1)
            self._pin(block_id, 1)
        self.changes.nodes.add(event.node_id)

    def _node_split(self, event: ev.NodeSplit) -> None:
        self.num_impossible += not self.tree.split(event.node_id, event.upper_id, event.num_blocks)
        self.changes.nodes.update((event.node_id, event.upper_id))

    def _nodes_touched(self, event: ev.NodesTouched) -> None:
        self.tree.touch(event.node_ids)
        self.changes.nodes.update(event.node_ids)

    def _node_locked(self, event: ev.NodeLocked) -> None:
        self.num_impossible += not self.tree.lock(event.node_id, event.request_id)
        self.changes.nodes.update(self.tree.path(event.node_id))

    def _node_unlocked(self, event: ev.NodeUnlocked) -> None:
        self.num_impossible += not self.tree.unlock(event.node_id, event.request_id)
        self.changes.nodes.update(self.tree.path(event.node_id))

    def _node_evicted(self, event: ev.NodeEvicted) -> None:
        self.changes.nodes.add(event.node_id)
        self.num_impossible += not self.tree.evict(event.node_id, event.block_ids, event.num_kept)
        end = event.queue_end
        for block_id in event.block_ids if end != "head" else event.block_ids[::-1]:
            before = self.ref_counts[self._known(block_id)]
            left = 0 if end is not None else before - 1
            self._count(block_id, left, left - before)
            self._enter_queue(block_id, end)
            self._pin(block_id, -1)

    def _request(self, request_id: int) -> RequestFold:
        self.changes.requests.add(request_id)
        request = self.requests[request_id]
        if request.status == FINISHED:  # a copy of this state may share it
            request = self.requests[request_id] = request.copy()
        return request

    def _known(self, block_id: int) -> int:
        """Return a valid block id. Raises LookupError for others: a list would take -1 as its end."""
        if 0 <= block_id < len(self.ref_counts):
            return block_id
        raise LookupError

    def _size(self, group: int) -> int:
        if group < 0:
            raise LookupError
        return self.groups[group].block_size

    def _table(self, event: _OfATable) -> list[int]:
        tables = self._request(event.request_id).block_tables
        if event.group < 0:
            raise LookupError
        return tables[event.group]

    def _append(self, event: ev.BlockAllocated | ev.BlockTouched) -> None:
        table = self._table(event)
        self.num_impossible += len(table) != event.index
        table.append(event.block_id)
        self.changes.entries.add((event.request_id, event.block_id))

    def _replace(self, event: _ReplacesEntry, block_id: int) -> list[int]:
        table = self._table(event)
        if event.index < 0:
            raise LookupError
        before = table[event.index]
        self.num_impossible += before != event.block_id
        table[event.index] = block_id
        if before >= 0:
            self.changes.blocks.add(before)
        if block_id >= 0:
            self.changes.blocks.add(block_id)
        self.changes.entries.update(((event.request_id, before), (event.request_id, block_id)))
        return table

    def _clear(self, request_id: int, status: str) -> None:
        self._note_entries(request_id)
        self._request(request_id).clear(status)

    def _note_entries(self, request_id: int) -> None:
        tables = self.requests[request_id].block_tables
        self.changes.entries.update((request_id, block_id) for table in tables for block_id in table)
        self.changes.blocks.update(block_id for table in tables for block_id in table if block_id >= 0)

    def _count(self, block_id: int, ref_count: int, change: int) -> None:
        if block_id < 0:
            raise LookupError
        self.num_impossible += ref_count != self.ref_counts[block_id] + change
        self.ref_counts[block_id] = ref_count
        self.changes.blocks.add(block_id)

    def _pin(self, block_id: int, change: int) -> None:
        self.changes.blocks.add(block_id)
        num_pins = self.pins.pop(block_id, 0) + change
        self.num_impossible += num_pins < 0
        if num_pins > 0:
            self.pins[block_id] = num_pins

    def _enter_queue(self, block_id: int, queue_end: ev.QueueEnd | None) -> None:
        if queue_end is None:
            return
        self.num_impossible += block_id in self.free_queue
        self.free_queue[block_id] = None
        self.free_queue.move_to_end(block_id, last=queue_end == "tail")

    def _leave_queue(self, block_id: int) -> None:
        if block_id in self.free_queue:
            del self.free_queue[block_id]
        else:
            self.num_impossible += 1


def _method_of(kind: type[ev.Event]) -> Callable[[Any, Any], None] | None:
    """Return the method named after an event kind: _block_freed for BlockFreed."""
    found: Callable[[Any, Any], None] | None = vars(Fold).get(re.sub("([A-Z])", r"_\1", kind.__name__).lower())
    return found


_APPLY = {kind: method for kind in ev.EVENT_KINDS if (method := _method_of(kind)) is not None}


def fold(recorded: Iterable[ev.Event]) -> Snapshot:
    """Return the snapshot of a stream that begins with EngineStarted, without its rolled-back steps."""
    events = list(recorded)
    state = Fold()
    for i in surviving(events):
        state.apply(events[i])
    return state.snapshot()


def surviving(events: Sequence[ev.Event]) -> list[int]:
    """Return the positions of all events except those of rolled-back steps.

    A rollback whose StepStarted is not among the events undoes nothing.
    """
    positions: list[int] = []
    step, first = None, 0
    for i, event in enumerate(events):
        if type(event) is ev.StepRolledBack:
            if step == event.step:
                del positions[first:]
            step = None
            continue
        if type(event) is ev.StepStarted:
            step, first = event.step, len(positions)
        positions.append(i)
    return positions
