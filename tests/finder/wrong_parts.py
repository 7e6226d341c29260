"""Parts that go wrong, each in a different way."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from itertools import repeat
from threading import Lock
from typing import Any, ClassVar

from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import LateMerge, MergePolicy
from labengine.core.request import FinishReason, Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.isolation.limits import EndlessOperationError


class NoAliveCheck(LateMerge):
    """Merges into blocks that are free."""

    def is_alive(self, other: Block) -> bool:
        return True


class EverySecondBlock(FullAttentionGroup):
    """Registers only some of the full blocks, without a decision that says so."""

    def register_block(self, request: Request, index: int) -> None:
        if index % 2 == 0:
            super().register_block(request, index)


class RaisesOnTouch(BlockPool):
    """Raises at every hit."""

    def touch(self, block_ids: Sequence[int]) -> None:
        if block_ids:
            raise RuntimeError("touched")


class Loops(BlockPool):
    """Never returns from a hit. Only its operation's limit is short; others keep theirs, however slow the machine."""

    def touch(self, block_ids: Sequence[int]) -> None:
        if block_ids:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
        while block_ids:
            pass


class EatsMemory(BlockPool):
    """Takes more and more memory at a hit."""

    def touch(self, block_ids: Sequence[int]) -> None:
        eaten: list[bytes] = []
        while block_ids:
            eaten.append(bytes(10**7))


class NeverAdmits(TokenBudgetScheduler):
    """Admits no request while another one runs or has run."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> int | None:
        return None if self.finished else super().admit(request, limit, is_first=is_first)


class AsksForMore(KVCacheManager):
    """Refuses requests that would just fit."""

    def num_blocks_needed(self, num_tokens: int) -> int:
        return super().num_blocks_needed(num_tokens) + 1


class HidesState(BlockPool):
    """Raises at the third allocated block, which it counts outside of the journal."""

    num_taken = 0

    def take(self, num_blocks: int) -> list[int]:
        self.num_taken = self.num_taken + num_blocks
        if self.num_taken > 4:
            raise RuntimeError("too many")
        return super().take(num_blocks)


class NeverShares(MergePolicy):
    """Finds no equal blocks: correct, but slow."""

    def is_equal(self, other: Block, request: Request, link: int) -> bool:
        return False


class LoopsInC(BlockPool):
    """Never returns from a hit, nor to Python code."""

    def touch(self, block_ids: Sequence[int]) -> None:
        if block_ids:
            assert "a" in repeat("b")


class Waits(BlockPool):
    """Waits at a hit for a lock that is never released."""

    def touch(self, block_ids: Sequence[int]) -> None:
        lock = Lock()
        for _ in block_ids:
            lock.acquire()
            lock.acquire()


class Dies(BlockPool):
    """Ends its process at a hit."""

    def touch(self, block_ids: Sequence[int]) -> None:
        if block_ids:
            os._exit(7)


class Exits(BlockPool):
    """Raises SystemExit at a hit."""

    def touch(self, block_ids: Sequence[int]) -> None:
        if block_ids:
            raise SystemExit(0)


class Hoards(BlockPool):
    """Keeps memory whenever blocks are taken, across engines, so that no single workload fills it."""

    kept: ClassVar[list[bytes]] = []

    def take(self, num_blocks: int) -> list[int]:
        self.kept.append(bytes(4_000_000))
        return super().take(num_blocks)


class TiresOut(BlockPool):
    """Takes too long at a process's later hits, so that no single workload does."""

    num_hits: ClassVar[int] = 0

    def touch(self, block_ids: Sequence[int]) -> None:
        TiresOut.num_hits += bool(block_ids)
        if self.num_hits > 20:
            raise EndlessOperationError("it had not returned in time")
        super().touch(block_ids)


class ForgetsToken(TokenBudgetScheduler):
    """Does not journal a sampled token."""

    def append_token(self, request: Request, token_id: int) -> None:
        super().append_token(request, token_id)
        self._journal.remove((list.pop, request.token_ids))


class KeepsTokens(TokenBudgetScheduler):
    """Keeps each request's sampled tokens in a separate table, which no rollback undoes."""

    def append_token(self, request: Request, token_id: int) -> None:
        vars(self).setdefault("sampled", {}).setdefault(request.request_id, []).append(token_id)
        super().append_token(request, token_id)

    def finish_reason(self, request: Request) -> FinishReason | None:
        if len(vars(self)["sampled"][request.request_id]) > request.num_generated_tokens:
            raise RuntimeError("a token too many")
        return super().finish_reason(request)


class EverySecondReuses(BlockPool):
    """Reuses blocks without content first in every second engine: correct, but different each time."""

    num_made: ClassVar[int] = 0

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        type(self).num_made += 1
        self.is_second = self.num_made % 2 == 0

    def reused_first(self, block_ids: list[int]) -> list[int]:
        return super().reused_first(block_ids) if self.is_second else []
