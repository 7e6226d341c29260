"""Nine wrong parts: what engines got wrong, or may get wrong, each as an override with a workload that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine import (
    FullAttentionGroup,
    GroupSpec,
    HashChain,
    KVCacheManager,
    PrefixLookup,
    SlidingWindowGroup,
    TokenBudgetScheduler,
)
from labengine.core.connector import BlockTransfer
from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import ExtraKeys, Request
from labengine.core.scheduler import Admission
from labengine.lab import Lab
from reported import XY, XYZ, Reported, X, Z

# -- LMCache 3301: an image's identifier is reduced to 16 bits ---------------------------------------------------------


class ShortImageNames(HashChain):
    """Hashes the last four hexadecimal digits of each extra key's value.

    Source: https://github.com/LMCache/LMCache/issues/3301.
    """

    def root(self, extra_keys: ExtraKeys) -> bytes:
        return super().root(tuple((name, value[-4:]) for name, value in extra_keys))


def play_images(lab: Lab) -> None:
    for image in ("5d41402abc4b2a76", "9f86d081884c2a76"):
        lab.add(token_ids=[*XY, 1], max_tokens=2, extra_keys={"image": image})
        lab.run()


# -- LMCache 1866: the chunks behind a local hit are taken from the front of what was fetched --------------------------


class CountsFromTheFront(KVCacheManager):
    """Fills the first block behind a local hit with the prompt's first block.

    Source: https://github.com/LMCache/LMCache/issues/1866.
    """

    def external_blocks(self, request: Request, num_local: int, num_computed: int) -> list[BlockTransfer]:
        wanted = super().external_blocks(request, num_local, num_computed)
        fetched = super().external_blocks(request, 0, num_computed)
        return [
            BlockTransfer(right.request_id, right.group, right.index, right.block_id, wrong.block_hash)
            for right, wrong in zip(wanted, fetched, strict=False)
        ]


def play_behind_a_hit(lab: Lab) -> None:
    lab.add(token_ids=[*XYZ, 1], max_tokens=1)
    lab.run()
    lab.reset_prefix_cache()
    lab.add(token_ids=[*X, 2], max_tokens=1)
    lab.run()
    lab.add(token_ids=[*XYZ, 3], max_tokens=2)
    lab.run()


# -- LMCache 2158: the tier knows less than the pool, and the difference is passed on as it is -------------------------


class MayBeNegative(TokenBudgetScheduler):
    """Returns what the tier has less what the pool has, also where that is below 0.

    Source: https://github.com/LMCache/LMCache/issues/2158 (hit 256, computed 336, to load -80).
    """

    def match_external(self, request: Request, hit: Hit) -> int:
        nothing = Hit(0, ((),) * len(hit.block_ids))
        return super().match_external(request, nothing) - hit.num_tokens if hit.num_tokens else 0


def play_twice(lab: Lab) -> None:
    for last in (1, 2):
        lab.add(token_ids=[*XYZ, last], max_tokens=1)
        lab.run()


# -- LMCache 4612: a preempted request never asks the tier -------------------------------------------------------------


class PreemptedAsksNobody(TokenBudgetScheduler):
    """A resumed request recomputes what the tier still has.

    Source: https://github.com/LMCache/LMCache/pull/4612.
    """

    def match_external(self, request: Request, hit: Hit) -> int:
        return 0 if request.num_generated_tokens else super().match_external(request, hit)


def play_preempted(lab: Lab) -> None:
    lab.add(token_ids=[*XY, 1], max_tokens=9)
    lab.step(2)
    lab.add(token_ids=[*Z, 5, 6], max_tokens=9)
    lab.run()


# -- vllm-ascend 14283: only the first full-attention group is cut to the agreed length --------------------------------


class OneGroupUncut(PrefixLookup):
    """A full-attention group keeps its longer run after a window has shortened the hit.

    Source: https://github.com/vllm-project/vllm-ascend/issues/14283, pull request 14810.
    """

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        hit = super().longest_hit(request, max_tokens)
        uncut = [
            tuple(group.find_hit(request, max_tokens, [group])[0]) if group.spec.kind == "full" else block_ids
            for group, block_ids in zip(self._groups, hit.block_ids, strict=True)
        ]
        return hit._replace(block_ids=tuple(uncut))


def play_window_shortens(lab: Lab) -> None:
    for token_ids, max_tokens in (([*XYZ, *range(400, 404), 1], 3), (range(600, 609), 6), ([*X, 1], 1), ([*XYZ, 1], 1)):
        lab.add(token_ids=token_ids, max_tokens=max_tokens)
        lab.run()


# -- SGLang 8649: what is before the chunk is dropped, the window or not -----------------------------------------------


class DropsByChunk(SlidingWindowGroup):
    """Drops all tokens before the present chunk, also those inside the window.

    Source: https://github.com/sgl-project/sglang/issues/8649.
    """

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        chunk = self._config.max_num_batched_tokens
        return num_computed_tokens // chunk * chunk


def play_chunks(lab: Lab) -> None:
    lab.add(token_ids=[*XYZ, 1], max_tokens=3)
    lab.run()


# -- SGLang 17061: a gap does not end the run that a window's hit needs ------------------------------------------------


class GapsCount(SlidingWindowGroup):
    """Counts cached blocks across a gap, and only a run that was long enough ends at one.

    Source: https://github.com/sgl-project/sglang/pull/17061.
    """

    def find_hit(self, request: Request, max_tokens: int, siblings: Sequence[KVCacheGroup]) -> GroupHit:
        found = [self.cached_block(request, index) for index in range(max_tokens // self.block_size)]
        length, run = 0, float("inf")  # at the start no block is missing before
        for index, block_id in enumerate(found):
            if block_id is not None:
                run += 1
                if run >= self.num_blocks_for_hit:
                    length = index + 1
            elif run >= self.num_blocks_for_hit:
                run = 0
        table = [self._pool.null_block if block_id is None else block_id for block_id in found[:length]]
        return [table for _ in siblings]


def play_gap(lab: Lab) -> None:
    longer = [*XYZ, *range(400, 404)]  # of its window group's blocks the first is evicted, and the third not kept
    for token_ids in ([*XY, 1], [*longer, *range(450, 454), 1], range(600, 605), [*longer, 2]):
        lab.add(token_ids=token_ids, max_tokens=1)
        lab.run()


# -- FastDeploy 3080: a resumed request prefills its prompt alone ------------------------------------------------------


class ResumesFromThePrompt(TokenBudgetScheduler):
    """After a preemption the prompt is computed, and the generated tokens count as computed with it.

    Source: https://github.com/PaddlePaddle/FastDeploy/pull/3080.
    """

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        num_hit = self.manager.find_prefix(request).num_tokens
        return super().admit(request, min(limit, max(1, request.num_prompt_tokens - num_hit)), is_first=is_first)

    def book_computed(self, request: Request, num_tokens: int) -> None:
        if request.num_generated_tokens and num_tokens >= request.num_prompt_tokens:
            num_tokens = max(num_tokens, request.num_tokens - 1)
            self.manager.allocate(request, num_tokens)
        super().book_computed(request, num_tokens)


# -- argued in Atlas 692, and found not to hold there: a shared tail without a reference -------------------------------


class TailWithoutReference(FullAttentionGroup):
    """A fork takes its parent's tail by its id, and counts references to full blocks only.

    Source: argued in https://github.com/Avarok-Cybersecurity/atlas/pull/692; its closing comment says that it does not
    hold for that engine.
    """

    def add_shared(self, request: Request, parent: Request, num_tokens: int) -> None:
        super().add_shared(request, parent, num_tokens - num_tokens % self.block_size)
        num_full = num_tokens // self.block_size
        self._extend_table(request.block_tables[self.index], self.shared_blocks(parent, num_tokens)[num_full:])


def play_fork(lab: Lab) -> None:
    lab.add(token_ids=[*X, 1, 2], max_tokens=5, n=2)
    lab.run()


GROUPS = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)]
CHUNKED: dict[str, Any] = {"groups": GROUPS, "max_num_batched_tokens": 4}
HOST = {"external": "host"}
UNSEEN = (
    Reported("lmcache-3301", Parts(hash_chain=ShortImageNames), play_images, "vllm", 8),
    Reported("lmcache-1866", Parts(kv_cache_manager=CountsFromTheFront), play_behind_a_hit, "vllm", 12, HOST),
    Reported("lmcache-2158", Parts(scheduler=MayBeNegative), play_twice, "labengine", 12),
    Reported("lmcache-4612", Parts(scheduler=PreemptedAsksNobody), play_preempted, "labengine", 6, HOST),
    Reported("vllm-ascend-14283", Parts(prefix_lookup=OneGroupUncut), play_window_shortens, "labengine", 14, CHUNKED),
    Reported(
        "sglang-8649",
        Parts(sliding_window_group=DropsByChunk),
        play_chunks,
        "labengine",
        12,
        {"groups": GROUPS, "max_num_batched_tokens": 8},
    ),
    Reported(
        "sglang-17061",
        Parts(sliding_window_group=GapsCount),
        play_gap,
        "labengine",
        12,
        CHUNKED | {"retention_interval": 0},
    ),
    Reported("fastdeploy-3080", Parts(scheduler=ResumesFromThePrompt), play_preempted, "labengine", 6),
    Reported("atlas-692", Parts(full_attention_group=TailWithoutReference), play_fork, "labengine", 8),
)
