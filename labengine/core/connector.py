"""The external tier's contract: KV that lives outside the pool, by content, and comes back instead of being recomputed.

Names are those of the field (vLLM's KVConnectorBase_V1). One object has two halves: the scheduler asks its half what is
there, without tensors and without waiting; the engine has its other half move blocks, before and after the forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from labengine.core.block import Key
from labengine.events import Transfer

if TYPE_CHECKING:
    from labengine.core.kv_cache_group import KVCacheGroup
    from labengine.core.request import Request

BlockKV = Mapping[str, Any]
"""One block's KV: tensors by name. Which names and shapes there are is the runner's business."""

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
    """Names the content: the block's tokens and all before them (and the salt)."""

    @property
    def key(self) -> Key:
        """What the tier knows the content by."""
        return self.group, self.block_hash

    @property
    def told(self) -> Transfer:
        """As events tell it."""
        return self.group, self.index, self.block_id, self.block_hash


@dataclass(frozen=True, slots=True)
class LocalHit:
    """A table entry that the request took over from the cache."""

    transfer: BlockTransfer
    """Which entry and block, and the hash it was found under."""
    is_intact: bool
    """Whether the block is still known by that hash."""


class LoadError(Exception):
    """Blocks could not be loaded. The engine takes the step back, forgets their keys and schedules anew."""

    def __init__(self, failed: Sequence[BlockTransfer], reason: str) -> None:
        """`failed`: the transfers whose content cannot be had, at least one; `reason`: one readable line."""
        if not failed:
            raise ValueError("a LoadError names the transfers that failed, at least one")
        super().__init__(reason)
        self.failed = tuple(failed)


class KVAccess(Protocol):
    """How a connector reaches the pool; the runner implements it."""

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        """Copies of a block's KV on the CPU, detached from the pool; None on a simulated model."""
        ...

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Overwrite a block with what `read_block` once gave. Keeps no reference to it, does not modify it."""
        ...


class Connector(ABC):
    """An external tier. A store keeps blocks by (group, block hash); each is loaded and saved alone."""

    loads_are_async: bool = False
    """True: a load is started in one step and arrives in a later one; until then the request waits with its blocks."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """What went wrong and was not raised, readable, newest last; the last hundred are kept."""
        self._loading: dict[int, BlockTransfer] = {}

    def bind(self, fingerprint: str) -> None:  # noqa: B027 - a tier that serves one model needs no name for it
        """Name what the KV depends on besides tokens: the model, its dtype, the groups. Called before any other use.

        ConfigError when the tier already serves another fingerprint.
        """

    # The scheduler's half: no tensors, no waiting.

    @abstractmethod
    def has(self, group: int, block_hash: bytes) -> bool:
        """Whether a load of this content would probably succeed. Cheap; changes nothing, not even what goes next."""

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Tokens behind the first num_computed_tokens that the tier can supply to every group.

        Always a multiple of `alignment`, where all groups have whole blocks, and never the request's last token. A
        window group needs only what the token after the end will read.
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
        """Where the tier's unbroken run of whole blocks from `start` ends, at `end` at the latest."""
        size = group.block_size
        for index in range(start // size, end // size):
            if not self.has(group.index, group.block_hash(request, index)):
                return index * size
        return end

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """Blocks of the pool were allocated behind a local hit; returns the loads to be done, as they were given.

        Raises AssertionError when a hit block has lost its content since the look-up, or one is loaded into twice.
        Source: the assert of vLLM issue 43884, the symptom of 44409. It asks whether a hit block has any hash at all,
        and runs while the fresh blocks have none; here the hash must be the one that was looked up.
        """
        lost = next((hit.transfer for hit in hits if not hit.is_intact), None)
        if lost is not None:
            raise AssertionError(
                f"{_who(lost)} counts on block {lost.block_id} as a cache hit, but the block was given away before "
                "it was touched"
            )
        loading = dict(self._loading)
        for transfer in transfers:
            other = loading.setdefault(transfer.block_id, transfer)
            if other is not transfer:
                raise AssertionError(f"block {transfer.block_id} is loaded into twice: {_who(other)}, {_who(transfer)}")
        self._loading = loading
        return transfers

    # The engine's half.

    @abstractmethod
    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Bring the blocks' content into the pool.

        Sync: all is loaded on return; or LoadError, and not one block was written.
        Async: returns at once, has read nothing into the pool, and tells the outcome in `get_finished`.
        """

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """Async: the requests whose KV has arrived and is now written, and those whose load failed. Each told once.

        Keys that could not be loaded are forgotten already, and `failures` says why.
        """
        return set(), set()

    def wait(self, timeout_s: float) -> None:  # noqa: B027 - most tiers have nothing to wait for
        """Async: return when `get_finished` would tell something, at the latest after timeout_s seconds."""

    def cancel(self, request_id: int) -> None:
        """The request gave up its blocks: from now on nothing is written into them. Takes the allocation back too."""
        self._settle({request_id})

    @abstractmethod
    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Keep these blocks' content; returns those that were written now and are held on return, in the given order.

        An entry that is there already is not written again. Never raises for I/O: what could not be stored is not
        returned, and noted in `failures`.
        """

    @abstractmethod
    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Drop these keys: they could not be loaded. Unknown ones are ignored."""

    @abstractmethod
    def describe(self) -> str:
        """One readable line: kind, entries, bytes, cap."""

    def close(self) -> None:  # noqa: B027 - most tiers hold nothing open
        """Let go of memory and files. What is meant to last stays on the disk. Closing twice is harmless."""

    def note(self, failure: str) -> None:
        """Add a line to `failures`, and drop the oldest ones."""
        self.failures.append(failure)
        del self.failures[:-MAX_FAILURES]

    def _settle(self, request_ids: set[int]) -> None:
        """These requests' loads are over, well or badly: their blocks may be loaded into again."""
        self._loading = {
            block_id: transfer for block_id, transfer in self._loading.items() if transfer.request_id not in request_ids
        }


def _who(transfer: BlockTransfer) -> str:
    return f"request {transfer.request_id} (group {transfer.group}, entry {transfer.index})"
