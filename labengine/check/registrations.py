"""Registrations: for each block known by a key, the request that registered it, until the block is evicted."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.check.contents import Claim
from labengine.core.block import Key
from labengine.core.request import ExtraKeys, Image


class Registration(NamedTuple):
    """One BlockCached: the request that a block was registered for, and its extra keys."""

    key: Key
    request_id: int
    extra_keys: ExtraKeys
    claim: Claim | None
    """The content that it claims; None for a tail, whose event does not give its number of tokens."""
    number: int
    """The event's number in the recording."""
    images: tuple[Image, ...] = ()
    """All images of the request; a hit decides which of them the block's KV depends on."""
    given_away: int | None = None
    """Number of the BlockAllocated that gave the block away without removing its key; None for none."""


class Registrations:
    """Registrations per block, according to the events. A rollback undoes those of its step."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Registration, ...]] = {}
        self._before: list[tuple[int, tuple[Registration, ...]]] = []
        """(block, its registrations) before each change in the open step, oldest first."""

    def of(self, block_id: int) -> tuple[Registration, ...]:
        """Return the block's registrations, oldest first."""
        return self._of.get(block_id, ())

    def block_ids(self) -> tuple[int, ...]:
        """Return the blocks that are known by a key."""
        return tuple(self._of)

    def under(self, block_id: int, key: Key) -> Registration | None:
        """Return the block's registration under a key."""
        return next((one for one in self.of(block_id) if one.key == key), None)

    def add(
        self,
        event: ev.BlockCached,
        extra_keys: ExtraKeys,
        claim: Claim | None,
        number: int,
        images: tuple[Image, ...] = (),
    ) -> None:
        """Note that a block was registered. images: all of the request."""
        key = event.group, event.block_hash
        others = (one for one in self.of(event.block_id) if one.key != key)
        one = Registration(key, event.request_id, extra_keys, claim, number, images)
        self._set(event.block_id, (*others, one))

    def give_away(self, block_id: int, number: int) -> None:
        """Note that a block was allocated. A block known by a key should have been evicted before."""
        if block_id in self._of:
            self._set(block_id, tuple(one._replace(given_away=number) for one in self._of[block_id]))

    def evict(self, block_id: int) -> None:
        """Forget a block's registrations."""
        if block_id in self._of:
            self._set(block_id, ())

    def move(self, block_id: int, into_block_id: int) -> None:
        """Note that a block's keys have moved to another block."""
        moved = self.of(block_id)
        self._set(block_id, ())
        self._set(into_block_id, moved)

    def open_step(self) -> None:
        """Begin a step: earlier changes can no longer be undone."""
        self._before.clear()

    def take_back(self) -> None:
        """Restore the registrations at the open step's start."""
        while self._before:
            self._put(*self._before.pop())

    def _set(self, block_id: int, registrations: tuple[Registration, ...]) -> None:
        self._before.append((block_id, self.of(block_id)))
        self._put(block_id, registrations)

    def _put(self, block_id: int, registrations: tuple[Registration, ...]) -> None:
        if registrations:
            self._of[block_id] = registrations
        else:
            self._of.pop(block_id, None)
