"""Public reports as overrides with their workloads: each goes wrong in its own way, some by no rule at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labengine import BlockPool, FullAttentionGroup, KVCacheManager, TokenBudgetScheduler
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest
from labengine.core.vllm.block_pool import VllmBlockPool
from labengine.lab import Lab

X, Y, Z = range(100, 104), range(200, 204), range(300, 304)
XY, XYZ = [*X, *Y], [*X, *Y, *Z]


@dataclass(frozen=True)
class Reported:
    """A report. parts: the override; play: its workload on blocks of 4."""

    name: str
    parts: Parts
    play: Callable[[Lab], None]
    edition: str
    num_blocks: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def lab(self, *, is_broken: bool = True) -> Lab:
        """Return a lab in which the workload was played; a step in which a part raises is its last."""
        chosen: dict[str, Any] = {"parts": self.parts} if is_broken else {}
        settings = {"edition": self.edition, "num_blocks": self.num_blocks, "block_size": 4, **self.settings, **chosen}
        lab = Lab("simulated", **settings)
        lab.session.violation_warnings.is_silent = True
        try:
            self.play(lab)
        except Exception:
            assert lab.crash is not None
        return lab


# -- SGLang 38319, 38355; kvcached 362 ---------------------------------------------------------------------------------


class KeepsKeys(BlockPool):
    """A block taken from the free queue keeps its keys."""

    def take(self, num_blocks: int) -> list[int]:
        block_ids = self.free_queue.take(num_blocks)
        self._journal.record((self._put_back, block_ids))
        for block_id in block_ids:
            self.blocks[block_id].ref_count = 1
        return block_ids


class KeepsKeysBesideNull(KeepsKeys, VllmBlockPool):
    """The same, in a pool whose block 0 is set aside."""


def play_1(lab: Lab) -> None:
    lab.add(token_ids=[*XYZ, 1], max_tokens=1)
    lab.step()
    lab.abort(0)
    lab.add(token_ids=range(500, 513), max_tokens=1)
    lab.run()
    lab.add(token_ids=[*X, 2, 3], max_tokens=2)
    lab.run()


def play_21(lab: Lab) -> None:
    for first in (100, 200, 300, 100):
        lab.add(token_ids=range(first, first + 9), max_tokens=1)
        lab.run()


# -- TokenSpeed 976 ----------------------------------------------------------------------------------------------------


class ForgetsAdapter(KVCacheManager):
    """A chain that begins at decode, behind a prompt shorter than a block, begins without the extra keys."""

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        keys = request.extra_keys
        if request.num_prompt_tokens < self._config.hash_block_size:
            request.extra_keys = ()
        super().extend_hashes(request, num_tokens)
        request.extra_keys = keys


def play_3(lab: Lab) -> None:
    lab.add(token_ids=[1, 2, 3], max_tokens=4, extra_keys={"lora": "a"})
    lab.run()
    first = lab.snapshot().requests[0].token_ids[3]
    lab.add(token_ids=[1, 2, 3, first, 9, 9], max_tokens=1)
    lab.run()


# -- ROCm ATOM 902 -----------------------------------------------------------------------------------------------------


class ChargesNoFreeHits(FullAttentionGroup):
    """Admission does not count the free blocks that a hit takes."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        return max(num_blocks - len(hit), 0)


class HitLosesHash(BlockPool):
    """Claiming a free cached block drops its hash."""

    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            if not self.blocks[block_id].ref_count:
                self.evict(self.blocks[block_id])
        super().touch(block_ids)


def play_4a(lab: Lab) -> None:
    lab.add(token_ids=XY, max_tokens=1)
    lab.run()
    lab.add(token_ids=[1, 2, 3], max_tokens=9)
    lab.step()
    lab.add(token_ids=[*XYZ, 7, 8, 9, 10], max_tokens=1)
    lab.run()


def play_4b(lab: Lab) -> None:
    for _ in range(3):
        lab.add(token_ids=[*XY, 9], max_tokens=1)
        lab.run()


# -- TensorRT-LLM 12404 ------------------------------------------------------------------------------------------------


class CreditsLastBlock(FullAttentionGroup):
    """A prompt that ends with a block is credited that block as reusable, though it must be computed."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        needed = super().num_blocks_to_admit(hit, num_computed_tokens, num_blocks)
        is_all_but_the_last = bool(hit) and len(hit) == num_blocks - 1
        return needed - 1 if is_all_but_the_last else needed


def play_5(lab: Lab) -> None:
    lab.add(token_ids=XY, max_tokens=6)
    lab.step()
    lab.add(token_ids=[1, 2], max_tokens=3)
    lab.step()
    lab.step()
    lab.add(token_ids=XY, max_tokens=1)
    lab.run()


# -- vLLM 49097 --------------------------------------------------------------------------------------------------------


class SkipsTheNext(TokenBudgetScheduler):
    """Prefills are deferred; a victim before the present request that is not in the batch does not lower the index."""

    def choose_victim(self, request: Request) -> Request:
        return self.running[0]

    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        budget, index = self.config.max_num_batched_tokens, 0
        batch: list[ScheduledRequest] = []
        while index < len(self.running) and budget:
            request = self.running[index]
            num_computed = request.num_computed_tokens
            num_tokens = request.num_tokens - num_computed
            if num_tokens > 1:
                index += 1
                continue
            if not self.allocate_or_preempt(request, num_computed + num_tokens, batch, preempted):
                break
            batch.append(self.plan(request, num_tokens, RequestStatus.RUNNING))
            index += 1
            budget -= num_tokens
        return batch


def play_7(lab: Lab) -> None:
    lab.add(token_ids=range(1, 13), max_tokens=1)
    lab.add(token_ids=[50, 51, 52], max_tokens=6)
    lab.add(token_ids=[60, 61], max_tokens=6)
    lab.step(3)


# -- vLLM 11565 --------------------------------------------------------------------------------------------------------


class TouchesFirst(KVCacheManager):
    """Hits are touched before it is known that the request fits."""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        for block_ids in hit.block_ids:
            self.pool.touch(block_ids)
        if not super().can_admit(request, hit, num_external, num_spare):
            return False
        for block_ids in hit.block_ids:
            self.pool.release(block_ids)
        return True


def play_22(lab: Lab) -> None:
    lab.add(token_ids=[*XY, 1], max_tokens=1)
    lab.run()
    lab.add(token_ids=[50, 51, 52], max_tokens=6)
    lab.step()
    lab.add(token_ids=[*XYZ, *range(400, 404)], max_tokens=1)
    lab.run()


CHUNKS = {"max_num_batched_tokens": 4}
REPORTS = (
    Reported("sglang-38319", Parts(block_pool=KeepsKeysBesideNull), play_1, "vllm", 5, CHUNKS),
    Reported("tokenspeed-976", Parts(kv_cache_manager=ForgetsAdapter), play_3, "vllm", 8),
    Reported("atom-902-charge", Parts(full_attention_group=ChargesNoFreeHits), play_4a, "nano-vllm", 4),
    Reported("atom-902-hash", Parts(block_pool=HitLosesHash), play_4b, "nano-vllm", 6),
    Reported(
        "tensorrt-llm-12404", Parts(full_attention_group=CreditsLastBlock), play_5, "nano-vllm", 4, {"max_num_seqs": 4}
    ),
    Reported(
        "vllm-49097",
        Parts(scheduler=SkipsTheNext),
        play_7,
        "labengine",
        4,
        {"max_num_batched_tokens": 16, "long_prefill_token_threshold": 8},
    ),
    Reported("kvcached-362", Parts(block_pool=KeepsKeys), play_21, "labengine", 4),
    Reported("vllm-11565", Parts(kv_cache_manager=TouchesFirst), play_22, "labengine", 4),
)
