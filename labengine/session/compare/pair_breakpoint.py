"""One breakpoint on both sides of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labengine.session.time.breakpoints import Breakpoint


@dataclass(frozen=True, slots=True, repr=False)
class PairBreakpoint:
    """Waits for an event of either side. `close()` takes both away, twice is harmless; usable in a with block.

    number: counted from 1, what %lab break calls it. left, right: each side's own.
    """

    number: int
    left: Breakpoint
    right: Breakpoint

    @property
    def is_open(self) -> bool:
        """False once neither side waits any more."""
        return self.left.is_open or self.right.is_open

    @property
    def num_hits(self) -> tuple[int, int]:
        """How often a run stopped for it, or might have, on either side."""
        return self.left.num_hits, self.right.num_hits

    def close(self) -> None:
        """Wait no more, on neither side."""
        self.left.close()
        self.right.close()

    def __enter__(self) -> PairBreakpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        left, right = self.num_hits
        state = "" if self.is_open else " (closed)"
        return f"breakpoint {self.number}, on both sides: {self.left.condition}, met {left} + {right} times{state}"
