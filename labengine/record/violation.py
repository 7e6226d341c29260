"""A violation: a rule that does not hold, and the requests and blocks that show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

RULES = {
    "partition": "every block is either free and queued once, or used",
    "ref_count": "a block's ref_count is the number of table entries that point at it",
    "one_entry": "a block is in the tables of one group only, and once per table",
    "held": "no block of a request is free; a finished request holds none, and gives each back once",
    "prefix_map": "a hash in the map leads to blocks known by that hash",
    "duplicate": "where an edition merges, no two live blocks hold the same content",
    "window": "the tokens that a request's next token attends to are covered by its hit and its tables",
    "slot": "a token's KV goes to table[position // block_size], at offset position % block_size",
    "write": "a step writes only to blocks that no other request relies on",
    "read": "a request reads the KV of its own tokens, and of no others",
    "scope": "a request hits only blocks registered under its own extra keys, salt and adapter included",
    "named": "at a step's end, a block known by a key holds all the KV that the key stands for; a key has one content",
    "registered": "a full block of computed tokens that a hit could use is registered before it is freed",
    "tier": "requests rely on the external tier only for content that it has, according to its events",
    "said": "the core holds what the events say it holds",
    "longest": "a look-up finds no fewer tokens than the production method in the same state",
    "progress": "a step computes at least one token of each scheduled request, and counts its tokens as computed",
    "sampled": "a request gets the tokens that the model sampled for it, in order",
    "idle": "a running request gets a token while the step's budget lasts and the blocks of that token are free",
    "granted": "a scheduled request has the blocks of the tokens that the step computes",
    "journal": "a rollback restores the order in which requests wait and run",
    "tree": "a node of the prefix tree has a parent, and blocks of its own that continue the parent's prefix",
    "locks": "a node has as many locks as open requests lock it or a node below it, and is not evicted before",
    "watch": "the check itself runs",
}
"""Rules that must hold, by name."""

LOST_WORK = frozenset({"duplicate", "longest", "idle", "registered"})
"""Rules whose violation costs work, memory or time, but corrupts nothing."""

Subject = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of RULES that does not hold, with the requests and blocks that show it.

    step: the step in which it was detected. first_event: number of the event that broke the rule; the timeline's state
    at that moment is the one right before it. Both are None only before the watch has reported the violation.
    """

    rule: str
    message: str
    request_ids: tuple[int, ...] = ()
    block_ids: tuple[int, ...] = ()
    step: int | None = None
    first_event: int | None = None
    misnamed: tuple[tuple[int, int, bytes, bytes], ...] = field(default=(), repr=False)
    fact: tuple[str, ...] = field(default=(), repr=False)
    """misnamed and fact: as in ViolationFound, for the browser; left out of the repr."""

    @property
    def subjects(self) -> frozenset[Subject]:
        """(rule, request, block), each combination: a violation is reported once per subject."""
        requests, blocks = self.request_ids or (None,), self.block_ids or (None,)
        return frozenset((self.rule, request_id, block_id) for request_id in requests for block_id in blocks)


def gravest_first(violations: Iterable[Violation]) -> list[Violation]:
    """Return the violations in order, those of LOST_WORK last."""
    return sorted(violations, key=lambda one: one.rule in LOST_WORK)
