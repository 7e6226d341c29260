"""The past state of an engine: a recording replayed event by event, with the content of every slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labengine import events as ev
from labengine.check.slot_memory import PrefixIdentities, SlotMemory, content_of, continued
from labengine.core.request import ExtraKeys, Image, Request
from labengine.record.fold import Fold


@dataclass(frozen=True, slots=True)
class _ForgottenRequest:
    """A request that the engine no longer keeps, rebuilt from its events: its extra keys and images are unknown."""

    token_ids: list[int]
    extra_keys: ExtraKeys = ()
    images: tuple[Image, ...] = ()


class _KeptOrForgotten:
    """Requests by id: those that the engine keeps, and forgotten ones rebuilt from events."""

    def __init__(self, kept: Mapping[int, Request], fold: Fold) -> None:
        self._kept = kept
        self._fold = fold

    def __getitem__(self, request_id: int) -> Request | _ForgottenRequest:
        kept = self._kept.get(request_id)
        return _ForgottenRequest(self._fold.requests[request_id].token_ids) if kept is None else kept


class PastState:
    """The fold of a recording at a moving moment, with a slot memory that survives rolled-back steps.

    is_complete: True if the recording begins with the engine, so that a slot without a record was never written.
    """

    def __init__(self, fold: Fold, requests: Mapping[int, Request], *, is_complete: bool) -> None:
        self.fold = fold
        self.is_complete = is_complete
        self.identities = PrefixIdentities(_KeptOrForgotten(requests, fold))
        self._memory: SlotMemory | None = None
        self._written: dict[tuple[int, int], int] = {}
        """Per (request, group): end of the KV that this step has written, before the step is booked as computed."""
        self._unloaded: dict[int, int] = {}
        """Per request whose external tokens count as computed but are not loaded yet: its computed tokens before."""

    @property
    def memory(self) -> SlotMemory:
        """Content of the slots, as far as the recording shows it."""
        if self._memory is None:
            self._memory = SlotMemory([group.num_slots for group in self.fold.groups])
        return self._memory

    def apply(self, event: ev.Event, *, survives: bool) -> None:
        """Apply one event. An event of a rolled-back step changes only the slot memory."""
        if isinstance(event, ev.ExternalHit) and survives:
            self._unloaded[event.request_id] = self.fold.requests[event.request_id].num_computed_tokens
        if survives:
            self.fold.apply(event)
        match event:
            case ev.SlotsWritten(request_id, group, start, runs):
                self._write(request_id, group, start, runs)
            case ev.StateCopied(block_id, into_block_id, request_id, group):
                self._copy(block_id, into_block_id, request_id, group)
            case ev.BlockCopied(block_id, into_block_id, request_id, group):
                self._copy(block_id, into_block_id, request_id, group)
            case ev.StateAdvanced(request_id, group, block_id, _, end):
                self.memory.write(block_id, group, 0, [self._identity(request_id, end)], request_id)
                self._written[request_id, group] = end
            case ev.BlocksLoaded(request_id, transfers):
                self._load(request_id, transfers)
            case ev.RequestReceived():
                self._receive(event)
            case ev.BlocksSaved(_, transfers):
                for group, _, block_id, block_hash in transfers:
                    self.memory.save((group, block_hash), block_id)
            case ev.StepEnded() | ev.StepRolledBack():
                self._written.clear()
                self._unloaded.clear()

    def counts_on(self, request_id: int, group: int, position: int) -> bool:
        """Return whether the request relies on KV for this position."""
        num_computed = self.fold.requests[request_id].num_computed_tokens
        num_computed = min(num_computed, self._unloaded.get(request_id, num_computed))
        return position < max(num_computed, self._written.get((request_id, group), 0))

    def holds_own(self, request_id: int, group: int, block_id: int, position: int) -> bool | None:
        """Return whether a block holds the request's own KV for a position; None if the recording does not show it."""
        offset = position % self.fold.groups[group].num_slots
        if self.memory.page(block_id) is None and not self.is_complete:
            return None
        own = self.identities.up_to(request_id, position + 1)[position]
        return list(self.memory.read(block_id, group, offset, offset + 1)) == [own]

    def _copy(self, block_id: int, into_block_id: int, request_id: int, group: int) -> None:
        content = self.memory.read(block_id, group, 0, self.fold.groups[group].num_slots)
        self.memory.forget(into_block_id)
        self.memory.write(into_block_id, group, 0, content, request_id)

    def _identity(self, request_id: int, end: int) -> int | None:
        """Return the identity of a request's first `end` tokens, drafts included; None if a draft is not known."""
        request = self.fold.requests[request_id]
        known = self.identities.up_to(request_id, len(request.token_ids))[: len(request.token_ids)]
        if end > len(known):
            known = continued(known, request.drafts)
        return known[end - 1] if end <= len(known) else None

    def _write(self, request_id: int, group: int, start: int, runs: tuple[tuple[int, int, int], ...]) -> None:
        end = start + sum(length for _, _, length in runs)
        identities = self.identities.up_to(request_id, end)
        for block_id, offset, length in runs:
            self.memory.write(block_id, group, offset, identities[start : start + length], request_id)
            start += length
        self._written[request_id, group] = end

    def _load(self, request_id: int, transfers: tuple[ev.Transfer, ...]) -> None:
        self._unloaded.pop(request_id, None)
        for group, index, block_id, block_hash in transfers:
            size = self.fold.groups[group].block_size
            claimed = self.identities.up_to(request_id, (index + 1) * size)[index * size : (index + 1) * size]
            self.memory.load((group, block_hash), block_id, claimed, request_id)
            self._written[request_id, group] = (index + 1) * size

    def _receive(self, event: ev.RequestReceived) -> None:
        own = self.identities.up_to(event.request_id, event.num_tokens)
        for group, index, block_id, _ in event.transfers:
            self.memory.forget(block_id)
            said = content_of(own, self.fold.groups[group], index, event.num_tokens)
            self.memory.write(block_id, group, 0, said, event.request_id)
