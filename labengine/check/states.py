"""States: the tokens that each state block has seen, and whether each step continues from its request's own state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labengine.check.differences import Misread
from labengine.check.slot_memory import PrefixIdentities, SlotMemory
from labengine.core.step_plan import ScheduledRequest
from labengine.record.snapshot import GroupState
from labengine.record.violation import Violation
from labengine.record.wording import counted


@dataclass(frozen=True, slots=True)
class WrongState(Misread):
    """A step that does not continue from the request's own state after its computed tokens."""

    def violation(self) -> Violation:
        """Return this as a violation of the rule `read`."""
        needed = f"the state after its first {counted(self.position + 1, 'token')}"
        text = f"request {self.request_id} continues from {needed} in group {self.group}: {self.finding}"
        block_ids = () if self.entry is None or self.is_null else (self.entry,)
        return Violation("read", text, (self.request_id,), block_ids)


class States:
    """The states in blocks. Each block's memory is one slot: the identity of the last token that its state has seen."""

    def __init__(self, groups: Sequence[GroupState], null_block: int, identities: PrefixIdentities) -> None:
        self.indices = [index for index, group in enumerate(groups) if group.keeps_states]
        """The state groups."""
        self._groups = groups
        self._null_block = null_block
        self._identities = identities

    def advance(self, part: ScheduledRequest, own: Sequence[int], memory: SlotMemory) -> Iterator[WrongState]:
        """Compare the states that a request's forward pass reads, and record those that it writes.

        own: identities of the request's tokens, drafts included. If two requests advance one block in the same step,
        the second reads what the first has left. With drafts, each token reads the state left by the token before, and
        writes its state to a separate block. Before a checkpoint, the state is in the block of the chunk's end.
        """
        for group in self.indices:
            runs = part.slot_runs[group]
            if not runs:
                continue
            source = runs[-1 if part.checkpoint else 0][0]
            if part.start and list(memory.read(source, group, 0, 1)) != [own[part.start - 1]]:
                yield self._wrong(part, group, source, memory)
            for end, (block_id, _, _) in zip(part.state_ends(group), runs, strict=True):
                memory.write(block_id, group, 0, [own[end - 1]], part.request_id)

    def _wrong(self, part: ScheduledRequest, group: int, block_id: int, memory: SlotMemory) -> WrongState:
        index = (part.end - 1) // self._groups[group].block_size
        is_null = block_id == self._null_block
        finding = "its table entry is null"
        if not is_null:
            finding = f"block {block_id} holds {self.held(part.request_id, group, block_id, memory)}"
        return WrongState(part.request_id, group, index, block_id, is_null, part.start - 1, finding)

    def held(self, request_id: int, group: int, block_id: int, memory: SlotMemory) -> str:
        """Return the state that a block holds instead of a request's, as "request 1's state after 8 tokens"."""
        page = memory.page(block_id)
        if page is None or page.slots[:1] == [None]:
            return "no known state"
        if page.group != group:
            return f"content of group {page.group}"
        found = page.slots[0]
        for owner in dict.fromkeys((request_id, page.writer)):
            if owner is not None and found in (theirs := self._all_of(owner)):
                return f"request {owner}'s state after {counted(theirs.index(found) + 1, 'token')}"
        return "the state after other tokens"

    def _all_of(self, request_id: int) -> Sequence[int]:
        try:
            return self._identities.up_to(request_id, len(self._identities.requests[request_id].token_ids))
        except LookupError:  # forgotten by now
            return ()
