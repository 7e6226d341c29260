"""What the browser draws of a block, computed in Python: the reference for its model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from labengine import events as ev
from labengine.record.wording import readable
from labengine_widgets.words.names import ContentIndex
from labengine_widgets.words.scene import Scene

MAX_SLOT_TEXTS = 16
"""Maximum number of tokens shown as text in a block; a longer block shows its first ones."""

MAX_BLOCKS_WITH_TEXT = 2048
"""In a larger pool the cells are too small for text."""

HASHED, MAPPED, LOST = 1, 2, 4

NOTHING = "–"
"""The text of a slot that was never written, although a later slot was."""


class Cell(NamedTuple):
    """One block as drawn. content: its number, -1 for none; fill: slots written; flags: HASHED, MAPPED, LOST.

    tokens: text per slot. groups: the KV-cache groups whose tables name the block; more than one is a fault (vLLM
    issue 43884).
    """

    block_id: int
    ref_count: int = 0
    content: int = -1
    fill: int = 0
    flags: int = 0
    owners: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()


class DrawnScene(Scene):
    """A scene that also knows how each block is drawn: its flags, and what its slots hold."""

    def cell(self, block_id: int) -> Cell:
        """Return a block as drawn now."""
        ref_count, keys = self.fold.ref_counts[block_id], self.fold.block_keys[block_id]
        if not ref_count and not keys:
            return Cell(block_id)
        return Cell(
            block_id,
            ref_count,
            self.filling.content(block_id),
            max((self.filling.fill(block_id), *(1 + offset for offset in self._strays.get(block_id, ())))),
            self._flags(block_id),
            self.owners.of(block_id),
            self._block_texts(block_id) if self.num_blocks <= MAX_BLOCKS_WITH_TEXT else (),
            self.owners.groups_of(block_id),
        )

    def misplaced(self, event: ev.SlotsWritten) -> list[tuple[int, int, int]]:
        """Return (position, slot written, slot that reads will use) where the two differ (nano-vLLM PR 71)."""
        request = self.fold.requests.get(event.request_id)
        if request is None:
            return []
        table, size = request.block_tables[event.group], self.fold.groups[event.group].block_size
        found, position = [], event.start
        for block_id, offset, length in event.runs:
            index, right_offset = divmod(position, size)
            if index < len(table) and (block_id, offset) != (table[index], right_offset):
                found.append((position, block_id * size + offset, table[index] * size + right_offset))
            position += length
        return found

    def _flags(self, block_id: int) -> int:
        keys = self.fold.block_keys[block_id]
        if not keys:
            return 0
        is_mapped = any(block_id in self.fold.prefix_map.get(key, ()) for key in keys)
        return HASHED | (MAPPED if is_mapped else 0) | (LOST if self.fold.is_lost(block_id) else 0)

    def _block_texts(self, block_id: int) -> tuple[str, ...]:
        texts = self._texts_by_table(block_id)
        strays = self._strays.get(block_id)
        if not strays:
            return texts
        shown = [*texts, *[NOTHING] * (1 + max(strays) - len(texts))]
        for offset, token_id in strays.items():
            shown[offset] = NOTHING if token_id is None else self._slot_text(token_id)
        return tuple(shown[:MAX_SLOT_TEXTS])

    def _texts_by_table(self, block_id: int) -> tuple[str, ...]:
        if self.fold.block_tokens[block_id]:
            return self._slot_texts(self.fold.block_tokens[block_id])
        home = self.filling.home_of(block_id)
        if home is None or home[0] not in self.fold.requests:
            return ()
        start = home[2] * self.filling.size_of(home)
        return self._slot_texts(self.fold.requests[home[0]].token_ids[start : start + self.filling.fill(block_id)])

    def _slot_texts(self, token_ids: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._slot_text(token_id) for token_id in islice(token_ids, MAX_SLOT_TEXTS))

    def _slot_text(self, token_id: int) -> str:
        return readable(self.token_text(token_id), 24)

    def _take_stock(self, contents: ContentIndex) -> None:
        super()._take_stock(contents)
        self._strays: dict[int, dict[int, int | None]] = {}
        """Slots that differ from the tables, by block and offset: the token written there, None for none."""

    def apply(self, event: ev.Event) -> None:
        super().apply(event)
        try:
            match event:
                case ev.BlockAllocated():
                    self._strays.pop(event.block_id, None)
                case ev.SlotsWritten():
                    self._note_strays(event)
        except LookupError:
            if not self.fold.num_impossible:
                raise

    def _note_strays(self, event: ev.SlotsWritten) -> None:
        size = self.fold.groups[event.group].block_size
        for block_id, offset, length in event.runs:
            for written in range(offset, offset + length) if block_id in self._strays else ():
                self._strays[block_id].pop(written, None)
        for position, slot, right_slot in self.misplaced(event):
            token_id = self.fold.requests[event.request_id].token_ids[position]
            for stray, content in ((slot, token_id), (right_slot, None)):
                self._strays.setdefault(stray // size, {})[stray % size] = content
