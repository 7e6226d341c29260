"""Edition nano-vllm-2025-07 holds what nano-vLLM at 38baf0b held, after every step: recorded always, live on request.

LABENGINE_NANO_VLLM_2025_07=path/to/nano-vllm-at-38baf0b pytest tests/core/test_nano_vllm_2025_07.py
"""

from __future__ import annotations

from collections import Counter

import pytest

from differential import golden
from differential.comparison import first_difference, is_found_out, rows_of_labengine
from differential.nano_upstream_2025_07 import (
    COMMIT,
    EDITION,
    VARIABLE,
    Upstream202507,
    checkout_2025_07,
    workload_2025_07,
)
from labengine.config import ConfigError
from labengine.core.block import Block
from labengine.core.editions import NANO_VLLM_2025_07
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.nano_vllm.block_pool import NanoBlockPool, StaleMapPool
from labengine.core.nano_vllm.full_attention import OwnTokensGroup
from labengine.core.nano_vllm.kv_cache_manager import EarlyHashManager, NanoKVCacheManager
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler, UnchunkedScheduler
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.engine.workload import simulate
from labengine.events import EvictReason, PrefixHit
from labengine.lab import Lab
from labengine.record.hooks import Hooks
from seeds import one_in
from workloads import Workload

Recorded = list[tuple[Workload, list[golden.Row]]]
NUM_RECORDED, NUM_LIVE = 200, 2000


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return list(golden.read(EDITION))


def test_every_step_of_the_recorded_workloads_is_equal(recorded: Recorded) -> None:
    assert len(recorded) == NUM_RECORDED
    for number, (workload, rows) in enumerate(one_in(3, recorded)):
        difference = first_difference(rows, rows_of_labengine(workload, EDITION))
        assert difference is None, f"recorded workload {number}: {difference}\n{workload}"


def test_the_recording_names_its_source_and_comes_from_the_generator(recorded: Recorded) -> None:
    header = golden.read_header(EDITION)
    assert (header["commit"], header["edition"]) == (COMMIT, EDITION)
    assert [workload for workload, _ in recorded] == [workload_2025_07(seed) for seed in range(NUM_RECORDED)]


def test_every_step_is_equal_live() -> None:
    checkout = checkout_2025_07()
    if checkout is None:
        pytest.skip(f"set {VARIABLE} to a checkout of nano-vLLM at {COMMIT[:7]}; its recorded outputs were compared")
    pytest.importorskip("xxhash")
    upstream = Upstream202507(checkout)
    num_steps = 0
    for seed in range(NUM_LIVE):
        workload = workload_2025_07(seed)
        rows = upstream.run(workload)
        difference = first_difference(rows, rows_of_labengine(workload, EDITION))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        num_steps += len(rows)
    print(f"{EDITION}: {NUM_LIVE} workloads, {num_steps} steps, equal after each")


# -- the workloads meet what is particular to this version -------------------------------------------------------------


def _counting(met: set[str]) -> Parts:
    class CountingGroup(OwnTokensGroup):
        def _register_again(self, request: Request, index: int, block: Block) -> None:
            if block.keys != ((self.index, request.block_hashes[index]),):
                met.add("stale hit on a live block" if block.ref_count > 1 else "stale hit on a free block")
            super()._register_again(request, index, block)

    class CountingManager(EarlyHashManager):
        def extend_hashes(self, request: Request, num_tokens: int) -> None:
            before = request.block_hashes[:]
            super().extend_hashes(request, num_tokens)
            if (
                before
                and len(before) < len(request.block_hashes)
                and before[-1] != request.block_hashes[len(before) - 1]
            ):
                met.add("chain goes on from another's hash")

        def admit(self, request: Request, hit: Hit, num_tokens: int, *args: int, **kwargs: int) -> bool:
            if hit.num_tokens == num_tokens:
                met.add("nothing left to compute")
            return super().admit(request, hit, num_tokens, *args, **kwargs)

    return Parts(full_attention_group=CountingGroup, kv_cache_manager=CountingManager).overriding(NANO_VLLM_2025_07)


def test_the_workloads_cover_stale_hits_and_full_hits(recorded: Recorded) -> None:
    counts: Counter[str] = Counter()
    played = one_in(3, recorded)
    for workload, _ in played:
        met: set[str] = set()
        rows_of_labengine(workload, _counting(met))
        counts.update(met)
    assert set(counts) == {
        "stale hit on a live block",
        "stale hit on a free block",
        "chain goes on from another's hash",
        "nothing left to compute",
    }
    assert min(counts.values()) >= len(played) / 40


# -- a core that decides otherwise is found out ------------------------------------------------------------------------


class ForgetsStaleEntries(StaleMapPool):
    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        NanoBlockPool.evict(self, block, reason)


class KeepsTheFirstName(OwnTokensGroup):
    def _register_again(self, request: Request, index: int, block: Block) -> None:
        """Not done."""


class CountsHits(EarlyHashManager):
    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        return KVCacheManager.can_admit(self, request, hit)


class LeavesOneToken(EarlyHashManager):
    def find_prefix(self, request: Request) -> Hit:
        return KVCacheManager.find_prefix(self, request)


class RegistersLate(EarlyHashManager):
    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        return num_tokens if moment == "computed" else 0


class TrustsItsOwnChain(EarlyHashManager):
    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        NanoKVCacheManager.extend_hashes(self, request, num_tokens)


class ChargesHitsOnly(UnchunkedScheduler):
    def admit(self, request: Request, limit: int, *, is_first: bool) -> int | None:
        return PrefillFirstScheduler.admit(self, request, limit, is_first=False)


MUTANTS = {
    "forgets stale entries": Parts(block_pool=ForgetsStaleEntries),
    "keeps a block's first name": Parts(full_attention_group=KeepsTheFirstName),
    "counts hits at admission": Parts(kv_cache_manager=CountsHits),
    "leaves one token to compute": Parts(kv_cache_manager=LeavesOneToken),
    "registers after compute": Parts(kv_cache_manager=RegistersLate),
    "trusts its own chain": Parts(kv_cache_manager=TrustsItsOwnChain),
    "asks the budget for what is computed": Parts(scheduler=ChargesHitsOnly),
    "looks up without stale entries": Parts(full_attention_group=FullAttentionGroup),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_core_that_decides_otherwise_is_found_out(mutant: str, recorded: Recorded) -> None:
    parts = MUTANTS[mutant].overriding(NANO_VLLM_2025_07)
    assert is_found_out(recorded, lambda workload, rows: first_difference(rows, rows_of_labengine(workload, parts)))


# -- in words ----------------------------------------------------------------------------------------------------------


def workload(
    *prompts: list[int], num_blocks: int = 12, steps: tuple[int, ...] = (), max_tokens: int = 1
) -> dict[str, object]:
    requests = [
        {"step": steps[i] if steps else 0, "prompt": prompt, "max_tokens": max_tokens}
        for i, prompt in enumerate(prompts)
    ]
    limits = {"max_num_seqs": 16, "max_num_batched_tokens": 64}
    return {"num_blocks": num_blocks, "block_size": 4, **limits, "requests": requests}


def test_equal_prompts_share_in_the_same_step() -> None:
    prompt = list(range(14))
    [after, *_] = simulate(workload(prompt, prompt, num_blocks=12, steps=(0, 0), max_tokens=2), EDITION)
    assert after.num_used_blocks == 5
    assert after.requests[0].block_tables[0][:3] == after.requests[1].block_tables[0][:3]


def test_a_prompt_too_long_for_one_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens=65"):
        simulate(workload(list(range(65)), num_blocks=32, steps=(0,)), EDITION)


def test_an_old_map_entry_leads_to_equal_tokens_after_another_prefix() -> None:
    """The second request's blocks, reused from the first, hold X and Y as its fourth and third: the last one hits."""
    x, y, v, w = [1] * 4, [2] * 4, [3] * 4, [4] * 4
    hits: list[PrefixHit] = []
    hooks = Hooks(strict=True)
    hooks.subscribe(hits.append, PrefixHit)
    simulate(workload([*x, *y], [*v, *w, *y, *x], [*x, *y, 9], num_blocks=4, steps=(0, 1, 2)), EDITION, hooks=hooks)
    assert [hit.num_tokens for hit in hits] == [0, 0, 8]
    hits.clear()
    simulate(workload([*x, *y], [*v, *w, *y, *x], [*x, *y, 9], num_blocks=4, steps=(0, 1, 2)), "nano-vllm", hooks=hooks)
    assert [hit.num_tokens for hit in hits] == [0, 0, 0]


def test_the_oracle_sees_that_it_reads_another_requests_kv() -> None:
    x, y, v, w = [1] * 4, [2] * 4, [3] * 4, [4] * 4
    with Lab("simulated", num_blocks=4, block_size=4, edition=EDITION) as lab:
        for prompt in ([*x, *y], [*v, *w, *y, *x], [*x, *y, 9]):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.run()
        assert {(violation.rule, violation.request_ids) for violation in lab.violations} == {
            ("named", (2,)),
            ("read", (2,)),
        }
