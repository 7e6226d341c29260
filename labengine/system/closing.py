"""Objects that close themselves at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """Base class of objects with a `close` method."""

    __slots__ = ()

    def close(self) -> None:
        """Release the resources; calling it again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
