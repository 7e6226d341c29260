"""Slot memory: for every slot of the pool, the identity of the prefix whose KV it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from labengine.core.block import Key
from labengine.core.connector import BlockKV
from labengine.core.request import ExtraKeys, Image
from labengine.record.snapshot import GroupState


class Identified(Protocol):
    """The inputs of a request's KV."""

    @property
    def token_ids(self) -> list[int]: ...
    @property
    def extra_keys(self) -> ExtraKeys: ...
    @property
    def images(self) -> tuple[Image, ...]: ...


class RequestsById(Protocol):
    """Requests by id."""

    def __getitem__(self, request_id: int, /) -> Identified: ...


class PrefixIdentities:
    """For each request, one number per position: equal numbers mean equal prefixes, and so equal KV.

    The numbers are 61 bits of a hash: two of a million prefixes collide once in five million labs. The scheme shares
    nothing with the core's hash chain, whose mistakes it has to find.
    """

    def __init__(self, requests: RequestsById) -> None:
        self.requests = requests
        self._known: dict[int, list[int]] = {}

    def up_to(self, request_id: int, end: int) -> list[int]:
        """Return the identities of at least the positions 0 to end - 1: the kept list, not to be changed.

        Shorter only if the request itself is shorter.
        """
        known = self._known.get(request_id)
        if known is None:
            known = self._known[request_id] = []
        if len(known) < end:
            request = self.requests[request_id]
            identity = known[-1] if known else _root(request)
            tokens: Sequence[object] = request.token_ids[len(known) : end]
            if request.images:
                tokens = [_seen_at(request, i) or token_id for i, token_id in enumerate(tokens, len(known))]
            known += continued([identity], tokens)[1:]
        return known

    def forget(self, request_id: int) -> None:
        """Drop a finished request's numbers; they are recomputed if needed."""
        self._known.pop(request_id, None)


def continued(identities: list[int], token_ids: Sequence[object]) -> list[int]:
    """Return a prefix's identities, of which the last one suffices, followed by those of the next tokens."""
    continuing = identities[:]
    for token_id in token_ids:
        continuing.append(hash((continuing[-1], token_id)))
    return continuing


def changing_keys(request: Identified) -> ExtraKeys:
    """Return the extra keys that change KV.

    A cache salt separates requests without changing KV. An adapter changes it; the adapter's number does not.
    """
    return tuple(pair for pair in request.extra_keys if pair[0] not in ("cache_salt", "lora_int_id"))


def _seen_at(request: Identified, position: int) -> tuple[str, int] | None:
    """Return the image that a position stands for, and the offset in it; None for an ordinary token.

    The placeholder token itself does not count: the model gets the image instead.
    """
    for image in request.images:
        if image.start <= position < image.start + image.length:
            return image.identifier, position - image.start
    return None


def _root(request: Identified) -> int:
    changing = changing_keys(request)
    return hash(changing) if changing else 0


Identities = Sequence[int | None]
"""One per slot; None for unknown content."""


def content_of(identities: Sequence[int], group: GroupState, index: int, num_tokens: int) -> Sequence[int]:
    """Return what a table entry holds once num_tokens tokens are computed. identities: of these tokens at least."""
    if group.keeps_states:
        return identities[num_tokens - 1 : num_tokens]
    start = index * group.block_size
    return identities[start : min(start + group.block_size, num_tokens)]


MAX_SAVED_BLOCKS = 100_000


class SavedBlocks(OrderedDict[Key, list[int | None]]):
    """Content of the external tier by (group, block hash): per block the identities that it was saved with.

    Content saved by an earlier process is assumed to be what its hash claims; later loads are compared with that.
    """

    def keep(self, key: Key, identities: Identities) -> list[int | None]:
        """Note saved or claimed identities; beyond MAX_SAVED_BLOCKS the oldest are dropped."""
        self[key] = kept = list(identities)
        if len(self) > MAX_SAVED_BLOCKS:
            self.popitem(last=False)
        return kept


class CopiedKV(dict[str, Any]):
    """A block's KV on its way through the external tier, with the identities of its content.

    A tier that keeps the object keeps the identities, whatever its key; one that writes bytes loses them.
    """

    def __init__(self, kv: BlockKV | None, identities: Identities) -> None:
        super().__init__(kv or {})
        self.identities = tuple(identities)


class Page:
    """One block's slots, as divided by the group that last wrote to it."""

    __slots__ = ("group", "slots", "writer")

    def __init__(self, group: int, block_size: int) -> None:
        self.group = group
        self.slots: list[int | None] = [None] * block_size
        self.writer: int | None = None
        """The request that last wrote to it; None for a load whose request is not yet known."""

    def copy(self) -> Page:
        """Return a page of the same content."""
        other = Page(self.group, 0)
        other.slots, other.writer = self.slots[:], self.writer
        return other


class SlotMemory:
    """Pages by block id, created at the first write. A reader has to name its group, as a kernel does.

    Blocks of all groups are equal pages of one pool, so a write of one group destroys another group's content.
    Content that goes to the external tier keeps its identities in `saved`.
    """

    def __init__(self, block_sizes: Sequence[int], saved: SavedBlocks | None = None) -> None:
        self._block_sizes = block_sizes
        self._pages: dict[int, Page] = {}
        self.arriving: set[int] = set()
        """Blocks that a tier has written, and that no event has yet reported as loaded."""
        self._saved = SavedBlocks() if saved is None else saved

    def write(self, block_id: int, group: int, offset: int, identities: Identities, writer: int | None) -> None:
        """Record the identities in consecutive slots of a block, from `offset` on."""
        page = self._pages.get(block_id)
        if page is None or page.group != group:
            page = self._pages[block_id] = Page(group, self._block_sizes[group])
        page.slots[offset : offset + len(identities)] = identities
        page.writer = writer

    def claim(self, block_id: int, writer: int) -> None:
        """Note the request for which a load has written to a block."""
        page = self._pages.get(block_id)
        if page is not None:
            page.writer = writer

    def forget(self, block_id: int) -> None:
        """Treat the block's content as unknown."""
        self._pages.pop(block_id, None)

    def read(self, block_id: int, group: int, first: int, end: int) -> Identities:
        """Return the identities in slots [first, end) of a block; fewer, or none, where the group has not written."""
        page = self._pages.get(block_id)
        return page.slots[first:end] if page is not None and page.group == group else ()

    def duplicate(self) -> SlotMemory:
        """Return an independent memory with the same content; saved content is shared."""
        other = SlotMemory(self._block_sizes, self._saved)
        other._pages = {block_id: page.copy() for block_id, page in self._pages.items()}
        other.arriving = set(self.arriving)
        return other

    def page(self, block_id: int) -> Page | None:
        """Return the block's page; None if it was never written."""
        return self._pages.get(block_id)

    def copy(self, group: int, block_id: int, kv: BlockKV | None) -> CopiedKV:
        """Return the block's KV with the identities of its slots."""
        return CopiedKV(kv, self.read(block_id, group, 0, self._block_sizes[group]))

    def save(self, key: Key, block_id: int) -> None:
        """Record that a block was copied to the external tier."""
        self._saved.keep(key, self.read(block_id, key[0], 0, self._block_sizes[key[0]]))

    def load(self, key: Key, block_id: int, claimed: Identities, reader: int) -> None:
        """Record a block's load from the external tier, with its saved identities, else those that its hash claims."""
        content = self._saved.get(key)
        if content is None:
            content = self._saved.keep(key, claimed)
        self.forget(block_id)
        self.write(block_id, key[0], 0, content, reader)
