"""What is known at a moment of a recording, and why a block was not in the cache then."""

from __future__ import annotations

from dataclasses import dataclass, field

from labengine.prefix_doctor.look_ups.admitted import Shared
from labengine.prefix_doctor.look_ups.content import CachedContent
from labengine.prefix_doctor.look_ups.look_up import Cause, MissedTokens
from labengine.prefix_doctor.look_ups.own_hashes import RequestFacts
from labengine.prefix_doctor.look_ups.prefix_tree import Sequences
from labengine.record.fold_state import Key
from labengine.record.snapshot import GroupState


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

    def cause_of(self, request_id: int, shared: Shared, group: int, end: int) -> MissedTokens | None:
        """Return the reason that a request's block is not cached; None if it is. shared: its prefix with others."""
        block_hash = self.sequences.hash_of(request_id, group, end)
        if block_hash is not None:
            if self.content.is_cached((group, block_hash)):
                return None
            if loss := self.content.losses.get((group, block_hash)):
                cause: Cause = "reset" if loss.reason in ("reset", "distrusted") else "evicted"
                return MissedTokens(cause, 0, end, loss.request_id, group, loss)
        if end <= shared.num_tokens:
            return self._never_cached(request_id, group, end)
        if end <= shared.num_other_salt:
            return MissedTokens("other_salt", 0, end, shared.other_salt_id, group)
        return MissedTokens("unknown" if self.misses_earlier else "new", 0, end, shared.request_id, group)

    def _never_cached(self, request_id: int, group: int, end: int) -> MissedTokens:
        """Return the reason that a block which a request has filled, or will fill, was never in the cache."""
        node = self.sequences.node_at(request_id, end)
        requests = [] if node is None else node.requests[::-1]
        for other in requests:
            if self.will_register(other, group, end):
                return MissedTokens("not_registered_yet", 0, end, other, group)
        earlier = self.admitted_before if self.misses_earlier else ()
        if not requests or any(other in earlier for other in requests):
            return MissedTokens("unknown", 0, end, None, group)
        return MissedTokens("never_registered", 0, end, requests[0], group)
