"""What a read has found in place of the request's own KV."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.record.violation import Violation


@dataclass(frozen=True, slots=True)
class Misread:
    """A read in which a token attended to a position of its own request and found other content."""

    request_id: int
    group: int
    index: int
    """The entry of the request's table."""
    entry: int | None
    """The block in that entry, or the null block; None when the table ends before."""
    is_null: bool
    position: int
    finding: str

    def violation(self) -> Violation:
        """Return this as a violation of the rule `read`."""
        where = f"position {self.position} in entry {self.index} of its table in group {self.group}"
        text = f"request {self.request_id} reads {where}: {self.finding}"
        block_ids = () if self.entry is None or self.is_null else (self.entry,)
        return Violation("read", text, (self.request_id,), block_ids)
