"""A KV-cache manager on the bench: requests by hand, no scheduler, everything within reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driving import as_parts, num_null_blocks
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import ExtraKeys, Request
from labengine.record.hooks import Hooks


def full(block_size: int) -> GroupSpec:
    """A group of full attention."""
    return GroupSpec(block_size)


def window(block_size: int, window: int) -> GroupSpec:
    """A group whose tokens attend to the last `window` tokens, themselves included."""
    return GroupSpec(block_size, "sliding_window", window)


class Workbench:
    """num_blocks are those that requests can hold, as in Workload."""

    def __init__(
        self,
        groups: Sequence[GroupSpec],
        num_blocks: int = 32,
        edition: str | Parts = "labengine",
        *,
        budget: int = 1000,
        hash_block_size: int = 0,
        retention_interval: int | None = None,
    ) -> None:
        parts = as_parts(edition)
        self.config = EngineConfig(
            num_blocks + num_null_blocks(parts),
            tuple(groups),
            max_num_batched_tokens=budget,
            hash_block_size=hash_block_size,
            retention_interval=retention_interval,
        )
        self.hooks = Hooks(strict=True)
        self.manager = parts.assemble(self.config, self.hooks, Journal()).manager
        self.pool = self.manager.pool
        self._num_requests = 0

    @property
    def queue(self) -> list[int]:
        """The free queue, the next victim first."""
        return list(self.pool.free_queue)

    def request(self, token_ids: Iterable[int], extra_keys: ExtraKeys = ()) -> Request:
        """One that holds nothing yet."""
        self._num_requests += 1
        sampling = SamplingParams(max_tokens=1000)
        return Request(self._num_requests - 1, list(token_ids), sampling, 0, len(self.config.groups), extra_keys)

    def admit(self, request: Request, num_external: int = 0, num_tokens: int | None = None) -> Hit:
        """Its hit, external tokens behind it, and blocks for all its tokens (or the first num_tokens)."""
        hit = self.manager.find_prefix(request)
        self.manager.note_shared_prefix(request, hit)
        end = request.num_tokens if num_tokens is None else num_tokens
        assert self.manager.admit(request, hit, end, num_external), "the pool is too small for this case"
        return hit

    def compute(self, request: Request, num_tokens: int | None = None) -> None:
        """As if a step had computed its first num_tokens tokens (all, by default)."""
        end = request.num_tokens if num_tokens is None else num_tokens
        self.manager.register(request, end, "computed")
        request.num_computed_tokens = end

    def run(self, token_ids: Iterable[int], extra_keys: ExtraKeys = ()) -> Request:
        """A request admitted and computed in one step."""
        request = self.request(token_ids, extra_keys)
        self.admit(request)
        self.compute(request)
        return request

    def decode(self, request: Request, token_id: int = 0) -> bool:
        """One sampled token, and the step that computes it; False when there is no block for it."""
        request.token_ids.append(token_id)
        if not self.manager.allocate(request, request.num_tokens):
            request.token_ids.pop()
            return False
        self.compute(request)
        return True

    def free(self, *requests: Request) -> None:
        """The requests are finished."""
        for request in requests:
            self.manager.free(request, "finished")
            request.num_computed_tokens = 0

    def cache(self, token_ids: Iterable[int], extra_keys: ExtraKeys = ()) -> Request:
        """A request that ran and went: what it computed is cached. Its tables, as they were, are in `held`."""
        request = self.run(token_ids, extra_keys)
        held = [list(table) for table in request.block_tables]
        self.free(request)
        request.block_tables = held
        return request

    def hit(self, token_ids: Iterable[int], extra_keys: ExtraKeys = ()) -> Hit:
        """What a new request of these tokens would find."""
        return self.manager.find_prefix(self.request(token_ids, extra_keys))

    def forget(self, *block_ids: int) -> None:
        """Drop the cached content of blocks."""
        self.pool.evict_cached(block_ids, "reset")

    def cached(self, group: int) -> list[int]:
        """Return the number of tokens of each key of a group in the prefix map, ascending."""
        size = self.config.hash_block_size
        prefixes = [b.prefix for b in self.pool.blocks if any(key[0] == group for key in b.keys)]
        return sorted(prefix.num_links * size for prefix in prefixes if prefix is not None)
