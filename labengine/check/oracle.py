"""The oracle: checks that every attention read sees exactly the KV of the request's own tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from labengine.check.differences import Misread, contents_unlike, kv_unlike
from labengine.check.slot_memory import CopiedKV, PrefixIdentities, SavedBlocks, SlotMemory, content_of, continued
from labengine.check.states import States
from labengine.core.connector import BlockKV
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.events import BlockCached, BlocksLoaded, BlocksSaved, RequestReceived
from labengine.record.snapshot import GroupState
from labengine.record.wording import counted


@dataclass(slots=True, eq=False)
class _View:
    """A request's last compared view of one group's table: only changes are compared again."""

    table: Sequence[int] = ()
    num_read: int = 0
    """Leading entries that were compared or had left the window."""
    stale: set[int] = field(default_factory=set)
    """Compared entries that have changed since, or whose block another request has written to."""


@dataclass(slots=True)
class _Reader:
    """A request's identities and its views of the pool."""

    identities: list[int]
    views: tuple[_View, ...]
    """Per group."""


class Oracle:
    """Keeps a memory of identities beside the pool's KV, from each step's plan, loads and saves.

    It judges reads and records writes. After a misread, a request computes KV that is only nominally its own; the
    oracle reports the first misread of such a chain. A rollback does not undo memory: slots written in a rolled-back
    step stay written.
    """

    def __init__(
        self,
        groups: Sequence[GroupState],
        null_block: int,
        identities: PrefixIdentities,
        saved: SavedBlocks | None = None,
    ) -> None:
        self.memory = SlotMemory([group.num_slots for group in groups], saved)
        self._groups = groups
        self._sizes = [group.block_size for group in groups]
        self._null_block = null_block
        self._identities = identities
        self._states = States(groups, null_block, identities)
        self._readers: dict[int, _Reader] = {}
        self._seen_by: dict[int, dict[_View, int]] = {}
        """Per block: the views that have compared it, and the table entry in each."""
        self._delivered: set[int] = set()
        """Blocks that the tier has written with known content."""
        self._under_way: StepPlan | None = None

    # -- events of a step ----------------------------------------------------------------------------------------------

    def before_forward(self, plan: StepPlan) -> None:
        """Note that a forward pass begins. If it does not return, its slots may hold anything."""
        self._give_up_torn_forward()
        self._under_way = plan

    def after_forward(self, plan: StepPlan) -> list[Misread]:
        """Record the writes of a forward pass, then return its misreads: each layer is written before it is read.

        States are read before they are overwritten.
        """
        readers = [self._reader(part) for part in plan.scheduled]
        misreads: list[Misread] = []
        for part, reader in zip(plan.scheduled, readers, strict=True):
            if self._states.indices:
                misreads += self._states.advance(part, reader.identities, self.memory)
            self._write(part, reader)
        for part, reader in zip(plan.scheduled, readers, strict=True):
            if not self._extends_last_blocks(part, reader.views):
                misreads += self._read(part, reader)
        self._under_way = None
        return misreads

    def overwritten(self, block_id: int) -> None:
        """Forget a block's content: a load into it has begun."""
        self._give_up_torn_forward()
        self.memory.forget(block_id)
        self.memory.arriving.add(block_id)
        self._delivered.discard(block_id)
        self._disturb(block_id)

    def delivered(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Record what a load has written, if that is known: the content may not be what its key stands for."""
        if isinstance(kv, CopiedKV):
            self.memory.write(block_id, group, 0, kv.identities, None)
            self._delivered.add(block_id)

    def loaded(self, event: BlocksLoaded) -> None:
        """Record blocks that came from the external tier. Those of unknown content count as what their keys claim.

        A block that the tier has not written keeps its content, whatever the event says.
        """
        self._give_up_torn_forward()
        for group, index, block_id, block_hash in event.transfers:
            if block_id not in self.memory.arriving:
                continue
            self.memory.arriving.remove(block_id)
            if block_id in self._delivered:
                self._delivered.remove(block_id)
                self.memory.claim(block_id, event.request_id)
                continue
            start, end = self.span(group, index)
            claimed = self._identities.up_to(event.request_id, end)[start:end]
            self.memory.load((group, block_hash), block_id, claimed, event.request_id)
            self._disturb(block_id)

    def received(self, event: RequestReceived) -> None:
        """Record blocks that came from another lab: with their content there or, if it has no checks, as claimed."""
        self._give_up_torn_forward()
        for group, index, block_id, _ in event.transfers:
            if block_id not in self.memory.arriving:
                continue
            self.memory.arriving.remove(block_id)
            if block_id in self._delivered:
                self._delivered.remove(block_id)
                self.memory.claim(block_id, event.request_id)
            else:
                own = self._identities.up_to(event.request_id, event.num_tokens)
                said = content_of(own, self._groups[group], index, event.num_tokens)
                self.memory.write(block_id, group, 0, said, event.request_id)

    def filled(self, request_id: int, group: int, block_id: int, start: int, end: int) -> None:
        """Record that a load has filled one block with a request's own KV of positions [start, end)."""
        content = self._identities.up_to(request_id, end)[start:end]
        self.memory.write(
            block_id, group, start - self.span(group, start // self._groups[group].block_size)[0], content, request_id
        )
        self._disturb(block_id)

    def copied(self, block_id: int, into_block_id: int, request_id: int | None, group: int) -> None:
        """Record that a block was copied into another one, for a request if that is known."""
        page = self.memory.page(block_id)
        writer = page.writer if request_id is None and page is not None else request_id
        content = self.memory.read(block_id, group, 0, self._groups[group].num_slots)
        self.memory.forget(into_block_id)
        self.memory.write(into_block_id, group, 0, content, writer)
        self._disturb(into_block_id)

    def claimed(self, event: BlockCached) -> Sequence[int]:
        """Return the identities of the tokens for which a block was registered."""
        start, end = self.span(event.group, event.index)
        return self._identities.up_to(event.request_id, end)[start:end]

    def saved(self, event: BlocksSaved) -> None:
        """Record blocks that were copied to the external tier."""
        for group, _, block_id, block_hash in event.transfers:
            self.memory.save((group, block_hash), block_id)

    def release(self, request_id: int) -> None:
        """Forget the views of a request that has given back its blocks."""
        reader = self._readers.pop(request_id, None)
        for view in reader.views if reader is not None else ():
            for block_id in view.table:
                self._seen_by.get(block_id, {}).pop(view, None)
        self._identities.forget(request_id)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write(self, part: ScheduledRequest, reader: _Reader) -> None:
        identities, seen_of, write = reader.identities, self._seen_by.get, self.memory.write
        for group, (runs, view) in enumerate(zip(part.slot_runs, reader.views, strict=True)):
            position, size = part.start, self._sizes[group]
            for block_id, offset, length in runs:
                if group in self._states.indices:
                    self._disturb(block_id)
                    continue
                write(block_id, group, offset, identities[position : position + length], part.request_id)
                seen = seen_of(block_id)
                if seen and (len(seen) > 1 or seen.get(view) != position // size):
                    self._disturb(block_id, (view, position // size))
                position += length

    def _disturb(self, block_id: int, writer: tuple[_View, int] | None = None) -> None:
        """Have all views of the block compared again, except the writer's at the entry that it wrote."""
        seen = self._seen_by.get(block_id, {})
        for view, index in list(seen.items()):
            if (view, index) != writer:
                view.stale.add(index)
                del seen[view]

    def _give_up_torn_forward(self) -> None:
        if self._under_way is None:
            return
        for part in self._under_way.scheduled:
            self.release(part.request_id)
            for group, runs in enumerate(part.slot_runs):
                for block_id, offset, length in runs:
                    self.memory.write(block_id, group, offset, [None] * length, part.request_id)
                    self._disturb(block_id)
        self._under_way = None

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, part: ScheduledRequest, reader: _Reader) -> Iterator[Misread]:
        for group, (table, view) in enumerate(zip(part.block_tables, reader.views, strict=True)):
            if group in self._states.indices:
                continue
            if table != view.table:
                self._follow_table(view, table)
            size, window = self._groups[group].block_size, self._groups[group].window
            first = 0 if window is None else max(0, part.start - window + 1)
            begin, end = max(first // size, min(view.num_read, part.start // size)), -(-part.end // size)
            for index in (*self._stale_entries(view, first // size, begin), *range(begin, end)):
                misread = self._compare(part, group, index, first, reader.identities)
                if misread is not None:
                    yield misread
                if index < len(table):
                    self._seen_by.setdefault(table[index], {})[view] = index
            # Entries with drafts are compared again once the model has judged the drafts.
            view.num_read = min(end, part.num_known // size) if part.num_drafts else end

    def _extends_last_blocks(self, part: ScheduledRequest, views: Sequence[_View]) -> bool:
        """Return True for one more token in entries already compared: it was written where it will be read."""
        for view, table, runs, size in zip(views, part.block_tables, part.slot_runs, self._sizes, strict=True):
            index, offset = divmod(part.start, size)
            if index >= view.num_read or view.stale or table != view.table or runs != ((table[index], offset, 1),):
                return False
        return True

    def _compare(
        self, part: ScheduledRequest, group: int, index: int, first: int, identities: Sequence[int]
    ) -> Misread | None:
        """Compare the positions [first, part.end) of one table entry."""
        start, end = self.span(group, index)
        low, high = max(start, first), min(end, part.end)
        table = part.block_tables[group]
        block_id = table[index] if index < len(table) else None
        if block_id is None or block_id == self._null_block:
            finding = "its table ends before that" if block_id is None else "the entry is null"
            return Misread(part.request_id, group, index, block_id, block_id is not None, low, finding)
        own, found = identities[low:high], self.memory.read(block_id, group, low - start, high - start)
        if own == found:
            return None
        wrong = next((i for i, known in enumerate(found) if known != own[i]), len(found))
        finding = self.content_unlike(block_id, group, part.request_id, low + wrong)
        return Misread(part.request_id, group, index, block_id, False, low + wrong, f"block {block_id} {finding}")

    def holds_own(self, request_id: int, group: int, block_id: int, index: int) -> bool:
        """Return whether a block holds all the KV, or the state, of a request's full table entry."""
        start, end = self.span(group, index)
        own = self._identities.up_to(request_id, end)[start:end]
        return list(self.memory.read(block_id, group, 0, end - start)) == list(own)

    def content_unlike_claim(self, block_id: int, group: int, request_id: int, index: int) -> str:
        """Return what a block holds instead of the KV of a request's table entry, as "holds KV of ..."."""
        if group in self._states.indices:
            return f"holds {self._states.held(request_id, group, block_id, self.memory)}"
        start, end = self.span(group, index)
        found = self.memory.read(block_id, group, 0, end - start)
        if 0 < (num_filled := len(found) - found.count(None)) < end - start:
            return f"holds KV of {num_filled} tokens"
        try:
            own = self._identities.up_to(request_id, end)[start:end]
        except LookupError:  # forgotten by now
            return "holds KV of other tokens"
        wrong = next((i for i, known in enumerate(found) if known != own[i]), 0)
        return self.content_unlike(block_id, group, request_id, start + wrong)

    def claims_unlike(self, group: int, one: tuple[int, int], other: tuple[int, int]) -> str:
        """Return how the tokens of two table entries (request, index) of a group differ, as ": they differ in ...".

        Empty for entries at different indices, and if a request has been forgotten.
        """
        if one[1] != other[1]:
            return ""
        try:
            return f": {contents_unlike(self._identities, one[0], other[0], range(*self.span(group, one[1])))}"
        except LookupError:
            return ""

    def content_unlike(self, block_id: int, group: int, request_id: int, position: int) -> str:
        """Return what a block holds instead of the request's own KV of a position, as "holds KV of ..."."""
        page = self.memory.page(block_id)
        if page is None:
            return "holds no known KV"
        writer = "by a load that no request waits for" if page.writer is None else f"for request {page.writer}"
        if page.group != group:
            return f"holds KV of group {page.group}, written {writer}"
        found = page.slots[position % self._groups[group].num_slots]
        if found is None:
            return "holds nothing at that slot"
        what = kv_unlike(self._identities, request_id, position, page.writer, found)
        return f"holds KV of {what} there, last written {writer}"

    def _stale_entries(self, view: _View, first: int, begin: int) -> list[int]:
        """Return the stale entries before `begin`, except those outside the window."""
        if not view.stale:
            return []
        stale = sorted(index for index in view.stale if first <= index < begin)
        view.stale.clear()
        return stale

    def _follow_table(self, view: _View, table: Sequence[int]) -> None:
        """Mark the entries whose block has changed as stale."""
        if table[: len(view.table)] != view.table:
            for index, (before, now) in enumerate(zip(view.table, table, strict=False)):
                if before != now:
                    view.stale.add(index)
                    self._seen_by.get(before, {}).pop(view, None)
        view.table = table

    def _reader(self, part: ScheduledRequest) -> _Reader:
        identities = self._identities.up_to(part.request_id, part.num_known)
        reader = self._readers.get(part.request_id)
        if reader is None:
            reader = self._readers[part.request_id] = _Reader(identities, tuple(_View() for _ in self._groups))
        if part.num_drafts:
            return _Reader(continued(identities[: part.num_known], part.token_ids[-part.num_drafts :]), reader.views)
        return reader

    def held_by(self, group: int, index: int) -> str:
        """Return what a table entry holds: "tokens 8 to 11", or "the state after 12 tokens"."""
        start, end = self.span(group, index)
        if group in self._states.indices:
            return f"the state after {counted(end, 'token')}"
        return f"token {start}" if end - start == 1 else f"tokens {start} to {end - 1}"

    def span(self, group: int, index: int) -> tuple[int, int]:
        """Return the positions [start, end) whose KV a table entry holds; for a state, only the last one seen."""
        return self._groups[group].span(index)
