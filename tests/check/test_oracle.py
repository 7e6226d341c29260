"""The oracle's memory: what it takes for whose, and when it looks again."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from check.mutations import SIX_BITS
from check.random_operations import Episode
from check.test_mutations import equal_tokens_after_colliding_prefixes
from check.watched import FULL, HYBRID, Watched, watched
from driving import as_parts
from fake_tier import FakeTier, Luck
from labengine.check.oracle import Oracle
from labengine.check.slot_memory import PrefixIdentities
from labengine.config import SamplingParams
from labengine.core.hash_chain import HashChain
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.events import BlocksLoaded, BlocksSaved
from labengine.record.snapshot import GroupState

TWO_GROUPS = (GroupState("full", 2, None), GroupState("sliding_window", 2, 3))


class Memory:
    """An oracle over two groups with blocks of 2, and requests of given tokens."""

    def __init__(self, *prompts: list[int], null_block: int = -1) -> None:
        self.requests = {i: request(i, prompt) for i, prompt in enumerate(prompts)}
        self.oracle = Oracle(TWO_GROUPS, null_block, PrefixIdentities(self.requests))

    def step(self, request_id: int, start: int, end: int, *tables: tuple[int, ...], **changes: Any) -> list[str]:
        """Compute positions [start, end) through these tables; return the misreads, as group:entry@position."""
        plan = self.plan(request_id, start, end, *tables, **changes)
        self.oracle.before_forward(plan)
        return [f"{m.group}:{m.index}@{m.position}" for m in self.oracle.after_forward(plan)]

    def plan(self, request_id: int, start: int, end: int, *tables: tuple[int, ...], **changes: Any) -> StepPlan:
        runs = changes.get("slot_runs") or tuple(
            tuple((table[p // 2], p % 2, 1) for p in range(start, end)) for table in tables
        )
        part = ScheduledRequest(
            request_id=request_id,
            token_ids=tuple(self.requests[request_id].token_ids[start:end]),
            start=start,
            block_tables=tables,
            slot_runs=runs,
            is_prefill=True,
            samples=False,
            sampling=SamplingParams(),
            seed=0,
        )
        return StepPlan((part,))


def request(request_id: int, token_ids: list[int], **more: Any) -> Request:
    return Request(request_id, token_ids, SamplingParams(), 0, 2, **more)


def test_a_request_reads_what_it_wrote() -> None:
    memory = Memory([1, 2, 3, 4, 5])
    assert memory.step(0, 0, 3, (0, 1), (2, 3)) == []
    assert memory.step(0, 3, 5, (0, 1, 4), (2, 3, 5)) == []


def test_what_another_wrote_is_ones_own_if_all_tokens_are_equal() -> None:
    memory = Memory([1, 2, 3], [1, 2, 9], [8, 2, 3])
    assert memory.step(0, 0, 3, (0, 1), (2, 3)) == []
    assert memory.step(1, 2, 3, (0, 4), (2, 5)) == []
    assert memory.step(2, 2, 3, (0, 6), (2, 7)) == ["0:0@0", "1:0@0"]


def test_equal_tokens_after_others_are_not_ones_own() -> None:
    memory = Memory([1, 2, 3, 4, 5], [7, 2, 3, 4, 5])
    memory.step(0, 0, 5, (0, 1, 2), (3, 4, 5))
    memory.step(1, 0, 2, (6,), (7,))
    assert memory.step(1, 4, 5, (6, 1, 8), (7, 4, 9)) == ["0:1@2", "1:1@2"]


def test_a_slot_that_nobody_wrote_is_misread() -> None:
    memory = Memory([1, 2, 3])
    assert memory.step(0, 2, 3, (0, 1), (2, 3)) == ["0:0@0", "1:0@0"]


def test_a_write_to_the_wrong_slot_leaves_a_hole() -> None:
    memory = Memory([1, 2, 3, 4])
    memory.step(0, 0, 3, (0, 1), (2, 3))
    wrong: tuple[tuple[SlotRun, ...], ...] = (((5, 1, 1),), ((3, 1, 1),))
    assert memory.step(0, 3, 4, (0, 1), (2, 3), slot_runs=wrong) == ["0:1@3"]


def test_a_write_into_ones_own_earlier_block_is_seen() -> None:
    memory = Memory([1, 2, 3, 4])
    memory.step(0, 0, 3, (0, 1), (2, 3))
    wrong: tuple[tuple[SlotRun, ...], ...] = (((0, 1, 1),), ((3, 1, 1),))
    assert memory.step(0, 3, 4, (0, 1), (2, 3), slot_runs=wrong) == ["0:0@1", "0:1@3"]


def test_only_the_window_is_read() -> None:
    """A window of 3: the token at position 4 reads 2 to 4."""
    memory = Memory([1, 2, 3, 4, 5, 6])
    memory.step(0, 0, 4, (0, 1), (2, 3))
    assert memory.step(0, 4, 5, (0, 1, 4), (-1, 3, 5)) == []
    assert memory.step(0, 5, 6, (0, 1, 4), (-1, -1, 5)) == ["1:1@3"]


def test_a_null_block_is_no_content_even_if_the_pool_has_it() -> None:
    memory = Memory([1, 2, 3, 4, 5], null_block=0)
    memory.step(0, 0, 4, (1, 2), (3, 4))
    assert memory.step(0, 4, 5, (0, 2, 5), (0, 4, 6)) == ["0:0@0"]


def test_a_table_that_ends_too_soon_is_misread() -> None:
    memory = Memory([1, 2, 3])
    memory.step(0, 0, 2, (0,), (1,))
    runs: tuple[tuple[SlotRun, ...], ...] = (((4, 0, 1),), ((5, 0, 1),))
    assert memory.step(0, 2, 3, (0,), (1, 5), slot_runs=runs) == ["0:1@2"]


def test_writing_through_one_group_destroys_what_another_had() -> None:
    memory = Memory([1, 2, 3, 4], [1, 2, 3, 4])
    memory.step(0, 0, 3, (0, 1), (2, 3))
    memory.step(1, 0, 2, (2,), (5,))
    assert memory.step(0, 3, 4, (0, 1), (2, 3)) == ["1:0@1"], "block 2 was group 1's, and is group 0's now"


def test_a_block_overwritten_under_a_reader_is_compared_again() -> None:
    memory = Memory([1, 2, 3, 4], [7, 8, 9])
    memory.step(0, 0, 3, (0, 1), (2, 3))
    memory.step(1, 0, 2, (0,), (5,))
    assert memory.step(0, 3, 4, (0, 1), (2, 3)) == ["0:0@0"]


def test_an_entry_that_leads_elsewhere_is_compared_again() -> None:
    memory = Memory([1, 2, 3, 4], [1, 2], [7, 2])
    memory.step(0, 0, 3, (0, 1), (2, 3))
    memory.step(1, 0, 2, (5,), (6,))
    memory.step(2, 0, 2, (7,), (8,))
    assert memory.step(0, 3, 4, (5, 1), (2, 3)) == [], "merged into an equal block"
    assert memory.step(0, 3, 4, (7, 1), (2, 3)) == ["0:0@0"], "and into one of other tokens"


def test_a_forward_pass_that_does_not_come_back_may_have_written_anything() -> None:
    memory = Memory([1, 2, 3], [1, 2, 5])
    memory.step(0, 0, 2, (0,), (1,))
    memory.oracle.before_forward(memory.plan(1, 0, 2, (0,), (3,)))
    assert memory.step(0, 2, 3, (0, 4), (1, 5)) == ["0:0@0"]


def test_what_a_step_wrote_stays_written_when_it_is_taken_back() -> None:
    """After a rollback the blocks go to another request; a hit that takes them for the first one's is detected."""
    memory = Memory([1, 2, 3], [7, 8])
    memory.step(0, 0, 2, (0,), (1,))
    memory.step(1, 0, 2, (0,), (1,))
    assert memory.step(0, 2, 3, (0, 2), (1, 3)) == ["0:0@0", "1:0@0"]


def test_kv_comes_back_from_the_tier_as_what_it_was() -> None:
    memory = Memory([1, 2, 3], [1, 2, 4], [7, 8, 9])
    memory.step(0, 0, 2, (0,), (1,))
    memory.oracle.saved(BlocksSaved(0, ((0, 0, 0, b"h"), (1, 0, 1, b"h"))))
    memory.step(2, 0, 2, (0,), (1,))
    for block_id in (4, 5):
        memory.oracle.overwritten(block_id)
    memory.oracle.loaded(BlocksLoaded(1, ((0, 0, 4, b"h"), (1, 0, 5, b"h"))))
    assert memory.step(1, 2, 3, (4, 6), (5, 7)) == []
    memory.oracle.loaded(BlocksLoaded(2, ((0, 0, 4, b"h"), (1, 0, 5, b"h"))))
    assert memory.step(2, 2, 3, (4, 8), (5, 9)) == ["0:0@0", "1:0@0"], "another's, by a hash that two share"


def test_what_an_earlier_process_saved_is_taken_for_what_its_hash_claims() -> None:
    memory = Memory([1, 2, 3], [7, 8, 9])
    for block_id in (4, 5, 8):
        memory.oracle.overwritten(block_id)
    memory.oracle.loaded(BlocksLoaded(0, ((0, 0, 4, b"h"), (1, 0, 5, b"h"))))
    assert memory.step(0, 2, 3, (4, 6), (5, 7)) == []
    memory.oracle.loaded(BlocksLoaded(1, ((0, 0, 8, b"h"),)))
    assert memory.step(1, 2, 3, (8, 9), (5, 7)) == ["0:0@0", "1:0@0"], "and nobody else's from then on"


def test_a_load_that_has_begun_leaves_nothing_to_trust() -> None:
    memory = Memory([1, 2, 3])
    memory.step(0, 0, 2, (0,), (1,))
    memory.oracle.overwritten(0)
    assert memory.step(0, 2, 3, (0, 2), (1, 3)) == ["0:0@0"]


def test_an_adapter_changes_kv_and_a_salt_does_not() -> None:
    keys = ((), (("cache_salt", "a"),), (("adapter", "a"),), (("adapter", "a"), ("cache_salt", "b")))
    requests = {i: request(i, [1, 2], extra_keys=extra) for i, extra in enumerate(keys)}
    plain, salted, adapted, both = (PrefixIdentities(requests).up_to(i, 2) for i in requests)
    assert plain == salted != adapted == both


# -- in an engine ------------------------------------------------------------------------------------------------------


class KeylessChain(HashChain):
    """Forgets what KV depends on besides the tokens (vLLM issue 30931)."""

    def root(self, extra_keys: Any) -> bytes:
        return b""


@pytest.mark.parametrize("domain", ["adapter", "cache_salt"])
def test_sharing_across_adapters_and_salts_is_seen_and_across_salts_nothing_is_misread(domain: str) -> None:
    parts = Parts(hash_chain=KeylessChain, merge_policy=as_parts("vllm").merge_policy).overriding(as_parts("labengine"))
    setup = watched(edition=parts)
    for value in ("a", "b"):
        setup.add(*range(9), extra_keys=((domain, value),))
        setup.run()
    assert setup.broken_rules() == ({"scope", "read"} if domain == "adapter" else {"scope"})


def test_labengine_compares_prefixes_and_stays_silent_on_a_six_bit_hash() -> None:
    setup = equal_tokens_after_colliding_prefixes(SIX_BITS.overriding(as_parts("labengine")))
    assert setup.watch.violations == []
    for seed in range(30):
        episode = Episode(Random(f"{seed}"), SIX_BITS.overriding(as_parts("labengine")), with_tier=False)
        for _ in episode.operations(100):
            assert episode.setup.broken_rules() <= {"duplicate"}, "a colliding hash hides a block from merging"


def test_a_short_hash_brings_wrong_kv_from_the_tier() -> None:
    """The tier knows content by its hash alone: no comparison of prefixes can help there."""
    found: set[str] = set()
    for seed in range(30):
        episode = Episode(Random(f"{seed}"), SIX_BITS.overriding(as_parts("labengine")))
        for _ in episode.operations(100):
            found |= episode.setup.broken_rules()
    assert "read" in found


class SharesTheLastBlock(KVCacheManager):
    """The table's last block belongs to another request: both write to it in turn."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        if request.request_id == 1 and request.num_generated_tokens:
            return ((0, start % group.block_size, 1),)
        return super().slot_runs(request, start, end, group)


def test_the_victim_of_a_write_is_named_and_so_is_the_writer() -> None:
    setup = watched(edition=Parts(kv_cache_manager=SharesTheLastBlock).overriding(as_parts("labengine")))
    for first in (10, 20):
        setup.add(*range(first, first + 6), max_tokens=4)
    setup.steps(3)
    victim = next(v for v in setup.watch.violations if v.rule == "read" and v.request_ids == (0,))
    assert victim.block_ids == (0,) and "for request 1 (overridden: " in victim.message


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_loads_are_read_as_ones_own(edition: str, is_late: bool) -> None:
    tier = FakeTier(Luck(), delay=1 if is_late else None)
    for _ in range(2):
        setup = watched(24, HYBRID, edition, connector=tier)
        for prompt in (range(30), range(12), (*range(20), *range(50, 60))):
            setup.add(*prompt, max_tokens=4)
            setup.run()
        assert setup.watch.check(setup.engine.snapshot()) == []
    assert tier.met["load"] >= 1


def test_the_cost_of_a_step_does_not_grow_with_what_was_read_before() -> None:
    """A decoded token compares nothing: its block was compared before, and it was just written where it is read."""
    setup = watched(64, FULL)
    setup.add(*range(100), max_tokens=20)
    setup.steps(2)
    compared = compared_entries(setup)
    setup.steps(2)
    assert compared == []
    setup.steps(3)
    assert compared == [26], "a new block"


def compared_entries(setup: Watched) -> list[int]:
    oracle = setup.watch._judge.oracle  # type: ignore[union-attr]
    compare, compared = oracle._compare, []

    def counting(part: ScheduledRequest, group: int, index: int, *others: Any) -> Any:
        compared.append(index)
        return compare(part, group, index, *others)

    oracle._compare = counting  # type: ignore[method-assign]
    return compared


def test_identities_are_many() -> None:
    """No two prefixes over two tokens share a number, nor two lengths of one token said again and again."""
    rng = Random(0)
    requests = {i: request(i, [rng.randrange(2) for _ in range(200)]) for i in range(100)}
    requests[100] = request(100, [0] * 100_000)
    identities = PrefixIdentities(requests)
    prefixes = {tuple(r.token_ids[:n]) for r in list(requests.values())[:100] for n in range(1, 201)}
    numbers = {number for i in range(100) for number in identities.up_to(i, 200)}
    assert len(numbers) == len(prefixes)
    assert len(set(identities.up_to(100, 100_000))) == 100_000
