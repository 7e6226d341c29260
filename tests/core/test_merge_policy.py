"""The hash chain, and what becomes of duplicate blocks."""

from __future__ import annotations

from array import array

import pytest

from labengine.config import SamplingParams
from labengine.core.block import Block, Prefix
from labengine.core.hash_chain import HashChain
from labengine.core.merge_policy import KeepDuplicates, LateMerge, LateMergeComparingPrefixes, MergePolicy
from labengine.core.request import ExtraKeys, Request

KEY = (0, b"hash")


def chain(*blocks: list[int], salt: str | None = None, extra_keys: ExtraKeys = ()) -> bytes:
    parent = HashChain().root(extra_keys if salt is None else (("cache_salt", salt),))
    for token_ids in blocks:
        parent = HashChain().link(parent, token_ids)
    return parent


def test_equal_chains_have_equal_hashes() -> None:
    assert chain([1, 2], [3, 4]) == chain([1, 2], [3, 4])


def test_the_prefix_is_part_of_the_name() -> None:
    assert chain([1, 2], [3, 4]) != chain([9, 9], [3, 4])
    assert chain([3, 4]) != chain([1, 2], [3, 4])


def test_where_a_block_ends_is_part_of_the_name() -> None:
    assert chain([1], [2, 3]) != chain([1, 2], [3])


def test_order_and_sign_are_part_of_the_name() -> None:
    assert chain([1, 2]) != chain([2, 1])
    assert chain([-1]) != chain([1])


def test_no_salt_can_spell_somebodys_block() -> None:
    spelled = array("q", [0, 7]).tobytes().decode()
    assert chain([5, 6], salt=spelled) != chain([0, 7], [5, 6])
    assert chain([5, 6], extra_keys=((spelled, ""),)) != chain([0, 7], [5, 6])


def test_requests_with_different_salts_share_nothing() -> None:
    hashes = {chain([1, 2], salt=salt) for salt in (None, "", "a", "b")}
    assert len(hashes) == 4
    assert chain([1, 2], salt="a") == chain([1, 2], salt="a")


def test_a_value_counts_only_in_its_domain() -> None:
    """An adapter named "x" is not the cache salt "x" (vLLM issue 44701)."""
    adapter, salt = (("adapter", "x"),), (("cache_salt", "x"),)
    assert len({chain([1], extra_keys=keys) for keys in (adapter, salt, adapter + salt, ())}) == 4


def test_no_two_lists_of_extra_keys_spell_the_same() -> None:
    lists: list[ExtraKeys] = [
        (("a", "b"), ("c", "d")),
        (("a", "b"), ("cd", "")),
        (("ab", ""), ("c", "d")),
        (("a", "bcd"),),
        (("c", "d"), ("a", "b")),
        (("", ""),),
    ]
    assert len({chain([1], extra_keys=keys) for keys in lists}) == len(lists)


def test_large_token_ids_are_hashed() -> None:
    assert chain([2**40]) != chain([0])


def request_of(*links: tuple[int, ...]) -> Request:
    """A request that has its links, as after hashing."""
    request = Request(0, [token for link in links for token in link], SamplingParams(), 0, 1)
    request.links.extend(links)
    return request


ASKING = request_of((9, 9), (1, 2))
MINE = request_of((9, 9), (1, 2)).prefix_at(1)
OTHER_TOKENS = request_of((9, 9), (5, 6)).prefix_at(1)
OTHER_PARENT = request_of((8, 8), (1, 2)).prefix_at(1)
JUST_FILLED = Block(9, 1)


def block(block_id: int, *, ref_count: int = 1, prefix: Prefix | None = MINE) -> Block:
    return Block(block_id, ref_count, (KEY,), (1, 2), prefix)


@pytest.mark.parametrize("policy", [MergePolicy(), KeepDuplicates()])
def test_without_merging_every_block_stays(policy: MergePolicy) -> None:
    assert policy.merge_target([block(0)], JUST_FILLED, ASKING, 1) is None


def test_the_map_serves_the_last_hasher_in_nano_vllm_and_the_first_in_vllm() -> None:
    assert MergePolicy().mapped_after((0,), 9) == (9,)
    assert KeepDuplicates().mapped_after((0,), 9) == (0, 9)
    assert KeepDuplicates().mapped_after((0, 9), 9) == (0, 9)


@pytest.mark.parametrize("policy", [LateMerge(), LateMergeComparingPrefixes()])
def test_late_merge_takes_the_first_live_equal_block(policy: LateMerge) -> None:
    free, live, second_live = block(0, ref_count=0), block(1), block(2)
    assert policy.merge_target([free, live, second_live], JUST_FILLED, ASKING, 1) is live


@pytest.mark.parametrize("policy", [LateMerge(), LateMergeComparingPrefixes()])
def test_late_merge_never_takes_a_free_block_or_itself(policy: LateMerge) -> None:
    assert policy.merge_target([block(0, ref_count=0)], JUST_FILLED, ASKING, 1) is None
    mine = block(9)
    assert policy.merge_target([mine], mine, ASKING, 1) is None


@pytest.mark.parametrize("policy", [LateMerge(), LateMergeComparingPrefixes()])
def test_late_merge_looks_behind_a_colliding_hash(policy: LateMerge) -> None:
    assert policy.merge_target([block(0, prefix=OTHER_TOKENS)], JUST_FILLED, ASKING, 1) is None


def test_only_the_default_compares_what_came_before() -> None:
    other = block(0, prefix=OTHER_PARENT)
    assert LateMerge().merge_target([other], JUST_FILLED, ASKING, 1) is other
    assert LateMergeComparingPrefixes().merge_target([other], JUST_FILLED, ASKING, 1) is None


@pytest.mark.parametrize(
    ("policy", "believed"),
    [
        (MergePolicy(), [MINE, OTHER_PARENT]),
        (LateMerge(), [MINE, OTHER_PARENT]),
        (LateMergeComparingPrefixes(), [MINE]),
        (KeepDuplicates(), [MINE, OTHER_PARENT, OTHER_TOKENS]),
    ],
)
def test_what_is_looked_at_behind_an_equal_hash(policy: MergePolicy, believed: list[Prefix]) -> None:
    """nano-vLLM compares the block's own tokens, vLLM nothing, the default everything."""
    prefixes = (MINE, OTHER_PARENT, OTHER_TOKENS)
    assert [prefix for prefix in prefixes if policy.is_equal(block(0, prefix=prefix), ASKING, 1)] == believed
