"""Scheduling on a prefix tree: a step is prefill or decode, and takes its blocks once its requests are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.part_methods import class_name, is_own
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.step_plan import StepPlan
from labengine.core.waiting_queue import WaitingQueue
from labengine.record.wording import counted


def refuse_finer_links(config: EngineConfig) -> None:
    """Raise ConfigError unless there is a single KV-cache group, with hash_block_size as its block size."""
    if len(config.groups) > 1 or config.hash_block_size != config.groups[0].block_size:
        raise ConfigError("a prefix tree has a single KV-cache group, so hash_block_size must be its block size")


class RadixScheduler(PrefillFirstScheduler):
    """Chooses the prompts of a step first, locking their hits, and then takes blocks for all of them.

    So no prompt's blocks evict the hit of one behind it.
    """

    manager: RadixKVCacheManager

    reserves_whole_prompts = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if not is_own(self.waiting.add_request, WaitingQueue.add_request):
            raise ConfigError(
                "this edition serves requests in order of arrival, so its waiting queue must not override add_request: "
                f"omit {class_name(type(self.waiting))}, or use edition 'labengine' or 'vllm', which support priorities"
            )

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError also for a hash chain that is finer than the blocks: nodes consist of whole blocks."""
        super().refuse_what_it_lacks(config, connector)
        refuse_finer_links(config)

    def _schedule_prefill(self) -> StepPlan | None:
        chosen = self._choose_prompts()
        self.make_room_for(chosen)
        for request, num_tokens in chosen:
            self._allocate(request, request.num_computed_tokens + num_tokens)
        return StepPlan(tuple([self._prefill(*one) for one in chosen])) if chosen else None

    def make_room_for(self, chosen: Sequence[tuple[Request, int]]) -> None:
        """Evict before the chosen prompts get their blocks; here nothing, as taking blocks evicts what is missing."""

    def _choose_prompts(self) -> list[tuple[Request, int]]:
        raise NotImplementedError

    def _schedule_decode(self) -> StepPlan:
        for request in self.running:
            self._allocate(request, request.num_tokens)
        return StepPlan(tuple([self.plan(request, 1, RequestStatus.RUNNING) for request in self.running]))

    def _allocate(self, request: Request, num_tokens: int) -> None:
        """Extend a request's table. Raises NotGrantedError if too few blocks can be taken."""
        if not self.manager.allocate(request, num_tokens):
            num_free = self.manager.pool.num_free
            raise NotGrantedError(
                request.request_id,
                f"request {request.request_id} needs blocks for {counted(num_tokens, 'token')}, but only {num_free} "
                "can be taken: not enough were reserved when it was admitted",
            )

    def book_computed(self, request: Request, num_tokens: int) -> None:
        """Count the tokens as computed. Their blocks are cached after the token is sampled: the request may end."""
        self.count_computed(request, num_tokens)

    def _take_token(self, request: Request, token_id: int) -> FinishReason | None:
        reason = super()._take_token(request, token_id)
        if reason is None:
            self.manager.register(request, request.num_computed_tokens, "computed")
        return reason

    # -- counting ------------------------------------------------------------------------------------------------------

    def num_to_compute(self, request: Request) -> int:
        """Return how many known tokens of a request have no KV yet."""
        return request.num_tokens - request.num_computed_tokens

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self.group.block_size

    @property
    def group(self) -> RadixGroup:
        """The only group."""
        return self.manager.group

    @property
    def pool(self) -> RadixBlockPool:
        """The pool of the tree."""
        return cast(RadixBlockPool, self.manager.pool)
