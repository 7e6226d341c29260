"""Results of overrides that no decision can be: refused by class and method, and the step is rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, count, repeat
from typing import Any

import pytest

from labengine import KVCacheManager, Parts, TokenBudgetScheduler
from labengine.config import shown
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.hash_chain import HashChain
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.engine.external import HostStore
from labengine.lab import Lab

RUNS: dict[str, Callable[[tuple[tuple[int, int, int], ...]], Any]] = {
    "none": lambda runs: None,
    "numbers": lambda runs: [block_id for block_id, _, _ in runs],
    "pairs": lambda runs: [run[:2] for run in runs],
    "text": lambda runs: "abc",
    "an iterator": iter,
    "fractions": lambda runs: [(float(block_id), offset, length) for block_id, offset, length in runs],
    "no length": lambda runs: [(block_id, offset, None) for block_id, offset, _ in runs],
    "a negative length": lambda runs: [(block_id, offset, -1) for block_id, offset, _ in runs],
    "more than memory": lambda runs: [(block_id, offset, 10**9) for block_id, offset, _ in runs],
    "more than tokens": lambda runs: [*runs, *[(0, 0, 0)] * 1_000],
}


def refused(parts: Parts) -> str:
    """Play a prompt twice; return what ends the second one's first step, which has changed nothing."""
    with Lab("simulated", num_blocks=8, block_size=4, parts=parts) as lab:
        lab.add(token_ids=range(9), max_tokens=1)
        before = lab.snapshot()
        try:
            lab.run()
            lab.add(token_ids=range(9), max_tokens=1)
            before = lab.snapshot()
            lab.run()
        except ValueError as error:
            assert lab.snapshot() == before
            assert lab.violations == [], "the checks have not failed"
            return str(error)
    raise AssertionError("nothing is refused")


@pytest.mark.parametrize("name", RUNS)
def test_slot_runs_of_no_use_are_refused(name: str) -> None:
    class OddRuns(KVCacheManager):
        def slot_runs(self, *arguments: Any) -> Any:
            return RUNS[name](super().slot_runs(*arguments))

    said = refused(Parts(kv_cache_manager=OddRuns))
    assert said.startswith(
        "OddRuns.slot_runs has to return a tuple of runs (block_id, offset, length) of 0 to 4 tokens"
    )


@pytest.mark.parametrize("answer", [-4, 2, None, 1.0, "4"])
def test_an_external_match_that_is_no_number_behind_the_hit_is_refused(answer: object) -> None:
    class OddMatch(TokenBudgetScheduler):
        def match_external(self, request: Request, hit: Hit) -> Any:
            return answer if hit.num_tokens else 0

    said = refused(Parts(scheduler=OddMatch))
    assert said.startswith(
        "OddMatch.match_external, or the tier that it asks, has to return 0 to 1 tokens for request 1"
    )
    assert said.endswith(f"hit of 8; it returned {answer!r}")


@pytest.mark.parametrize("answer", [17, None, "digest", (1, 2)])
def test_a_hash_that_is_no_bytes_is_refused(answer: object) -> None:
    class OddHash(HashChain):
        def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> Any:
            return answer

    said = refused(Parts(hash_chain=OddHash))
    assert said.startswith("OddHash.link has to return bytes") and said.endswith(f"it returned {answer!r}")


# -- answers without an end: as much is taken as was asked for ---------------------------------------------------------


class GuessesOn:
    """Has no end, and a wrong token behind those that were asked for."""

    num_drafts, drafter = 2, "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> Any:
        return chain(range(num_tokens), repeat("no token"))


class FreesOn(FullAttentionGroup):
    def freeing_order(self, num_entries: int) -> Any:
        return chain(super().freeing_order(num_entries), count(num_entries))


class TierGoesOn(HostStore):
    def save_kv(self, *arguments: Any) -> Any:
        return chain(super().save_kv(*arguments), repeat("no transfer"))


@pytest.mark.parametrize(
    "settings",
    [{"speculation": GuessesOn()}, {"parts": Parts(full_attention_group=FreesOn)}, {"external": TierGoesOn()}],
    ids=["proposer", "freeing order", "tier"],
)
def test_of_an_answer_without_an_end_as_much_is_taken_as_was_asked_for(settings: dict[str, Any]) -> None:
    with Lab("simulated", num_blocks=8, block_size=4, **settings) as lab:
        for _ in range(2):
            lab.add(token_ids=range(8), max_tokens=4)
            lab.run()
            lab.reset_prefix_cache()
        assert lab.check() == [] and not lab.snapshot().num_used_blocks


class LoadsOn(HostStore):
    def update_state_after_alloc(self, *arguments: Any) -> Any:
        return chain(super().update_state_after_alloc(*arguments), repeat("no transfer"))


def test_a_tier_that_loads_more_than_a_table_has_is_named() -> None:
    with Lab("simulated", num_blocks=8, block_size=4, external=LoadsOn()) as lab:
        lab.add(token_ids=range(8), max_tokens=1)
        lab.run()
        lab.reset_prefix_cache()
        lab.add(token_ids=range(8), max_tokens=1)
        with pytest.raises(ValueError, match=r"^LoadsOn.update_state_after_alloc .* entry, here 2"):
            lab.run()
        assert not lab.snapshot().num_used_blocks


def test_a_long_answer_is_cut_before_it_is_checked_and_named_by_its_class() -> None:
    class GuessesMillions:
        num_drafts, drafter = 4, "lookup"

        def propose(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[int]:
            return range(-1, 10**12)

    with Lab("simulated", num_blocks=8, block_size=4, speculation=GuessesMillions()) as lab:
        lab.add(token_ids=range(8), max_tokens=4)
        with pytest.raises(ValueError, match=r"^GuessesMillions.propose must return .*returned \[-1, 0\]: "):
            lab.run()
    assert len(shown([0] * 10**6)) < 200
