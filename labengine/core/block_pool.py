"""The block pool: every physical block, the free queue and the prefix map. All changes to blocks happen here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from labengine.core.block import Block, Key, Prefix, PrefixMap
from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.core.part_methods import is_own
from labengine.events import BlockEvicted, EvictReason
from labengine.record.hooks import Hooks
from labengine.record.snapshot import NULL_BLOCK

if TYPE_CHECKING:
    from labengine.core.radix.prefix_tree import PrefixTree


class FreedTwiceError(RuntimeError):
    """A free block is freed again. request_id: the request for which it is freed, if known."""

    def __init__(self, block_id: int) -> None:
        super().__init__(f"block {block_id} is freed twice: its ref_count is 0")
        self.block_id = block_id
        self.request_id: int | None = None


class BlockPool:
    """The blocks shared by all KV-cache groups. A block is free exactly when its ref_count is 0."""

    null_block: int = NULL_BLOCK
    """Pads block tables. If >= 0, it is a block of the pool, reserved for that and never given away."""

    def __init__(self, num_blocks: int, free_queue: FreeQueue, hooks: Hooks, journal: Journal) -> None:
        self.blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.free_queue = free_queue
        self.num_usable = num_blocks
        """Blocks that requests can hold: all but a reserved null block."""
        if self.null_block >= 0:
            self.free_queue.remove(self.null_block)
            self.num_usable -= 1
        self.prefix_map: PrefixMap = {}
        self.tree: PrefixTree | None = None
        """Decides what is cached, in editions that have one."""
        self.num_losses = 0
        """Releases and evictions so far."""
        self._hooks = hooks
        self._journal = journal

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self.free_queue)

    @property
    def num_used(self) -> int:
        """Blocks held by at least one request."""
        return self.num_usable - len(self.free_queue)

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks from the head of the free queue, with ref_count 1; their cached content is forgotten."""
        block_ids = self.free_queue.take(num_blocks)
        self._journal.record((self._put_back, block_ids))
        blocks = [self.blocks[block_id] for block_id in block_ids]
        for block in blocks:
            block.ref_count = 1
        self._evict_all([block for block in blocks if block.keys])
        return block_ids

    def touch(self, block_ids: Sequence[int]) -> None:
        """Add one reference to each of these cached blocks; a free one leaves the queue.

        Raises IndexError for an id outside the pool, and for the null block: a null entry of a hit holds nothing.
        """
        blocks, free_queue, record = self.blocks, self.free_queue, self._journal.record
        num_blocks, null_block = len(blocks), self.null_block
        for block_id in block_ids:
            if not 0 <= block_id < num_blocks or block_id == null_block:
                raise self._outside(block_id, "touched")
            block = blocks[block_id]
            before = None if block.ref_count else free_queue.remove(block_id)
            record((self._untouch, block, before))
            block.ref_count += 1

    def share(self, block: Block) -> None:
        """Add one reference to a used block; `touch` is for blocks that may be free."""
        self._journal.record((self._untouch, block, None))
        block.ref_count += 1

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Drop one reference to each block. Returns the blocks now free, (at the head, at the tail) of the queue.

        block_ids: the first to be reused first. Before anything changes, raises IndexError for an id outside the pool
        and FreedTwiceError for a free block; ValueError if an override of `reused_first` returns anything but some of
        these blocks.
        """
        blocks = self.blocks
        freed: list[int] = []
        self.num_losses += 1
        self._journal.record((self._unrelease, block_ids))
        rest = iter(block_ids)
        try:
            for block_id in rest:
                if block_id < 0:
                    raise IndexError
                block = blocks[block_id]
                block.ref_count = left = block.ref_count - 1
                if left <= 0:
                    if left:
                        block.ref_count = 0
                        raise FreedTwiceError(block_id)
                    freed.append(block_id)
        except (IndexError, FreedTwiceError) as error:
            self._journal.pop()
            for counted in block_ids[: len(block_ids) - len([*rest]) - 1]:
                blocks[counted].ref_count += 1
            if isinstance(error, IndexError):
                raise self._outside(block_id, "freed") from None
            raise
        if not freed:
            return freed, freed
        head = self.reused_first(freed)
        if len(head) == len(freed):
            self.free_queue.prepend(head)
            return head, []
        tail = _without(freed, head) if head else freed
        self.free_queue.prepend(head)
        self.free_queue.append(tail)
        return head, tail

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the freed blocks that go to the head of the queue: those without cached content, useless for hits.

        At the tail they would outlive cached blocks, which are worth more (vLLM PR 42656).
        """
        blocks = self.blocks
        return [block_id for block_id in block_ids if not blocks[block_id].keys]

    def register(
        self, block: Block, key: Key, token_ids: tuple[int, ...], prefix: Prefix, mapped: tuple[int, ...]
    ) -> None:
        """Set a block's content, and the ids that the map holds under its key; an empty `mapped` leaves the map."""
        self._journal.record((self._unregister, block, key, self.prefix_map.get(key), block.token_ids))
        block.keys += (key,)
        block.token_ids = token_ids
        block.prefix = block.prefix or prefix
        if mapped:
            self.prefix_map[key] = mapped

    def register_new(
        self,
        blocks: Sequence[Block],
        keys: Sequence[Key],
        token_ids: Iterable[tuple[int, ...]],
        prefixes: Iterable[Prefix],
        mapped: Iterable[tuple[int, ...]],
    ) -> bool:
        """Register several blocks at once, as `register` does one by one.

        Return False, with nothing changed, if one of them has content, or a key is known or occurs twice.
        """
        is_known = len({*keys}) < len(keys) or not self.prefix_map.keys().isdisjoint(keys)
        if is_known or any(block.keys for block in blocks):
            return False
        self._journal.record((self._unregister_new, blocks))
        for block, key, tokens, prefix in zip(blocks, keys, token_ids, prefixes, strict=True):
            block.keys, block.token_ids, block.prefix = (key,), tokens, prefix
        self.prefix_map.update((key, block_ids) for key, block_ids in zip(keys, mapped, strict=True) if block_ids)
        return True

    def move_keys(self, block: Block, into: Block) -> None:
        """Move a block's content, keys and places in the map to another block, which has no content."""
        record, prefix_map = self._journal.record, self.prefix_map
        for moved in (block, into):
            record((_restore_content, moved, moved.keys, moved.token_ids, moved.prefix))
        for key in block.keys:
            mapped = prefix_map.get(key, ())
            if block.block_id in mapped:
                record((prefix_map.__setitem__, key, mapped))
                prefix_map[key] = (*(i for i in mapped if i != block.block_id), into.block_id)
        into.keys, into.token_ids, into.prefix = block.keys, block.token_ids, block.prefix
        block.keys, block.token_ids, block.prefix = (), (), None

    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        """Forget a block's content: its keys, and the map entries that lead to it."""
        self.forget((block,), reason)

    def _evict_all(self, blocks: Sequence[Block], reason: EvictReason = "reused") -> None:
        """Evict cached blocks, one by one if `evict` is overridden."""
        if not is_own(self.evict, BlockPool.evict):
            for block in blocks:
                self.evict(block, reason)
        elif blocks:
            self.forget(blocks, reason)

    def forget(self, blocks: Sequence[Block], reason: EvictReason) -> None:
        """Forget the content of blocks, in this order, whether one or many are evicted."""
        prefix_map, entries = self.prefix_map, list[tuple[Key, tuple[int, ...]]]()
        contents = [(block, block.keys, block.token_ids, block.prefix) for block in blocks]
        self.num_losses += len(blocks)
        self._journal.record((self._restore_contents, contents, entries))
        for block in blocks:
            block_id = block.block_id
            for key in block.keys:
                mapped = prefix_map.get(key, ())
                if block_id not in mapped:
                    continue
                entries.append((key, mapped))
                if len(mapped) == 1:
                    del prefix_map[key]
                else:
                    prefix_map[key] = tuple(i for i in mapped if i != block_id)
            block.keys, block.token_ids, block.prefix = (), (), None
            if BlockEvicted in self._hooks:
                self._hooks.emit(BlockEvicted(block_id, reason))

    def evict_cached(self, block_ids: Iterable[int], reason: EvictReason) -> None:
        """Forget the content of the cached ones among these blocks.

        Raises IndexError for an id outside the pool, before anything changes.
        """
        block_ids = dict.fromkeys(block_ids)
        for block_id in block_ids:
            if not 0 <= block_id < len(self.blocks):
                raise self._outside(block_id, "evicted")
        self._evict_all([block for block_id in block_ids if (block := self.blocks[block_id]).keys], reason)

    def blocks_to_give_back(self) -> set[int]:
        """Return the blocks to which a rollback of the journal returns a reference or content."""
        found: set[int] = set()
        for inverse, *arguments in self._journal:
            if inverse == self._unrelease:
                found.update(arguments[0])
            elif inverse is _restore_content:
                found.add(arguments[0].block_id)
            elif inverse == self._restore_contents:
                found.update(block.block_id for block, *_ in arguments[0])
        return found

    def num_pins(self, block_id: int) -> int:
        """Return the references to a block that no table holds: here none."""
        return 0

    def _outside(self, block_id: int, what: str) -> IndexError:
        if block_id == self.null_block:
            return IndexError(f"block {block_id} cannot be {what}: it is the null block, which only pads tables")
        return IndexError(f"block {block_id} cannot be {what}: the pool has blocks 0 to {len(self.blocks) - 1}")

    # -- inverses ------------------------------------------------------------------------------------------------------

    def _put_back(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.blocks[block_id].ref_count = 0
        self.free_queue.put_back(block_ids)

    def _untouch(self, block: Block, before: int | None) -> None:
        block.ref_count -= 1
        if before is not None:
            self.free_queue.insert_after(before, block.block_id)

    def _unrelease(self, block_ids: Sequence[int]) -> None:
        """Undo a release, even one that was interrupted before the queue received the blocks."""
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1
            if block_id in self.free_queue:
                self.free_queue.remove(block_id)

    def _unregister(self, block: Block, key: Key, mapped: tuple[int, ...] | None, token_ids: tuple[int, ...]) -> None:
        block.keys, block.token_ids = block.keys[:-1], token_ids
        if not block.keys:
            block.prefix = None
        self._map_again(key, mapped or ())

    def _unregister_new(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            for key in block.keys:
                self.prefix_map.pop(key, None)
            block.keys, block.token_ids, block.prefix = (), (), None

    def _restore_contents(
        self,
        contents: Iterable[tuple[Block, tuple[Key, ...], tuple[int, ...], Prefix | None]],
        entries: Sequence[tuple[Key, tuple[int, ...]]],
    ) -> None:
        self.prefix_map.update(reversed(entries))
        for content in contents:
            _restore_content(*content)

    def _map_again(self, key: Key, mapped: tuple[int, ...]) -> None:
        if mapped:
            self.prefix_map[key] = mapped
        else:
            self.prefix_map.pop(key, None)


def _without(block_ids: list[int], left_out: list[int]) -> list[int]:
    out = set(left_out)
    return [block_id for block_id in block_ids if block_id not in out]


def _restore_content(block: Block, keys: tuple[Key, ...], token_ids: tuple[int, ...], prefix: Prefix | None) -> None:
    block.keys, block.token_ids, block.prefix = keys, token_ids, prefix
