"""The rule `registered`: a full block that a hit could use is registered before it is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from labengine.check.oracle import Oracle
from labengine.core.block import Block
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.part_methods import definers, is_custom
from labengine.core.request import Request
from labengine.core.scheduler import Scheduler
from labengine.core.seams import deciding_methods
from labengine.events import ENTRY_REPLACED, BlockEvicted, BlockFreed, PrefixHit, RequestForked
from labengine.record.violation import Violation

REGISTERING = ("Drafts.book_accepted", "Scheduler.book_computed", *deciding_methods("BlockCached"))
"""Methods that take part in registering what a step has computed."""


class Omissions:
    """Judges the blocks that the requests of one engine drop.

    Five omissions are intended. `is_worth_caching` leaves out what no hit can use, and `num_cacheable_tokens` what lies
    after the last end of a hit. A block that a failed step may have overwritten loses its key. An edition that
    registers blocks at allocation never registers those that accepted drafts fill in a request's last step, as vLLM
    0.32's synchronous scheduler does (vLLM pull request 54979). And a preempted request leaves in a prefix tree only
    what it has inserted, as in SGLang (`drops_unregistered`).
    """

    def __init__(self, scheduler: Scheduler, requests: Mapping[int, Request], oracle: Oracle) -> None:
        self._manager = manager = scheduler.manager
        self._requests, self._oracle, self._has_drafts = requests, oracle, scheduler.config.num_drafts > 0
        self._blocks: Sequence[Block] = manager.pool.blocks
        classes = definers(type(manager), "num_cacheable_tokens")
        self._num_cacheable = next(vars(cls)["num_cacheable_tokens"] for cls in classes if not is_custom(cls))
        self._most_shared = 2 * scheduler.config.max_num_seqs
        self._distrusted: set[int] = set()
        self._allocated: set[int] = set()
        self._written: set[int] = set()
        """Blocks that the open step allocates, and those that it writes to."""
        self._num_shared: dict[int, int] = {}
        """Per request: tokens of a hit, or shared with a fork's parent; another request registers their blocks."""

    def note_shared(self, event: PrefixHit | RequestForked) -> None:
        """Note the tokens of the blocks that a request begins with."""
        self._num_shared[event.request_id] = event.num_tokens

    def note_evicted(self, event: BlockEvicted) -> None:
        """Note a block that a failed step may have overwritten: its request may get it back without its key."""
        if event.reason == "distrusted":
            self._distrusted.add(event.block_id)

    def note_allocated(self, block_id: int) -> None:
        """Note a block that the open step allocates for new content."""
        self._allocated.add(block_id)

    def note_written(self, block_ids: Iterable[int]) -> None:
        """Note blocks that the open step is about to write to."""
        self._written.update(block_ids)

    def open_step(self) -> None:
        """Begin a step: earlier allocations can no longer be undone."""
        self._distrusted -= self._allocated
        self._allocated.clear()
        self._written.clear()
        if len(self._num_shared) > self._most_shared:
            self._num_shared = {i: n for i, n in self._num_shared.items() if self._holds_blocks(i)}

    def take_back(self) -> None:
        """Undo the open step's allocations. Who had the blocks before gets them back, perhaps overwritten."""
        self._distrusted |= self._allocated & self._written
        self._allocated.clear()
        self._written.clear()

    def judge(self, event: BlockFreed, request: Request) -> Violation | None:
        """Return the violation of a full block with computed tokens to which no key leads."""
        if self._blocks[event.block_id].token_ids or event.block_id in self._distrusted:
            return None
        if event.reason in ENTRY_REPLACED or event.reason in self._manager.drops_unregistered:
            return None
        group = self._manager.groups[event.group]
        start, end = event.index * group.block_size, (event.index + 1) * group.block_size
        if not self._num_shared.get(event.request_id, 0) < end <= self._num_registrable(request, group):
            return None
        if not (group.caches_every_block or group.is_worth_caching(request, event.index)):
            return None
        if not self._oracle.holds_own(event.request_id, event.group, event.block_id, event.index):
            return None
        what = f"the state after {end} tokens" if group.keeps_states else f"the KV of tokens {start} to {end - 1}"
        text = (
            f"request {event.request_id} drops block {event.block_id}, which holds {what} and was never registered, so "
            "no look-up will find it"
        )
        return Violation("registered", text, (event.request_id,), (event.block_id,))

    def _num_registrable(self, request: Request, group: KVCacheGroup) -> int:
        """Return how many of a request's computed tokens the edition registers."""
        num_tokens = request.num_computed_tokens
        if self._has_drafts and self._manager.num_registrable_tokens(request, 1, "allocated"):
            num_tokens = min(num_tokens, request.num_registered_blocks[group.index] * group.block_size)
        num_cacheable: int = self._num_cacheable(self._manager, group, num_tokens)
        return num_cacheable

    def _holds_blocks(self, request_id: int) -> bool:
        request = self._requests.get(request_id)
        return request is not None and request.has_blocks
