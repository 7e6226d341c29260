"""The content of each block, its owners, and its content's letter, for sentences and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from labengine import events as ev
from labengine.record.fold import Fold
from labengine_widgets.words.names import ContentIndex

Place = tuple[int, int, int]
"""(request id, group, index) of a block table's entry."""


class Judged(NamedTuple):
    """Positions that a request's newest guesses had: the accepted ones up to `accepted_end`, then rejected ones."""

    accepted_end: int
    rejected_end: int


class Filling:
    """The contents of blocks: the entry that each block's tokens came from outlives the entry."""

    def __init__(self, fold: Fold, owners: Owners, contents: ContentIndex) -> None:
        """Take stock of a fold, for a view that is attached late and after a restart."""
        self.contents = contents
        self._fold, self._owners = fold, owners
        self._written: dict[tuple[int, int], int] = {}
        self._judged: dict[int, Judged] = {}
        self._home: dict[int, Place] = {}
        self._chains: dict[tuple[int, int], list[int]] = {}
        for request_id, request in fold.requests.items():
            for group, table in enumerate(request.block_tables):
                self._written[request_id, group] = request.num_computed_tokens
                places = [(i, b) for i, b in enumerate(table) if b != fold.null_block]
                self._home.update({b: (request_id, group, i) for i, b in places})
        for key, ids in fold.prefix_map.items():
            for block_id in ids:
                home = self._home.get(block_id)
                contents.of_hash(key, self._prefix(home) if home else None)

    def note(self, event: ev.Event) -> None:
        """Follow an event that the fold has applied. Raises LookupError for an impossible event."""
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def content(self, block_id: int) -> int:
        """Return the number of a block's content; -1 while it is not full, and for an id that no block has.

        Also -1 while its tokens are unknown: with asynchronous scheduling KV is written before its token is sampled.
        """
        if not 0 <= block_id < len(self._fold.ref_counts):
            return -1
        if keys := self._fold.block_keys[block_id]:
            return self.contents.of_hash(keys[0])
        home = self.home_of(block_id)
        if home is None or not self._fold.ref_counts[block_id] or self.fill(block_id) < self.size_of(home):
            return -1
        request_id, _, index = home
        end = (index + 1) * self.size_of(home)
        if len(self._fold.requests[request_id].token_ids) < end:
            return -1
        if self._fold.groups[home[1]].kind == "state" and self._fold.states.get(block_id) != end:
            return -1
        return self.contents.of_prefix(self._prefix(home))

    def twins(self, block_ids: Iterable[int]) -> dict[int, int]:
        """Return {block: lowest id of another live block of equal content}, for blocks that have one."""
        asked = {block_id: content for block_id in block_ids if (content := self.content(block_id)) >= 0}
        others: dict[int, int] = {}
        for block_id in sorted(self._home, reverse=True):
            if block_id not in asked and self._fold.ref_counts[block_id]:
                others[self.content(block_id)] = block_id
        return {block_id: others[content] for block_id, content in asked.items() if content in others}

    def was_guessed(self, request_id: int, position: int) -> bool:
        """Return True for a token that was an accepted guess in the newest step that judged any."""
        judged = self._judged.get(request_id)
        return judged is not None and position < judged.accepted_end

    def garbage(self, request_id: int) -> list[int]:
        """Return the blocks that hold KV of the request's newest rejected guesses, in table order."""
        judged, request = self._judged[request_id], self._fold.requests[request_id]
        found: list[int] = []
        for group, table in zip(self._fold.groups, request.block_tables, strict=True):
            if group.kind != "state":
                entries = slice(judged.accepted_end // group.block_size, -(-judged.rejected_end // group.block_size))
                found += [block_id for block_id in table[entries] if block_id != self._fold.null_block]
        return found

    def home_of(self, block_id: int) -> Place | None:
        """Return the table entry whose tokens a block holds; None for a pinned block that is no longer in a table."""
        is_adrift = block_id in self._fold.pins and not self._owners.of(block_id)
        return None if is_adrift else self._home.get(block_id)

    def size_of(self, home: Place | None) -> int:
        """Return the block size of a place's group."""
        return self._fold.groups[home[1] if home else 0].block_size

    def fill(self, block_id: int) -> int:
        """Return how many slots of a block are written."""
        home = self.home_of(block_id)
        if self._fold.block_keys[block_id]:
            return self._fold.groups[self._fold.block_keys[block_id][0][0]].block_size
        if home is None or not self._fold.ref_counts[block_id]:
            return 0
        size = self.size_of(home)
        return max(0, min(size, self._written.get(home[:2], 0) - home[2] * size))

    def _prefix(self, home: Place) -> tuple[int, int]:
        """Return a name for the tokens up to a block's end: a chain over the request's blocks, like the hash chain."""
        request_id, group, index = home
        size, request = self.size_of(home), self._fold.requests[request_id]
        chain = self._chains.setdefault((request_id, group), [])
        for i in range(len(chain), index + 1):
            start, end = i * size, (i + 1) * size
            seen = [
                (at - start, length, name) for at, length, name in request.images if at < end and at + length > start
            ]
            chain.append(hash((chain[-1] if chain else 0, tuple(request.token_ids[start:end]), tuple(seen))))
        return group, chain[index]

    def _note_place(self, event: ev.BlockAllocated | ev.BlockTouched) -> None:
        self._home[event.block_id] = (event.request_id, event.group, event.index)

    def _note_moved(self, event: ev.BlockMoved) -> None:
        self._home[event.block_id] = (event.request_id, event.group, event.into_index)

    def _note_slots(self, event: ev.SlotsWritten) -> None:
        self._written[event.request_id, event.group] = event.start + sum(length for _, _, length in event.runs)

    def _note_state(self, event: ev.StateAdvanced) -> None:
        self._written[event.request_id, event.group] = event.end

    def _note_judged(self, event: ev.DraftsJudged) -> None:
        """Note which guesses are accepted. They follow the newest token, which no step had computed."""
        accepted_end = len(self._fold.requests[event.request_id].token_ids) + event.num_accepted
        self._judged[event.request_id] = Judged(accepted_end, accepted_end + event.num_rejected)
        for group in range(len(self._fold.groups)) if event.num_rejected else ():
            written = self._written.get((event.request_id, group), 0)
            self._written[event.request_id, group] = min(written, accepted_end)

    def _note_hit(self, event: ev.PrefixHit) -> None:
        for group, ids in enumerate(event.block_ids):
            self._written[event.request_id, group] = event.num_tokens
            for index, block_id in enumerate(ids):
                if block_id != self._fold.null_block and (keys := self._fold.block_keys[block_id]):
                    self.contents.link(self._prefix((event.request_id, group, index)), keys[0])

    def _note_fork(self, event: ev.RequestForked) -> None:
        for group in range(len(self._fold.groups)):
            self._written[event.request_id, group] = event.num_tokens

    def _note_loaded(self, event: ev.BlocksLoaded) -> None:
        """Note loaded blocks. The load precedes all writes, so it fills blocks from their first slot."""
        for group, index, _, _ in event.transfers:
            size = self._fold.groups[group].block_size
            written = self._written.get((event.request_id, group), 0)
            end = min((index + 1) * size, len(self._fold.requests[event.request_id].token_ids))
            self._written[event.request_id, group] = max(written, end)
        self._note_saved(event)

    def _note_received(self, event: ev.RequestReceived) -> None:
        for group in range(len(self._fold.groups)):
            place = event.request_id, group
            self._written[place] = max(self._written.get(place, 0), event.num_tokens)

    def _note_saved(self, event: ev.BlocksSaved | ev.BlocksLoaded) -> None:
        for group, index, _, block_hash in event.transfers:
            if block_hash:  # empty: a part of a block has no letter
                self.contents.of_hash((group, block_hash), self._prefix((event.request_id, group, index)))

    def _note_cached(self, event: ev.BlockCached) -> None:
        prefix = self._prefix((event.request_id, event.group, event.index))
        self.contents.of_hash((event.group, event.block_hash), prefix)

    def _note_copy(self, event: ev.BlockCopied) -> None:
        """Note the copy's place."""
        self._note_loss(event)
        self._home[event.into_block_id] = (event.request_id, event.group, event.index)

    def _note_loss(self, event: ev.BlockCopied | ev.BlockFreed) -> None:
        """Give a block that had its home in this entry another table's entry as its home."""
        if self._home.get(event.block_id) == (event.request_id, event.group, event.index):
            tables = ((i, g, t) for i, r in self._fold.requests.items() for g, t in enumerate(r.block_tables))
            others = ((i, g, t.index(event.block_id)) for i, g, t in tables if event.block_id in t)
            self._home[event.block_id] = next(others, self._home[event.block_id])

    def _note_freed(self, event: ev.BlockFreed) -> None:
        if event.ref_count:
            self._note_loss(event)

    def _note_finished(self, event: ev.RequestFinished) -> None:
        if not event.holds_blocks:
            self._note_end(event)

    def _note_end(self, event: ev.BeamReplaced | ev.RequestPreempted | ev.RequestFinished | ev.RequestReleased) -> None:
        self._judged.pop(event.request_id, None)
        for group in range(len(self._fold.groups)):
            self._written.pop((event.request_id, group), None)
            self._chains.pop((event.request_id, group), None)

    _NOTES: ClassVar[dict[type[ev.Event], Callable[[Any, Any], None]]] = {
        ev.BlockAllocated: _note_place,
        ev.BlockMoved: _note_moved,
        ev.BlockTouched: _note_place,
        ev.SlotsWritten: _note_slots,
        ev.StateAdvanced: _note_state,
        ev.DraftsJudged: _note_judged,
        ev.PrefixHit: _note_hit,
        ev.RequestForked: _note_fork,
        ev.BeamReplaced: _note_end,
        ev.BlocksLoaded: _note_loaded,
        ev.RequestReceived: _note_received,
        ev.BlocksSaved: _note_saved,
        ev.BlockCached: _note_cached,
        ev.BlockCopied: _note_copy,
        ev.BlockFreed: _note_freed,
        ev.RequestPreempted: _note_end,
        ev.RequestFinished: _note_finished,
        ev.RequestReleased: _note_end,
    }


class Owners:
    """The owners of blocks, as of the last `update`: by request and block, the groups whose tables have the block."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._held: dict[int, dict[int, tuple[int, ...]]] = {}
        self._owners: dict[int, set[int]] = {}
        for request_id, request in fold.requests.items():
            self.update(request_id, {block_id for table in request.block_tables for block_id in table})

    def of(self, block_id: int) -> tuple[int, ...]:
        """Return the requests that have a block in a table."""
        return tuple(sorted(self._owners.get(block_id, ())))

    def groups_of(self, block_id: int) -> tuple[int, ...]:
        """Return the groups whose tables have a block."""
        owners = self._owners.get(block_id, ())
        return tuple(sorted({group for owner in owners for group in self._held[owner].get(block_id, ())}))

    def update(self, request_id: int, block_ids: Iterable[int]) -> None:
        """Note which of these blocks a request has in which tables."""
        request, held = self._fold.requests.get(request_id), self._held.setdefault(request_id, {})
        tables = request.block_tables if request is not None else ()
        for block_id in block_ids:
            groups = tuple(group for group, table in enumerate(tables) if block_id in table)
            if block_id == self._fold.null_block or groups == held.get(block_id, ()):
                continue
            if groups:
                held[block_id] = groups
                self._owners.setdefault(block_id, set()).add(request_id)
            else:
                del held[block_id]
                self._owners[block_id].discard(request_id)
        if not held:
            del self._held[request_id]
