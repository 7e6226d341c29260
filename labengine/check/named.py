"""The rule `named`: at a step's end, a block known by a key holds the one content that the key stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from labengine import events as ev
from labengine.check.blame import NumberedEvent
from labengine.check.contents import Claim, NamedContents, holds
from labengine.check.oracle import Oracle
from labengine.check.registrations import Registrations
from labengine.check.stream import Stream
from labengine.core.block import Block, Key
from labengine.core.seams import deciding_methods
from labengine.record.snapshot import map_key
from labengine.record.violation import Violation

REGISTERS = ("KVCacheManager.num_registrable_tokens", "KVCacheManager.register", "KVCacheGroup.register")
"""Methods that decide which blocks count as full."""

HASHES = (
    "HashChain.root",
    "HashChain.keyed",
    "HashChain.link",
    "KVCacheManager.extend_hashes",
    "KVCacheGroup.block_hash",
)
"""Methods that decide what a key covers."""


class Broken(NamedTuple):
    """A violation, the number of the event that broke the rule, and the methods that may have decided it."""

    violation: Violation
    number: int
    methods: tuple[str, ...]


class _SecondContent(NamedTuple):
    """A BlockCached under a key that stands for another content already."""

    key: Key
    first: Claim
    second: Claim
    block_id: int
    number: int


class Names:
    """Judges the keys of those blocks of one engine that a step has registered, written or loaded.

    A tail of a prompt (BlockCached.is_full) is not judged: its event does not say how many tokens its key stands for.
    trusts_hashes: False if look-ups compare complete prefixes. Two contents of one key then do no harm.
    """

    def __init__(
        self, oracle: Oracle, blocks: Sequence[Block], registrations: Registrations, *, trusts_hashes: bool
    ) -> None:
        self.contents = NamedContents()
        self._oracle = oracle
        self._blocks = blocks
        self._registrations = registrations
        self._trusts_hashes = trusts_hashes
        self._touched: set[int] = set()
        self._seconds: list[_SecondContent] = []

    def claim_of(self, event: ev.BlockCached, number: int) -> Claim | None:
        """Learn and return what the hash of a full block stands for: the tokens of the request that registers it."""
        if not event.is_full:
            return None
        key = event.group, event.block_hash
        claim = Claim(hash(tuple(self._oracle.claimed(event))), event.request_id, event.index)
        first = self.contents.learn(key, claim)
        if first is not None and self._trusts_hashes:
            self._seconds.append(_SecondContent(key, first, claim, event.block_id, number))
        self._touched.add(event.block_id)
        return claim

    def note_written(self, block_ids: Iterable[int]) -> None:
        """Note blocks whose content changes."""
        ids, blocks = range(len(self._blocks)), self._blocks
        self._touched.update([i for i in block_ids if i in ids and blocks[i].keys])

    def take_back(self) -> None:
        """Forget second contents of a step that was rolled back. Its blocks are still to be judged."""
        for second in self._seconds:
            self.contents.unlearn_second(second.key)
        self._seconds.clear()

    def misnamed(self, violation: Violation) -> tuple[tuple[int, int, bytes, bytes], ...]:
        """Return the blocks of a violation whose KV is not what their hash stands for; see ViolationFound.misnamed."""
        if violation.rule not in ("read", "named"):
            return ()
        found = []
        for block_id in violation.block_ids:
            page = self._oracle.memory.page(block_id)
            for key in self._blocks[block_id].keys:
                held = self.contents.other_than(key, page)
                if held is not None:
                    found.append((block_id, *key, held))
        return tuple(found)

    def judge(self, stream: Stream) -> Iterator[Broken]:
        """Yield the violations of a step that has ended. stream: its events."""
        seconds, self._seconds = self._seconds, []
        touched, self._touched = self._touched, set()
        yield from map(self._two_contents, seconds)
        for block_id in sorted(touched):
            for key in self._blocks[block_id].keys:
                registration = self._registrations.under(block_id, key)
                claim = self.contents.claim(key) if registration is None else registration.claim
                page = self._oracle.memory.page(block_id)
                if claim is not None and not holds(page, key[0], claim):
                    yield self._other_content(block_id, key, claim, stream)

    def _two_contents(self, second: _SecondContent) -> Broken:
        one, other = second.first, second.second
        text = (
            f"{map_key(*second.key)[:12]} names two contents: {self._tokens(second.key, one)}, and "
            f"{self._tokens(second.key, other)}, for which block {second.block_id} was registered"
        )
        text += self._oracle.claims_unlike(second.key[0], (one.request_id, one.entry), (other.request_id, other.entry))
        request_ids = tuple(dict.fromkeys((one.request_id, other.request_id)))
        return Broken(Violation("named", text, request_ids, (second.block_id,)), second.number, HASHES)

    def _other_content(self, block_id: int, key: Key, claim: Claim, stream: Stream) -> Broken:
        text = (
            f"block {block_id} is known by {map_key(*key)[:12]}, which stands for {self._tokens(key, claim)}, but "
            f"{self._oracle.content_unlike_claim(block_id, key[0], claim.request_id, claim.entry)}"
        )
        violation = Violation("named", text, (claim.request_id,), (block_id,))
        return Broken(violation, *self._since(block_id, key, claim, stream.newest_events()))

    def _since(
        self, block_id: int, key: Key, claim: Claim, recent: Sequence[NumberedEvent]
    ) -> tuple[int, tuple[str, ...]]:
        """Return the number of the event that broke the rule, and the methods that may have decided it.

        That is the allocation that left the block its key; else the write or load of other content; else the
        registration. A block that was right in the step before was overwritten between the steps, by a load that no
        event reports.
        """
        registration = self._registrations.under(block_id, key)
        if registration is not None and registration.given_away is not None:
            return registration.given_away, deciding_methods("BlockAllocated")
        if registration is None:  # no event gave it this key: see the rule `said`
            named = [one for one in reversed(recent) if block_id in ev.blocks_of(one.event)]
            evicted = [one for one in named if isinstance(one.event, ev.BlockEvicted)]
            return _numbered([*evicted, *named, recent[-1]][0])
        writes = (one for one in reversed(recent) if self._has_filled(one.event, block_id, key[0], claim))
        write = next(writes, None)
        if write is not None:
            return _numbered(write)
        if registration.number < recent[0].number:
            return recent[0].number - 1, deciding_methods("BlocksLoaded")
        return registration.number, REGISTERS

    def _has_filled(self, event: ev.Event, block_id: int, group: int, claim: Claim) -> bool:
        """Return whether an event put other content into a block, or the claimed content into another one."""
        if isinstance(event, ev.BlocksLoaded | ev.RequestReceived):
            return block_id in ev.blocks_of(event)
        if isinstance(event, ev.SlotsWritten):
            end = event.start + sum(length for _, _, length in event.runs)
        elif isinstance(event, ev.StateAdvanced):
            end = event.end
        else:
            return False
        if event.request_id == claim.request_id and event.group == group:
            return event.start < self._oracle.span(group, claim.entry)[1] <= end
        return block_id in ev.blocks_of(event)

    def _tokens(self, key: Key, claim: Claim) -> str:
        return f"{self._oracle.held_by(key[0], claim.entry)} of request {claim.request_id}"


def _numbered(one: NumberedEvent) -> tuple[int, tuple[str, ...]]:
    return one.number, deciding_methods(one.event)
