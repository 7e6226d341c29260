"""The blocks that one look-up did not find, and why each was not in the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from labengine.prefix_doctor.look_ups.admitted import Shared
from labengine.prefix_doctor.look_ups.content import CachedContent
from labengine.prefix_doctor.look_ups.look_up import Cause, MissedTokens
from labengine.prefix_doctor.look_ups.own_hashes import RequestFacts
from labengine.prefix_doctor.look_ups.prefix_tree import Sequences
from labengine.record.fold_state import Key
from labengine.record.snapshot import GroupState

_FIRST_TO_LAST: tuple[Cause, ...] = (
    "new",
    "other_salt",
    "unknown",
    "not_registered_yet",
    "never_registered",
    "reset",
    "evicted",
)
"""The causes that represent several missing blocks: had only the others stayed, the look-up would still have missed."""


@dataclass
class Known:
    """The known state at a moment of the recording.

    is_late: True if the time before the recording is unknown. facts: of all requests. holders: requests that hold
    blocks. admitted_before: requests admitted before the recording began.
    """

    is_late: bool
    facts: RequestFacts
    sequences: Sequences
    content: CachedContent
    holders: set[int] = field(default_factory=set)
    admitted_before: set[int] = field(default_factory=set)
    untold: set[Key] = field(default_factory=set)
    """Keys that were cached before the recording began, and whose content no request in it tells."""

    @property
    def misses_earlier(self) -> bool:
        """True while a miss may be due to content from before the recording: evicted, or cached but not told.

        Once the pool has turned over and all such content is gone, it no longer explains any miss.
        """
        if not self.is_late or not self.content.has_turned_over:
            return self.is_late
        while self.untold and not self.content.is_cached(next(iter(self.untold))):
            self.untold.pop()
        return bool(self.untold)

    @property
    def groups(self) -> tuple[GroupState, ...]:
        """The KV-cache groups."""
        return self.facts.groups

    def will_register(self, request_id: int, group: int, end: int) -> bool:
        """Return True if a request that holds a block registers it later, or may do so after the recording."""
        if request_id not in self.holders:
            return False
        is_registered = self.facts.registered.get((request_id, group, end), -1) >= self.content.num_events
        return is_registered or self.facts.unfinished.get(request_id, end) < end


class Missing:
    """The blocks missing from the cache at a request's look-up. shared: its longest common prefix with others."""

    def __init__(self, request_id: int, shared: Shared, known: Known) -> None:
        self._request_id, self._shared, self._known = request_id, shared, known
        self._worst: dict[int, MissedTokens] = {}
        """Per group of full attention, the miss that represents all blocks up to `_seen`."""
        self._seen: dict[int, int] = defaultdict(int)

    def before(self, start: int, end: int) -> MissedTokens:
        """Return the reason that no hit ends at `end`, as the cause of the tokens from start on."""
        found = list[MissedTokens]()
        for number, group in enumerate(self._known.groups):
            of_kind = {"sliding_window": self._of_window, "state": self._of_state}.get(group.kind, self._of_run)
            found += of_kind(number, group, end)
        if not found:
            return MissedTokens("passed_over", start, end)
        return replace(min(found, key=_rank), start=start, end=end)

    def _of_window(self, number: int, group: GroupState, end: int) -> Iterator[MissedTokens]:
        """Yield the missing blocks among those (at least one) that the first token after `end` reads."""
        assert group.window is not None
        num_blocks, last = max(1, -(-(group.window - 1) // group.block_size)), end // group.block_size
        for index in range(max(0, last - num_blocks), last):
            if miss := self._of_block(number, (index + 1) * group.block_size):
                yield miss

    def _of_state(self, number: int, group: GroupState, end: int) -> Iterator[MissedTokens]:
        """Yield the miss of the state after `end` tokens, the only one that a hit needs."""
        if miss := self._of_block(number, end):
            yield miss

    def _of_run(self, number: int, group: GroupState, end: int) -> Iterator[MissedTokens]:
        """Yield the miss that represents all missing blocks from the start, all of which full attention needs."""
        for block_end in range(self._seen[number] + group.block_size, end + 1, group.block_size):
            miss, worst = self._of_block(number, block_end), self._worst.get(number)
            if miss and (worst is None or _rank(miss) < _rank(worst)):
                self._worst[number] = miss
            self._seen[number] = block_end
        if worst := self._worst.get(number):
            yield worst

    def _of_block(self, group: int, end: int) -> MissedTokens | None:
        """Return the reason that a block is not cached; None if it is."""
        known, shared = self._known, self._shared
        block_hash = known.sequences.hash_of(self._request_id, group, end)
        if block_hash is not None:
            if known.content.is_cached((group, block_hash)):
                return None
            if loss := known.content.losses.get((group, block_hash)):
                cause: Cause = "reset" if loss.reason in ("reset", "distrusted") else "evicted"
                return MissedTokens(cause, 0, end, loss.request_id, group, loss)
        if end <= shared.num_tokens:
            return self._never_cached(group, end)
        if end <= shared.num_other_salt:
            return MissedTokens("other_salt", 0, end, shared.other_salt_id, group)
        return MissedTokens("unknown" if known.misses_earlier else "new", 0, end, shared.request_id, group)

    def _never_cached(self, group: int, end: int) -> MissedTokens:
        """Return the reason that a block which a request has filled, or will fill, was never in the cache."""
        known = self._known
        node = known.sequences.node_at(self._request_id, end)
        requests = [] if node is None else node.requests[::-1]
        for other in requests:
            if known.will_register(other, group, end):
                return MissedTokens("not_registered_yet", 0, end, other, group)
        earlier = known.admitted_before if known.misses_earlier else ()
        if not requests or any(other in earlier for other in requests):
            return MissedTokens("unknown", 0, end, None, group)
        return MissedTokens("never_registered", 0, end, requests[0], group)


def _rank(miss: MissedTokens) -> int:
    return _FIRST_TO_LAST.index(miss.cause)
