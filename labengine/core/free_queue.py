"""The free queue: the order in which free blocks are reused.

Doubly linked over two int lists; every operation is O(1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

_OUT = -1


class FreeQueue:
    """A queue of block ids, at first 0..num_blocks-1 in order; the head is reused next.

    The sentinel `num_blocks` closes the ring: next[sentinel] is the head, prev[sentinel] the tail.
    """

    __slots__ = ("_length", "_next", "_prev", "_sentinel")

    def __init__(self, num_blocks: int) -> None:
        self._sentinel = num_blocks
        self._next: list[int] = [*range(1, num_blocks + 1), 0]
        self._prev: list[int] = [num_blocks, *range(num_blocks)]
        self._length = num_blocks

    def __len__(self) -> int:
        return self._length

    def __contains__(self, block_id: int) -> bool:
        return 0 <= block_id < self._sentinel and self._next[block_id] != _OUT

    def __iter__(self) -> Iterator[int]:
        """Yield block ids, the head first.

        A broken list yields at most num_blocks, so that no walk is endless.
        """
        following, sentinel, block_ids = self._next, self._sentinel, range(self._sentinel)
        block_id = following[sentinel]
        for _ in block_ids:
            if block_id not in block_ids:
                return
            yield block_id
            block_id = following[block_id]

    def fault(self) -> str | None:
        """Return a description of where the list is broken; None for an intact one. O(length).

        A subclass that keeps its blocks elsewhere has to override this: it finds nothing there.
        """
        if type(self).__iter__ is not FreeQueue.__iter__:
            return None
        following, previous, before, count = self._next, self._prev, self._sentinel, 0
        places = range(self._sentinel + 1)
        while count in places:
            block_id = following[before]
            if block_id not in places or previous[block_id] != before:
                return f"{self._named(before)} leads to {block_id}, which does not lead back: the list is broken"
            if block_id == self._sentinel:
                return None if count == self._length else f"the queue counts {self._length} blocks but holds {count}"
            before, count = block_id, count + 1
        return f"the queue never returns to its head: it loops through block {before}"

    def _named(self, block_id: int) -> str:
        return "its head" if block_id == self._sentinel else f"block {block_id}"

    def take(self, num_blocks: int) -> list[int]:
        """Remove and return the first num_blocks ids, in order. Raises IndexError if there are fewer."""
        if num_blocks > self._length:
            raise IndexError(f"{num_blocks} blocks were requested, but only {self._length} are free")
        following, previous, block_id = self._next, self._prev, self._next[self._sentinel]
        taken = []
        for _ in range(num_blocks):
            taken.append(block_id)
            after = following[block_id]
            following[block_id] = previous[block_id] = _OUT
            block_id = after
        following[self._sentinel] = block_id
        previous[block_id] = self._sentinel
        self._length -= num_blocks
        return taken

    def append(self, block_ids: Sequence[int]) -> None:
        """Queue blocks at the tail, in order. The caller makes sure that they are not queued.

        An override that puts them elsewhere is refused, because events only say "head" or "tail".
        """
        self._insert(self._prev[self._sentinel], block_ids)

    def prepend(self, block_ids: Sequence[int]) -> None:
        """Queue blocks at the head: the first of them is reused next.

        The caller makes sure that they are not queued.
        """
        self._insert(self._sentinel, block_ids)

    def put_back(self, block_ids: Sequence[int]) -> None:
        """Undo a `take` that returned these ids. A subclass that takes from another place puts them back there."""
        self.prepend(block_ids)

    def remove(self, block_id: int) -> int:
        """Remove a block from any place; return the id before it, which `insert_after` needs for the undo."""
        after = self._next[block_id] if 0 <= block_id < self._sentinel else _OUT
        if after == _OUT:
            raise ValueError(f"block {block_id} is not in the free queue")
        before = self._prev[block_id]
        self._next[before], self._prev[after] = after, before
        self._next[block_id] = self._prev[block_id] = _OUT
        self._length -= 1
        return before

    def insert_after(self, before: int, block_id: int) -> None:
        """Queue a block after another one, or first, after the sentinel."""
        if self._next[block_id] != _OUT:
            raise ValueError(f"block {block_id} is already in the free queue")
        self._insert(before, (block_id,))

    def _insert(self, before: int, block_ids: Sequence[int]) -> None:
        following, previous = self._next, self._prev
        after = following[before]
        for block_id in block_ids:
            following[before] = block_id
            previous[block_id] = before
            before = block_id
        following[before] = after
        previous[after] = before
        self._length += len(block_ids)


def holds_in_order(free_queue: FreeQueue, block_ids: Collection[int]) -> bool:
    """Return True if the queue's list is intact and has exactly these blocks, in this order. O(length).

    False for a subclass that keeps its blocks elsewhere. A function, because a user's part would need every method.
    """
    if type(free_queue).__iter__ is not FreeQueue.__iter__ or len(block_ids) != free_queue._length:
        return False
    following, previous, before = free_queue._next, free_queue._prev, free_queue._sentinel
    for block_id in block_ids:
        if following[before] != block_id or previous[block_id] != before:
            return False
        before = block_id
    return following[before] == free_queue._sentinel and previous[free_queue._sentinel] == before
