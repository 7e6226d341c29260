"""The hash chain, the prefix map, and what becomes of duplicate blocks."""

from __future__ import annotations

from array import array

import pytest

from labengine.core.block import Block
from labengine.core.journal import Journal
from labengine.core.prefix_cache import HashChain, LateMerge, LateMergeComparingParents, MergePolicy, PrefixMap

KEY = (0, b"hash")


def chain(*blocks: list[int], salt: str | None = None) -> bytes:
    parent = HashChain().root(salt)
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


def test_salts_keep_requests_apart() -> None:
    hashes = {chain([1, 2], salt=salt) for salt in (None, "", "a", "b")}
    assert len(hashes) == 4
    assert chain([1, 2], salt="a") == chain([1, 2], salt="a")


def test_large_token_ids_are_hashed() -> None:
    assert chain([2**40]) != chain([0])


def test_an_empty_entry_is_no_entry() -> None:
    prefix_map = PrefixMap(Journal())
    prefix_map.set(KEY, (3, 1))
    assert prefix_map.get(KEY) == (3, 1)
    prefix_map.set(KEY, ())
    assert (prefix_map.get(KEY), list(prefix_map.items())) == ((), [])


def test_entries_come_back_on_rollback() -> None:
    journal = Journal()
    prefix_map = PrefixMap(journal)
    prefix_map.set(KEY, (3,))
    journal.open()
    prefix_map.set(KEY, ())
    prefix_map.set((1, b"new"), (4,))
    journal.rollback()
    assert dict(prefix_map.items()) == {KEY: (3,)}


def block(block_id: int, *, ref_count: int = 1, token_ids: tuple[int, ...] = (1, 2), parent: bytes = b"p") -> Block:
    return Block(block_id, ref_count, (KEY,), token_ids, parent)


MINE = block(9)


def test_without_merging_the_last_hasher_wins() -> None:
    assert MergePolicy().merge_target([block(0)], MINE, (1, 2), b"p") is None
    assert MergePolicy().mapped_after((0,), 9) == (9,)


@pytest.mark.parametrize("policy", [LateMerge(), LateMergeComparingParents()])
def test_late_merge_takes_the_first_live_equal_block(policy: LateMerge) -> None:
    free, live, later = block(0, ref_count=0), block(1), block(2)
    assert policy.merge_target([free, live, later], MINE, (1, 2), b"p") is live


@pytest.mark.parametrize("policy", [LateMerge(), LateMergeComparingParents()])
def test_late_merge_never_takes_a_free_block_or_itself(policy: LateMerge) -> None:
    assert policy.merge_target([block(0, ref_count=0)], MINE, (1, 2), b"p") is None
    assert policy.merge_target([MINE], MINE, (1, 2), b"p") is None


@pytest.mark.parametrize("policy", [LateMerge(), LateMergeComparingParents()])
def test_late_merge_looks_behind_a_colliding_hash(policy: LateMerge) -> None:
    assert policy.merge_target([block(0, token_ids=(5, 6))], MINE, (1, 2), b"p") is None


def test_only_the_default_compares_parents() -> None:
    other = block(0, parent=b"another")
    assert LateMerge().merge_target([other], MINE, (1, 2), b"p") is other
    assert LateMergeComparingParents().merge_target([other], MINE, (1, 2), b"p") is None
