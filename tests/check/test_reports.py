"""Public reports, played with the override that each one names: rule, first event, method; the right one is clean.

The numbers are those of the upstream repositories. Blocks have 4 tokens; X, Y and Z fill one each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest

from check.watched import FULL, Watched, watched
from driving import as_parts
from labengine import events as ev
from labengine.core.block_pool import BlockPool
from labengine.core.editions import NANO_VLLM
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request, RequestStatus
from labengine.core.seams import decider
from labengine.core.step_plan import SlotRun
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.scenarios.vllm_49097_skipped_request import DefersPrefills, IndexNotLowered

X, Y, Z = range(100, 104), range(200, 204), range(300, 304)
MAX_STEPS = 30


def run(setup: Watched) -> None:
    """Step to the end, or until a part raises; at most MAX_STEPS."""
    with suppress(RuntimeError):
        for _ in range(MAX_STEPS):
            if not setup.engine.step():
                return


def hits(setup: Watched) -> list[int]:
    """Tokens found by each admission."""
    return [event.num_tokens for event in setup.timeline.events() if isinstance(event, ev.PrefixHit)]


# -- SGLang 36855: progress is noted only where a chunk is published ---------------------------------------------------


class CountsWhatItPublishes(TokenBudgetScheduler):
    """Notes no progress of a request that is not to be cached."""

    def book_computed(self, request: Request, num_tokens: int) -> None:
        if not request.extra_keys:
            super().book_computed(request, num_tokens)


def a_request_that_is_not_stored(parts: Parts) -> Watched:
    setup = watched(8, FULL, parts, budget=4)
    setup.add(*X, *Y, *Z, cache_salt="no-store")
    run(setup)
    return setup


# -- ROCm ATOM 902: a hit on a free block costs a free block -----------------------------------------------------------


class HitsAreFree(FullAttentionGroup):
    """Charges no hit at admission."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        return num_blocks - len(hit)


def hits_on_free_blocks(parts: Parts) -> Watched:
    setup = watched(4, FULL, parts)
    setup.add(*X, *Y)
    run(setup)
    setup.add(1, 2, 3, max_tokens=9)
    setup.steps(1)
    setup.add(*X, *Y, *Z, 7, 8, 9, 10)
    run(setup)
    return setup


# -- TensorRT-LLM 12404: a prompt that ends on a block's boundary is credited a block that it has to compute -----------


class CreditsTheLastBlock(FullAttentionGroup):
    """Counts the block behind a hit as reusable."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        needed = super().num_blocks_to_admit(hit, num_computed_tokens, num_blocks)
        return needed - (len(hit) + 1 == num_blocks)


def a_prompt_that_ends_with_a_block(parts: Parts) -> Watched:
    setup = watched(4, FULL, parts, max_num_seqs=4)
    setup.add(*X, *Y, max_tokens=6)
    setup.steps(1)
    setup.add(1, 2, max_tokens=3)
    setup.steps(2)
    setup.add(*X, *Y)
    run(setup)
    return setup


# -- vLLM 49097: a victim earlier in `running` and not in the batch ----------------------------------------------------


def a_victim_that_was_deferred(parts: Parts) -> Watched:
    setup = watched(4, FULL, parts, budget=16, long_prefill_token_threshold=8)
    setup.add(*range(1, 13))
    setup.add(50, 51, 52, max_tokens=6)
    setup.add(60, 61, max_tokens=6)
    run(setup)
    return setup


# -- ferrox 37: on an adopted prefix, KV is appended at the request's own length ---------------------------------------


class AppendsAtItsOwnLength(NANO_VLLM.kv_cache_manager):  # type: ignore[name-defined,misc]
    """Does not count the adopted prefix where it writes."""

    def admit(self, request: Request, hit: Hit, num_tokens: int, num_external: int = 0, *, num_spare: int = 0) -> bool:
        self.adopted = {**getattr(self, "adopted", {}), request.request_id: hit.num_tokens}
        return bool(super().admit(request, hit, num_tokens, num_external, num_spare=num_spare))

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        adopted = self.adopted[request.request_id]
        table, size = request.block_tables[0], group.block_size
        return tuple((table[i // size], i % size, 1) for i in range(start - adopted, end - adopted))


def an_adopted_prefix(parts: Parts) -> Watched:
    setup = watched(8, FULL, parts)
    setup.add(*X, 1, 2)
    run(setup)
    setup.add(*X, 1, 3, max_tokens=2)
    run(setup)
    return setup


# -- Atlas 373: eviction zeroes the count of a block in use ------------------------------------------------------------


class ForgetsOtherHolders(BlockPool):
    """Frees a block with the first of its references."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        for block_id in block_ids:
            self.blocks[block_id].ref_count = min(1, self.blocks[block_id].ref_count)
        return super().release(block_ids)


def a_shared_block(parts: Parts) -> Watched:
    setup = watched(5, FULL, parts)
    setup.add(*X, 1, max_tokens=6)
    setup.steps(1)
    setup.add(*X, 2)
    setup.steps(1)
    setup.add(*Y, *Z, 5)
    run(setup)
    return setup


# -- what the checks say -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """A report: its workload, its override, and the violation that is found first."""

    play: Callable[[Parts], Watched]
    edition: str
    override: Parts
    rule: str
    first_event: type[ev.Event]
    method: str
    right: Parts | None = None


REPORTS = {
    "sglang-36855": Played(
        a_request_that_is_not_stored,
        "vllm",
        Parts(scheduler=CountsWhatItPublishes),
        "progress",
        ev.SlotsWritten,
        "CountsWhatItPublishes.book_computed",
    ),
    "atom-902": Played(
        hits_on_free_blocks,
        "nano-vllm",
        Parts(full_attention_group=HitsAreFree),
        "granted",
        ev.PrefixHit,
        "HitsAreFree.num_blocks_to_admit",
    ),
    "tensorrt-llm-12404": Played(
        a_prompt_that_ends_with_a_block,
        "nano-vllm",
        Parts(full_attention_group=CreditsTheLastBlock),
        "granted",
        ev.PrefixHit,
        "CreditsTheLastBlock.num_blocks_to_admit",
    ),
    "vllm-49097": Played(
        a_victim_that_was_deferred,
        "labengine",
        Parts(scheduler=IndexNotLowered),
        "idle",
        ev.RequestScheduled,
        "IndexNotLowered._schedule_running",
        Parts(scheduler=DefersPrefills),
    ),
    "ferrox-37": Played(
        an_adopted_prefix,
        "nano-vllm",
        Parts(kv_cache_manager=AppendsAtItsOwnLength),
        "slot",
        ev.SlotsWritten,
        "AppendsAtItsOwnLength.slot_runs",
    ),
    "atlas-373": Played(
        a_shared_block,
        "nano-vllm",
        Parts(block_pool=ForgetsOtherHolders),
        "held",
        ev.BlockFreed,
        "ForgetsOtherHolders.release",
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_found_with_event_and_method_and_the_right_version_is_clean(name: str) -> None:
    report = REPORTS[name]
    parts = report.override.overriding(as_parts(report.edition))
    setup = report.play(parts)
    found = next(violation for violation in setup.watch.violations if violation.rule == report.rule)
    event = setup.first_event(report.rule)
    assert type(event) is report.first_event
    assert f"({report.method})" in found.message or str(decider(parts, event)) == report.method
    right = report.play((report.right or Parts()).overriding(as_parts(report.edition)))
    assert right.watch.check(right.engine.snapshot()) == []
    assert right.engine.scheduler.is_idle and not right.timeline.of_kind(ev.StepFailed)  # type: ignore[arg-type]


def test_vllm_49097_the_right_step_computes_both_requests_that_are_left() -> None:
    setup = a_victim_that_was_deferred(Parts(scheduler=DefersPrefills).overriding(as_parts("labengine")))
    events = setup.timeline.events()
    start = events.index(ev.StepStarted(3))
    step = events[start : events.index(ev.StepEnded(3))]
    assert [event.request_id for event in step if isinstance(event, ev.RequestPreempted)] == [0]
    assert [event.request_id for event in step if isinstance(event, ev.RequestScheduled)] == [1, 2]


def test_a_request_that_is_granted_too_little_waits_in_the_right_version() -> None:
    """ATOM 902: the step fails, is rolled back, and names who promised; right, the request is admitted later."""
    broken = hits_on_free_blocks(Parts(full_attention_group=HitsAreFree).overriding(as_parts("nano-vllm")))
    (failed,) = broken.timeline.of_kind(ev.StepFailed)  # type: ignore[arg-type]
    assert "request 2 needs 2 blocks" in failed.message and "1 is free" in failed.message
    assert not broken.engine.requests[2].has_blocks
    right = hits_on_free_blocks(as_parts("nano-vllm"))
    assert hits(right) == [0, 0, 4] and right.engine.requests[2].status is RequestStatus.FINISHED


# -- reports that break none of these rules ----------------------------------------------------------------------------


class ClaimsLoseTheirHash(BlockPool):
    """ATOM 902, the second half: a free block that is hit is taken as a fresh one is, and forgets its content."""

    def touch(self, block_ids: Sequence[int]) -> None:
        for block in (self.blocks[block_id] for block_id in block_ids):
            if not block.ref_count:
                self.evict(block)
        super().touch(block_ids)


class HashesFromItsChunk(FullAttentionGroup):
    """inference-sim 196: the blocks of a later chunk are known by the hashes of the first."""

    def register_block(self, request: Request, index: int) -> None:
        own = request.block_hashes[index]
        request.block_hashes[index] = request.block_hashes[index - request.num_computed_tokens // self.block_size]
        super().register_block(request, index)
        request.block_hashes[index] = own


def equal_prompts(parts: Parts, num_blocks: int, prompts: Sequence[Sequence[int]], budget: int = 1000) -> Watched:
    setup = watched(num_blocks, FULL, parts, budget=budget)
    for prompt in prompts:
        setup.add(*prompt)
        run(setup)
    return setup


def test_atom_902_a_hit_leaves_the_cache_as_it_was() -> None:
    prompts = [[*X, *Y, 9]] * 3
    broken = equal_prompts(Parts(block_pool=ClaimsLoseTheirHash).overriding(as_parts("nano-vllm")), 6, prompts)
    right = equal_prompts(as_parts("nano-vllm"), 6, prompts)
    assert (hits(broken), hits(right)) == ([0, 8, 0], [0, 8, 8])
    assert not broken.broken_rules() & {"idle", "granted", "progress"} and not right.watch.violations


def test_inference_sim_196_a_hash_covers_all_tokens_before_it() -> None:
    prompts = [[*X, *Y, *Z, last] for last in (1, 2)]
    parts = Parts(full_attention_group=HashesFromItsChunk).overriding(as_parts("nano-vllm"))
    broken = equal_prompts(parts, 8, prompts, budget=4)
    right = equal_prompts(as_parts("nano-vllm"), 8, prompts, budget=4)
    assert (hits(broken), hits(right)) == ([0, 0], [0, 12])
    assert not broken.broken_rules() & {"idle", "granted", "progress"} and not right.watch.violations
