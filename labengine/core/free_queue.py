"""The free queue: which block is reused next. A doubly linked list over two integer lists; every operation is O(1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_OUT = -1


class FreeQueue:
    """Ids 0..num_blocks-1, at first all queued in order; the head is the next victim.

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
        return self._next[block_id] != _OUT

    def __iter__(self) -> Iterator[int]:
        """Block ids, the next victim first."""
        block_id = self._next[self._sentinel]
        while block_id != self._sentinel:
            yield block_id
            block_id = self._next[block_id]

    def take(self, num_blocks: int) -> list[int]:
        """Remove and return the first num_blocks ids, in order. IndexError when there are fewer."""
        if num_blocks > self._length:
            raise IndexError(f"{num_blocks} blocks asked for, {self._length} are free")
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

    def put_back(self, taken: Sequence[int]) -> None:
        """The inverse of `take`."""
        for block_id in reversed(taken):
            self.prepend(block_id)

    def append(self, block_id: int) -> None:
        """Queue a block at the tail."""
        self.insert_after(self._prev[self._sentinel], block_id)

    def prepend(self, block_id: int) -> None:
        """Queue a block at the head."""
        self.insert_after(self._sentinel, block_id)

    def remove(self, block_id: int) -> int:
        """Take a block out of any place; returns the id before it, for `insert_after` as the inverse."""
        before, after = self._prev[block_id], self._next[block_id]
        if after == _OUT:
            raise ValueError(f"block {block_id} is not in the free queue")
        self._next[before], self._prev[after] = after, before
        self._next[block_id] = self._prev[block_id] = _OUT
        self._length -= 1
        return before

    def insert_after(self, before: int, block_id: int) -> None:
        """Queue a block behind another (or first, behind the sentinel)."""
        if self._next[block_id] != _OUT:
            raise ValueError(f"block {block_id} is in the free queue already")
        after = self._next[before]
        self._next[before] = self._prev[after] = block_id
        self._prev[block_id], self._next[block_id] = before, after
        self._length += 1
