"""What every slot of the pool holds: beside the KV itself, the identity of the prefix it was computed for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from labengine.core.block import Key

Identities = Sequence[int | None]
"""One per slot; None for what nobody can vouch for."""

MAX_SAVED_BLOCKS = 100_000


class SavedBlocks(OrderedDict[Key, list[int | None]]):
    """What the external tier holds, by (group, block hash): each block with the identity it was saved with.

    Content that an earlier process saved is taken for what its hash claims, and from then on held to that.
    """

    def keep(self, key: Key, identities: Identities) -> list[int | None]:
        """Note what was saved, or claimed; the oldest notes go when there are too many."""
        self[key] = kept = list(identities)
        if len(self) > MAX_SAVED_BLOCKS:
            self.popitem(last=False)
        return kept


class Page:
    """One block's memory, as the group that wrote last divides it into slots."""

    __slots__ = ("group", "slots", "writer")

    def __init__(self, group: int, block_size: int) -> None:
        self.group = group
        self.slots: list[int | None] = [None] * block_size
        self.writer: int | None = None
        """The request that wrote last."""


class SlotMemory:
    """Pages by block id, made when they are first written. Whoever reads has to know the group, as a kernel does.

    Blocks of all groups are equal pages of one pool, so writing through one group destroys what another had there.
    Content that goes to the external tier keeps its identity in `saved`.
    """

    def __init__(self, block_sizes: Sequence[int], saved: SavedBlocks | None = None) -> None:
        self._block_sizes = block_sizes
        self._pages: dict[int, Page] = {}
        self._saved = SavedBlocks() if saved is None else saved

    def write(self, block_id: int, group: int, offset: int, identities: Identities, writer: int) -> None:
        """Consecutive slots of a block from `offset` on now hold these."""
        page = self._pages.get(block_id)
        if page is None or page.group != group:
            page = self._pages[block_id] = Page(group, self._block_sizes[group])
        page.slots[offset : offset + len(identities)] = identities
        page.writer = writer

    def forget(self, block_id: int) -> None:
        """The block may hold anything."""
        self._pages.pop(block_id, None)

    def read(self, block_id: int, group: int, first: int, end: int) -> Identities:
        """What the slots [first, end) of a block hold for a group; shorter, or empty, where it has written nothing."""
        page = self._pages.get(block_id)
        return page.slots[first:end] if page is not None and page.group == group else ()

    def page(self, block_id: int) -> Page | None:
        """The block's memory; None when nobody has written to it."""
        return self._pages.get(block_id)

    def save(self, key: Key, block_id: int) -> None:
        """A block was copied to the external tier."""
        self._saved.keep(key, self.read(block_id, key[0], 0, self._block_sizes[key[0]]))

    def load(self, key: Key, block_id: int, claimed: Identities, reader: int) -> None:
        """A block came from the external tier: with the identity it was saved with, else the one its hash claims."""
        content = self._saved.get(key)
        if content is None:
            content = self._saved.keep(key, claimed)
        self.forget(block_id)
        self.write(block_id, key[0], 0, content, reader)
