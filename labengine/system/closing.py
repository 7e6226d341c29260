"""What closes itself at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base for what is closed once it is no longer needed."""

    __slots__ = ()

    def close(self) -> None:
        """Give back what it holds; once more does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
