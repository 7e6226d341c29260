"""The state that sentences describe: the fold, and the contents, owners and lost blocks that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from labengine import events as ev
from labengine.record.fold import Fold, Key
from labengine_widgets.words.mentions import Mention, Sentence
from labengine_widgets.words.names import ContentIndex, content_name
from labengine_widgets.words.tier import KnownTier

Place = tuple[int, int, int]
"""(request id, group, index) of a block table's entry."""


class Score(NamedTuple):
    """used: blocks not free; peak: the most in this step; findable: map entries; lost: alive, hashed, unmapped."""

    used: int
    peak: int
    findable: int
    lost: int


class Judged(NamedTuple):
    """Positions that a request's newest guesses had: the accepted ones up to `accepted_end`, then rejected ones."""

    accepted_end: int
    rejected_end: int


class Scene:
    """The state after an event: apply events, then read contents and score.

    Costs grow with what changed, not with the pool.
    """

    def __init__(
        self,
        state: Fold,
        token_text: Callable[[int], str] = str,
        contents: ContentIndex | None = None,
        tier: Iterable[Key] = (),
    ) -> None:
        self.fold = state
        self.contents = contents or ContentIndex()
        self.tier = KnownTier(tier)
        self._token_text = token_text
        self._texts: dict[int, str] = {}
        self.peak = self.num_used
        self.lost: set[int] = set()
        self._written: dict[tuple[int, int], int] = {}
        self._judged: dict[int, Judged] = {}
        self._home: dict[int, Place] = {}
        self._held: dict[int, dict[int, tuple[int, ...]]] = {}
        self._owners: dict[int, set[int]] = {}
        self._chains: dict[tuple[int, int], list[int]] = {}
        self._take_stock()

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return len(self.fold.ref_counts)

    @property
    def num_used(self) -> int:
        """Blocks that are not free."""
        return self.fold.num_used_blocks

    @property
    def score(self) -> Score:
        """The four numbers of the state."""
        return Score(self.num_used, self.peak, len(self.fold.prefix_map), len(self.lost))

    def apply(self, event: ev.Event) -> None:
        """Apply one event. EngineStarted begins anew; for a StepRolledBack the caller loads the state."""
        self.fold.apply(event)
        note = self._NOTES.get(type(event))
        if note is not None:
            self._noted(note, event)
        self.peak = max(self.peak, self.num_used)

    def _noted(self, note: Callable[[Any, Any], None], event: ev.Event) -> None:
        """Note an event. Of an impossible one, as faulty parts emit, the possible changes are noted."""
        try:
            note(self, event)
        except (IndexError, KeyError):
            if not self.fold.num_impossible:
                raise

    def is_block(self, block_id: int) -> bool:
        """Return False for an id that no block has: faulty parts put such ids into tables."""
        return 0 <= block_id < self.num_blocks

    def update(self) -> None:
        """Update owners and lost blocks by the changes since the last call."""
        changes = self.fold.take_changes()
        entries: dict[int, set[int]] = {}
        for request_id, block_id in changes.entries:
            entries.setdefault(request_id, set()).add(block_id)
        for request_id, block_ids in entries.items():
            self._update_owners(request_id, block_ids)
        for block_id in filter(self.is_block, changes.blocks):
            self._update_lost(block_id)

    def groups_of(self, block_id: int) -> tuple[int, ...]:
        """Return the groups whose tables have a block, as of the last `update`."""
        owners = self._owners.get(block_id, ())
        return tuple(sorted({group for owner in owners for group in self._held[owner].get(block_id, ())}))

    def content(self, block_id: int) -> int:
        """Return the number of a block's content; -1 while it is not full, and for an id that no block has.

        -1 also while its tokens are not known: with asynchronous scheduling KV is written before its token is sampled.
        """
        if not self.is_block(block_id):
            return -1
        if keys := self.fold.block_keys[block_id]:
            return self.contents.of_hash(keys[0])
        home = self._home_of(block_id)
        if home is None or not self.fold.ref_counts[block_id] or self._fill(block_id) < self._size(home):
            return -1
        request_id, _, index = home
        end = (index + 1) * self._size(home)
        if len(self.fold.requests[request_id].token_ids) < end:
            return -1
        if self.fold.groups[home[1]].kind == "state" and self.fold.states.get(block_id) != end:
            return -1
        return self.contents.of_prefix(self._prefix(home))

    def letter(self, block_id: int) -> Sentence:
        """Return the letter of a block's content for a sentence."""
        return Sentence(Mention("content", block_id, content_name(max(0, self.content(block_id)))))

    def twins(self, block_ids: Iterable[int]) -> dict[int, int]:
        """Return which of these blocks have a live block of equal content: {block: the other one of lowest id}."""
        asked = {block_id: content for block_id in block_ids if (content := self.content(block_id)) >= 0}
        others: dict[int, int] = {}
        for block_id in sorted(self._home, reverse=True):
            if block_id not in asked and self.fold.ref_counts[block_id]:
                others[self.content(block_id)] = block_id
        return {block_id: others[content] for block_id, content in asked.items() if content in others}

    def was_guessed(self, request_id: int, position: int) -> bool:
        """Return True for a token that was an accepted guess in the newest step that judged any."""
        judged = self._judged.get(request_id)
        return judged is not None and position < judged.accepted_end

    def garbage(self, request_id: int) -> list[int]:
        """Return the blocks that hold KV of the request's newest rejected guesses, in table order."""
        judged, request = self._judged[request_id], self.fold.requests[request_id]
        found: list[int] = []
        for group, table in zip(self.fold.groups, request.block_tables, strict=True):
            if group.kind != "state":
                entries = slice(judged.accepted_end // group.block_size, -(-judged.rejected_end // group.block_size))
                found += [block_id for block_id in table[entries] if block_id != self.fold.null_block]
        return found

    def token_text(self, token_id: int) -> str:
        """Return a token's text as the tokenizer gives it: untrusted."""
        if token_id not in self._texts:
            self._texts[token_id] = self._token_text(token_id)
        return self._texts[token_id]

    # -- a block's parts -----------------------------------------------------------------------------------------------

    def _home_of(self, block_id: int) -> Place | None:
        """Return the table entry whose tokens a block holds; None for a pinned block that is in no table any more."""
        is_adrift = block_id in self.fold.pins and not self._owners.get(block_id)
        return None if is_adrift else self._home.get(block_id)

    def _size(self, home: Place | None) -> int:
        return self.fold.groups[home[1] if home else 0].block_size

    def _fill(self, block_id: int) -> int:
        home = self._home_of(block_id)
        if self.fold.block_keys[block_id]:
            return self.fold.groups[self.fold.block_keys[block_id][0][0]].block_size
        if home is None or not self.fold.ref_counts[block_id]:
            return 0
        size = self._size(home)
        return max(0, min(size, self._written.get(home[:2], 0) - home[2] * size))

    def _is_lost(self, block_id: int) -> bool:
        keys = self.fold.block_keys[block_id]
        return bool(
            self.fold.ref_counts[block_id]
            and keys
            and not any(block_id in self.fold.prefix_map.get(key, ()) for key in keys)
        )

    def _prefix(self, home: Place) -> tuple[int, int]:
        """Return a name for the tokens up to a block's end: a chain over the request's blocks, like the hash chain."""
        request_id, group, index = home
        size, request = self._size(home), self.fold.requests[request_id]
        chain = self._chains.setdefault((request_id, group), [])
        for i in range(len(chain), index + 1):
            start, end = i * size, (i + 1) * size
            seen = [
                (at - start, length, name) for at, length, name in request.images if at < end and at + length > start
            ]
            chain.append(hash((chain[-1] if chain else 0, tuple(request.token_ids[start:end]), tuple(seen))))
        return group, chain[index]

    # -- state beside the fold -----------------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """Rebuild all state from the fold, for a view that is attached late and after a restart."""
        self._written, self._home, self._held, self._owners, self._chains = {}, {}, {}, {}, {}
        self._judged = {}
        self.peak = self.num_used
        for request_id, request in self.fold.requests.items():
            for group, table in enumerate(request.block_tables):
                self._written[request_id, group] = request.num_computed_tokens
                places = [(i, b) for i, b in enumerate(table) if b != self.fold.null_block]
                self._home.update({b: (request_id, group, i) for i, b in places})
            self._update_owners(request_id, {block_id for table in request.block_tables for block_id in table})
        for key, ids in self.fold.prefix_map.items():
            for block_id in ids:
                home = self._home.get(block_id)
                self.contents.of_hash(key, self._prefix(home) if home else None)
        self.lost = {block_id for block_id in range(self.num_blocks) if self._is_lost(block_id)}

    def _update_owners(self, request_id: int, block_ids: Iterable[int]) -> None:
        """Note which of these blocks a request has in which tables."""
        request, held = self.fold.requests.get(request_id), self._held.setdefault(request_id, {})
        tables = request.block_tables if request is not None else ()
        for block_id in block_ids:
            groups = tuple(group for group, table in enumerate(tables) if block_id in table)
            if block_id == self.fold.null_block or groups == held.get(block_id, ()):
                continue
            if groups:
                held[block_id] = groups
                self._owners.setdefault(block_id, set()).add(request_id)
            else:
                del held[block_id]
                self._owners[block_id].discard(request_id)
        if not held:
            del self._held[request_id]

    def _update_lost(self, block_id: int) -> None:
        (self.lost.add if self._is_lost(block_id) else self.lost.discard)(block_id)

    def _note_restart(self, event: ev.EngineStarted) -> None:
        self.contents = ContentIndex()
        self._take_stock()

    def _note_step(self, event: ev.StepStarted) -> None:
        self.peak = self.num_used

    def _note_place(self, event: ev.BlockAllocated | ev.BlockTouched) -> None:
        self._home[event.block_id] = (event.request_id, event.group, event.index)

    def _note_moved(self, event: ev.BlockMoved) -> None:
        self._home[event.block_id] = (event.request_id, event.group, event.into_index)

    def _note_slots(self, event: ev.SlotsWritten) -> None:
        self._written[event.request_id, event.group] = event.start + sum(length for _, _, length in event.runs)

    def _note_state(self, event: ev.StateAdvanced) -> None:
        self._written[event.request_id, event.group] = event.end

    def _note_judged(self, event: ev.DraftsJudged) -> None:
        """Note which guesses are accepted. Behind the newest token, which no step had computed, come the guesses."""
        accepted_end = len(self.fold.requests[event.request_id].token_ids) + event.num_accepted
        self._judged[event.request_id] = Judged(accepted_end, accepted_end + event.num_rejected)
        for group in range(len(self.fold.groups)) if event.num_rejected else ():
            written = self._written.get((event.request_id, group), 0)
            self._written[event.request_id, group] = min(written, accepted_end)

    def _note_hit(self, event: ev.PrefixHit) -> None:
        for group, ids in enumerate(event.block_ids):
            self._written[event.request_id, group] = event.num_tokens
            for index, block_id in enumerate(ids):
                if block_id != self.fold.null_block and (keys := self.fold.block_keys[block_id]):
                    self.contents.link(self._prefix((event.request_id, group, index)), keys[0])

    def _note_fork(self, event: ev.RequestForked) -> None:
        for group in range(len(self.fold.groups)):
            self._written[event.request_id, group] = event.num_tokens

    def _note_loaded(self, event: ev.BlocksLoaded) -> None:
        """Note loaded blocks. The load precedes all writes, so it fills blocks from their first slot."""
        for group, index, _, _ in event.transfers:
            size = self.fold.groups[group].block_size
            written = self._written.get((event.request_id, group), 0)
            end = min((index + 1) * size, len(self.fold.requests[event.request_id].token_ids))
            self._written[event.request_id, group] = max(written, end)
        self._note_saved(event)

    def _note_received(self, event: ev.RequestReceived) -> None:
        for group in range(len(self.fold.groups)):
            place = event.request_id, group
            self._written[place] = max(self._written.get(place, 0), event.num_tokens)

    def _note_saved(self, event: ev.BlocksSaved | ev.BlocksLoaded) -> None:
        self.tier.note(event)
        for group, index, _, block_hash in event.transfers:
            if block_hash:  # empty: a part of a block has no letter
                self.contents.of_hash((group, block_hash), self._prefix((event.request_id, group, index)))

    def _note_tier(self, event: ev.TierChanged) -> None:
        self.tier.note(event)

    def _note_cached(self, event: ev.BlockCached) -> None:
        prefix = self._prefix((event.request_id, event.group, event.index))
        self.contents.of_hash((event.group, event.block_hash), prefix)

    def _note_copy(self, event: ev.BlockCopied) -> None:
        """Note the copy's place."""
        self._note_loss(event)
        self._home[event.into_block_id] = (event.request_id, event.group, event.index)

    def _note_loss(self, event: ev.BlockCopied | ev.BlockFreed) -> None:
        """Have a block whose place this was take its tokens from another table that has it."""
        if self._home.get(event.block_id) == (event.request_id, event.group, event.index):
            tables = ((i, g, t) for i, r in self.fold.requests.items() for g, t in enumerate(r.block_tables))
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
        for group in range(len(self.fold.groups)):
            self._written.pop((event.request_id, group), None)
            self._chains.pop((event.request_id, group), None)

    _NOTES: ClassVar[dict[type[ev.Event], Callable[[Any, Any], None]]] = {
        ev.EngineStarted: _note_restart,
        ev.StepStarted: _note_step,
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
        ev.TierChanged: _note_tier,
        ev.BlockCached: _note_cached,
        ev.BlockCopied: _note_copy,
        ev.BlockFreed: _note_freed,
        ev.RequestPreempted: _note_end,
        ev.RequestFinished: _note_finished,
        ev.RequestReleased: _note_end,
    }
