"""The external tier's contract: KV kept outside the pool, by content, and loaded instead of being recomputed.

Names follow vLLM's KVConnectorBase_V1. One object has two halves: the scheduler asks the first which content is there,
without tensors and without waiting; the engine lets the second move blocks before and after the forward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from labengine.core.block import Key
from labengine.events import Transfer

if TYPE_CHECKING:
    from labengine.core.kv_cache_group import KVCacheGroup
    from labengine.core.request import Request

BlockKV = Mapping[str, Any]
"""One block's KV: tensors by name. The runner defines names and shapes. Any, because the core does not import torch."""

MAX_FAILURES = 100


@dataclass(frozen=True, slots=True)
class BlockTransfer:
    """One block's KV on its way between the pool and the external tier."""

    request_id: int
    group: int
    index: int
    """The entry of the request's block table."""
    block_id: int
    block_hash: bytes
    """Hash of the content: the block's tokens, all before them, and the salt."""

    @property
    def key(self) -> Key:
        """(group, hash): the tier's key of the content."""
        return self.group, self.block_hash

    @property
    def ids(self) -> Transfer:
        """The transfer in the form that events carry."""
        return self.group, self.index, self.block_id, self.block_hash


@dataclass(frozen=True, slots=True)
class LocalHit:
    """A table entry that came from a prefix-cache hit."""

    transfer: BlockTransfer
    """The entry, its block, and the hash under which it was found."""
    is_intact: bool
    """True while the block is still registered under that hash."""


class LoadError(Exception):
    """Blocks could not be loaded. The engine rolls the step back, forgets their keys and schedules again."""

    def __init__(self, failed: Sequence[BlockTransfer], reason: str) -> None:
        """failed: the transfers without available content, at least one. reason: one readable line."""
        if not failed:
            raise ValueError("a LoadError needs at least one failed transfer")
        super().__init__(reason)
        self.failed = tuple(failed)


class KVAccess(Protocol):
    """Access of a connector to the pool; the runner implements it."""

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Return copies of a block's KV on the CPU, detached from the pool; None on a simulated model."""
        ...

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Overwrite a block with a result of `read_block`, which is neither kept nor modified."""
        ...


class TierChanges(NamedTuple):
    """A tier's changes since it was last asked."""

    dropped: tuple[Key, ...]
    pinned: tuple[tuple[int, bytes, int], ...]
    """(group, block hash, number of pins)."""


class TierLog:
    """Changes of a tier since they were last taken. A tier's threads may write to the log while the engine reads."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Key, int | None]] = deque()
        """(key, number of its pins), or (key, None) for a dropped key; oldest first."""

    def note_dropped(self, key: Key) -> None:
        """Note content that has left the tier."""
        self._noted.append((key, None))

    def note_pins(self, key: Key, count: int) -> None:
        """Note how many transfers now protect content from eviction; 0 for none."""
        self._noted.append((key, count))

    def take(self) -> TierChanges:
        """Return the changes since the last call."""
        dropped: dict[Key, None] = {}
        pins: dict[Key, int] = {}
        while self._noted:
            key, count = self._noted.popleft()
            if count is None:
                dropped[key] = None
            else:
                pins[key] = count
        return TierChanges(tuple(dropped), tuple((*key, count) for key, count in pins.items()))


class Connector(ABC):
    """An external tier. A store keeps blocks by (group, block hash); each is loaded and saved separately."""

    loads_are_async: bool = False
    """True if a load starts in one step and arrives in a later one; until then the request waits with its blocks."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """Readable lines about failures that were not raised, newest last; the last MAX_FAILURES are kept."""
        self.log = TierLog()
        """The tier's evictions and pins, for the events."""
        self._loading: dict[int, BlockTransfer] = {}

    def bind(self, fingerprint: str) -> None:  # noqa: B027 - a tier that serves one model needs no name for it
        """Identify everything besides tokens that the KV depends on: model, dtype, groups. Called before any other use.

        Raises ConfigError when the tier already serves another fingerprint.
        """

    # The scheduler's half: no tensors, no waiting.

    @abstractmethod
    def has(self, group: int, block_hash: bytes) -> bool:
        """Return whether a load of this content would probably succeed.

        Cheap; does not change the order of eviction.
        """

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Return how many tokens after the first num_computed_tokens the tier can supply to every group.

        Always a multiple of `alignment`, at which all groups have complete blocks, and never the request's last token.
        A window group needs only the tokens that the token after the end attends to.
        """
        end = (request.num_tokens - 1) // alignment * alignment
        for group in groups:
            if group.has_every_shorter_hit:
                end = self._run_end(request, group, num_computed_tokens, end)
        end -= end % alignment
        windows = [group for group in groups if not group.has_every_shorter_hit]
        while end > num_computed_tokens and not all(
            self._run_end(request, group, self._first_needed(group, num_computed_tokens, end), end) == end
            for group in windows
        ):
            end -= alignment
        has_to_load = any(self._first_needed(group, num_computed_tokens, end) < end for group in groups)
        return end - num_computed_tokens if has_to_load else 0

    def _first_needed(self, group: KVCacheGroup, num_computed_tokens: int, end: int) -> int:
        skipped = group.num_skipped_tokens(end) // group.block_size * group.block_size
        return min(end, max(num_computed_tokens, skipped))

    def _run_end(self, request: Request, group: KVCacheGroup, start: int, end: int) -> int:
        """Return where the tier's unbroken run of full blocks from `start` ends, at `end` at the latest."""
        size = group.block_size
        first = start // size
        for index, block_hash in enumerate(group.tier_hashes(request, first, end // size), first):
            if not self.has(group.index, block_hash):
                return index * size
        return end

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """Note that blocks were allocated after a local hit. Returns the loads to be done, in the given order.

        Raises AssertionError if a hit block has lost its content since the look-up, or two loads go into one block.
        Source: the assert of vLLM issue 43884, the symptom of 44409. It asks whether a hit block has any hash at all,
        and runs while the fresh blocks have none; here the hash must be the one that was looked up.
        """
        lost = next((hit.transfer for hit in hits if not hit.is_intact), None)
        if lost is not None:
            raise AssertionError(
                f"{_entry_name(lost)} needs block {lost.block_id} as a cache hit, but the block was reallocated "
                "before it was touched"
            )
        loading = dict(self._loading)
        for transfer in transfers:
            other = loading.setdefault(transfer.block_id, transfer)
            if other is not transfer:
                raise AssertionError(
                    f"two loads write to block {transfer.block_id}: {_entry_name(other)}, {_entry_name(transfer)}"
                )
        self._loading = loading
        return transfers

    # The engine's half.

    def take_changes(self) -> TierChanges:
        """Return what the tier has evicted and pinned since the last call."""
        return self.log.take()

    @abstractmethod
    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Bring the blocks' content into the pool.

        Sync: on return everything is loaded; if LoadError is raised, no block was written.
        Async: returns at once, with nothing written yet; `get_finished` reports the outcome.
        """

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """Async: return the requests whose KV has arrived and is written, and those whose load failed, each only once.

        Keys that could not be loaded are already forgotten, and `failures` gives the reason.
        """
        return set(), set()

    def wait(self, timeout_s: float) -> None:  # noqa: B027 - most tiers have nothing to wait for
        """Async: return when `get_finished` has something to report, or after timeout_s seconds."""

    def cancel(self, request_id: int) -> None:
        """End the loads of a request that has given up its blocks: nothing more is written to them.

        Also called to undo an allocation.
        """
        self._settle({request_id})

    @abstractmethod
    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep these blocks' content. Returns the transfers newly written, and held on return, in the given order.

        An existing entry is not written again. Never raises for I/O: a transfer that could not be stored is left out
        of the result and noted in `failures`.
        """

    @abstractmethod
    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Drop the keys of transfers that could not be loaded. Unknown ones are ignored."""

    def num_kept(self) -> int | None:
        """Return the number of blocks that save_kv has kept since the tier was empty.

        None if others may change the tier's content: the checks then do not know what it has.
        """
        return None

    @abstractmethod
    def describe(self) -> str:
        """Return one readable line: kind, entries, bytes, limit."""

    def close(self) -> None:  # noqa: B027 - most tiers hold nothing open
        """Release memory and files; content on disk stays. A second call is harmless."""

    def note(self, failure: str) -> None:
        """Add a line to `failures`; drop the oldest beyond MAX_FAILURES."""
        self.failures.append(failure)
        del self.failures[:-MAX_FAILURES]

    def _settle(self, request_ids: set[int]) -> None:
        """Forget the loads of these requests, successful or not: their blocks may be loaded into again."""
        self._loading = {
            block_id: transfer for block_id, transfer in self._loading.items() if transfer.request_id not in request_ids
        }


def _entry_name(transfer: BlockTransfer) -> str:
    return f"request {transfer.request_id} (group {transfer.group}, entry {transfer.index})"
