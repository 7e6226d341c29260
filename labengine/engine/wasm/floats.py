"""Numbers of float32 in a shape, where there are no tensors."""

from __future__ import annotations

from math import prod
from typing import Any


class Floats:
    """A copy of float32 numbers. It has what the lab reads of a tensor; `tolist()` gives nested lists.

    content: its bytes, in C order.
    """

    dtype = "float32"

    def __init__(self, content: bytes, shape: tuple[int, ...]) -> None:
        assert len(content) == 4 * prod(shape)
        self.content, self.shape = content, shape
        self._view = memoryview(content).cast("f", shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return len(self.content)

    def element_size(self) -> int:
        """Return the bytes of a number."""
        return 4

    def tolist(self) -> list[Any]:
        """Return the numbers as nested lists."""
        return self._view.tolist()

    def __getitem__(self, place: tuple[int, ...]) -> float:
        """Return one number: a place has an index for each dimension."""
        return float(self._view[place])

    def __eq__(self, other: object) -> bool:
        """Return True for the same shape and the same bits."""
        return isinstance(other, Floats) and (self.shape, self.content) == (other.shape, other.content)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Floats({' x '.join(map(str, self.shape))}, float32)"
