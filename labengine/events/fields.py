"""Types of fields, which state a number's meaning and bounds.

The shapes of recordings, rows in the browser, and the blocks of an event are derived from them.
Annotated[T, hint]: a type checker reads T, and a recording's value is checked as the hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

MAX_NUMBER = 2**31 - 1
"""Maximum of requests, positions, steps and counts: a browser keeps them in 32 bits."""

MAX_EXACT = 2**53 - 1
"""Maximum up to which a browser's numbers are exact."""

UNKNOWN_TOKEN = -1
"""Stands for a token id in a recording that has only the number of tokens."""

Role = Literal["number", "block", "gaining block", "losing block", "named block", "request", "entry", "named entry"]
"""Meaning of a number. An event neither changes nor fills what it only names."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Meaning and bounds of a whole number. A str bound names the pool's size, which the number must be below."""

    role: Role = "number"
    low: int = 0
    high: int | Literal["num_blocks", "num_groups"] = MAX_NUMBER


BlockId = Annotated[int, Whole("block", 0, "num_blocks")]
GainingBlock = Annotated[int, Whole("gaining block", 0, "num_blocks")]
"""A block that gets another reference."""
LosingBlock = Annotated[int, Whole("losing block", 0, "num_blocks")]
"""A block that loses a reference."""
BlockOrNull = Annotated[int, Whole("block", -1, "num_blocks")]
NamedBlock = Annotated[int, Whole("named block", -1, "num_blocks")]
AnyBlock = Annotated[int, Whole("named block", -MAX_EXACT, MAX_EXACT)]
"""A block named by a violation; it need not exist."""
GroupNumber = Annotated[int, Whole(high="num_groups")]
RequestId = Annotated[int, Whole("request")]
"""A request that exists when the event happens."""
EntryIndex = Annotated[int, Whole("entry")]
"""An entry of the request's table that changes."""
NamedEntry = Annotated[int, Whole("named entry")]
NodeId = Annotated[int, Whole()]
"""A node of the prefix tree; 0 is its root."""
TokenId = Annotated[int, Whole(low=UNKNOWN_TOKEN, high=2**63 - 1)]
TokenIds = tuple[TokenId, ...]
Signed = Annotated[int, Whole(low=-MAX_NUMBER)]
OrNone = Annotated[int, Whole(low=-1)]
"""A number, or -1 for none."""
Exact = Annotated[int, Whole(low=-MAX_EXACT, high=MAX_EXACT)]
BlockSize = Annotated[int, Whole(low=1, high=2**20)]

GroupRow = tuple[str, BlockSize, Annotated[int, Whole(low=1)] | None]
"""(kind, block size, window) of a KV-cache group."""
GroupKey = tuple[GroupNumber, bytes]
"""(group, block hash): a key of the prefix map, and a content of the external tier."""
BlockIds = tuple[tuple[NamedBlock, ...], ...]
"""Block ids per group, in table order."""
Image = tuple[int, int, str]
"""(position, length, identifier) of an image behind placeholder tokens."""

Transfer = tuple[GroupNumber, int, BlockOrNull, bytes]
"""(group, table index, block_id, block hash): one block on its way to or from the external tier.

The hash is empty for a partly filled block, which has no complete content.
"""

SavedTransfer = tuple[GroupNumber, int, NamedBlock, bytes]

ScheduledStatus = Annotated[str, Literal["waiting", "running"]]

QueueEnd = Literal["head", "tail"]
"""Where a freed block enters the free queue: the head is reused next, the tail last."""

FreeReason = Literal["finished", "aborted", "preempted", "merged", "copied", "pruned", "window", "state", "load_failed"]
ENTRY_REPLACED: tuple[FreeReason, ...] = ("merged", "copied")
"""Reasons before which the table entry had come to name another block."""

EvictReason = Literal["reused", "replaced", "reset", "distrusted"]
"""Why a block's content was forgotten: it is given away; a longer prefix replaced it; the cache was reset; it may hold
garbage."""
