from __future__ import annotations

from typing import Any

from kv_batches import payload, prefixes_of, removed, stored
from labengine.vllm.cache_events.holdings import Holding
from labengine.vllm.cache_events.stream import Message

PREFIX = stored([1, 2], range(8))


def hits(*batches: bytes, first: int = 0) -> dict[Any, int | None]:
    chains = prefixes_of(*batches, first=first).chains()
    return {content.hash: chain.reuse.num_hits for chain in chains for content in chain.contents}


def test_a_block_that_is_gone_does_not_go_again() -> None:
    holding = Holding()
    holding.store(1.0)
    holding.vanish(2.0)
    holding.vanish(3.0)
    assert holding.last_removed == 2.0


def tail(block_hash: int, **others: Any) -> dict[str, Any]:
    return stored([block_hash], [block_hash] * 4, parent=2, **others)


def test_who_stores_what_follows_a_block_without_storing_it_has_hit_it() -> None:
    assert hits(payload(PREFIX, tail(3))) == {1: 0, 2: 0, 3: 0}
    assert hits(payload(PREFIX, tail(3)), payload(tail(4)), payload(tail(5))) == {1: 2, 2: 2, 3: 0, 4: 0, 5: 0}


def test_who_computed_the_block_again_has_not_hit_it() -> None:
    again = stored([2], range(4, 8), parent=1)
    assert hits(payload(PREFIX, tail(3)), payload(again, tail(4))) == {1: 1, 2: 0, 3: 0, 4: 0}


def test_hits_after_an_eviction_count_with_those_before() -> None:
    assert hits(payload(PREFIX, tail(3)), payload(tail(4)), payload(removed([4]), tail(4)))[2] == 2


def test_hits_are_unknown_after_a_late_start_and_where_duplicates_are_left_out() -> None:
    assert set(hits(payload(PREFIX, tail(3)), payload(tail(4)), first=3).values()) == {None}
    sglang = {"kv_cache_spec_kind": None, "group_idx": None}
    assert set(hits(payload({**PREFIX, **sglang}, tail(3, **sglang)), payload(tail(4, **sglang))).values()) == {None}
    text = str(prefixes_of(payload({**PREFIX, **sglang})))
    assert "hits are unknown: the engine does not say that it reports each request's blocks" in text


def test_hits_are_unknown_where_blocks_were_stored_that_are_not_full() -> None:
    assert set(hits(payload(PREFIX), payload(stored([9], [1, 2], parent=2, block_size=2))).values()) == {None}


def test_uses_of_two_ranks_add_up() -> None:
    stream = prefixes_of(payload(PREFIX, tail(3)), payload(tail(4)))
    before = stream.chains()[0].reuse
    for number, events in enumerate(([PREFIX, tail(3)], [tail(5)])):
        stream.stream.take(Message(0, number, payload(*events, rank=1)))
    after = stream.chains()[0].reuse
    assert (before.num_stored, before.num_uses, before.num_hits) == (1, 2, 1)
    assert (after.num_stored, after.num_uses, after.num_hits) == (2, 4, 2)
