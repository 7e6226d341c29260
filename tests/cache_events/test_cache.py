from __future__ import annotations

from typing import Any

import pytest

from differential import kv_events
from kv_batches import CLEARED, payload, prefixes_of, removed, stored, streamed
from labengine.vllm.cache_events.chains import Chains
from labengine.vllm.cache_events.holdings import Presence
from labengine.vllm.cache_events.stream import EventStream, Message

CACHED, UNKNOWN, GONE = Presence.CACHED, Presence.UNKNOWN, Presence.GONE


def presence(stream: EventStream, block_hash: int, medium: str = "GPU", rank: int = 0) -> Presence | None:
    held = stream.cache.holdings.get(block_hash, {})
    return next((one.presence for place, one in held.items() if place[1:3] == (rank, (medium, None, None))), None)


@pytest.mark.parametrize("seed", kv_events.RECORDED_SEEDS)
def test_the_fold_of_the_events_is_what_vllm_had_cached(seed: int) -> None:
    comparison = kv_events.Comparison()
    truths = kv_events.read_truths()[seed]
    comparison.take(kv_events.recording(seed), truths)
    assert comparison.num_batches == len(truths) and comparison.presences[CACHED] and comparison.presences[GONE]


def test_a_second_copy_or_a_reported_hit_leave_unknown_what_one_removal_leaves() -> None:
    first, again, gone = payload(stored([1], range(4))), payload(stored([1], range(4))), payload(removed([1]))
    assert presence(streamed(first, gone), 1) is GONE
    assert presence(streamed(first, again), 1) is CACHED
    assert presence(streamed(first, again, gone), 1) is UNKNOWN
    assert presence(streamed(first, again, gone, gone), 1) is GONE


def test_a_reset_empties_the_device_of_that_rank_and_leaves_other_tiers_unknown() -> None:
    there = payload(stored([1], range(4)), stored([1], range(4), medium="CPU"))
    stream = streamed(there, payload(CLEARED))
    assert (presence(stream, 1), presence(stream, 1, "CPU")) == (GONE, UNKNOWN)
    other = EventStream(("a",))
    for number, batch in ((0, there), (0, payload(stored([1], range(4)), rank=1)), (1, payload(CLEARED))):
        other.take(Message(0, number, batch))
    assert (presence(other, 1), presence(other, 1, rank=1)) == (GONE, CACHED)


def test_contradictions_are_noted_and_the_earlier_word_stays() -> None:
    stream = streamed(
        payload(stored([1, 2], range(8))),
        payload(stored([2], range(4, 8), parent=9), stored([1], [5, 5, 5, 5]), removed([3])),
    )
    assert stream.cache.num_contradictions == 3
    first, second, third = stream.cache.contradictions
    assert "batch 1: block 00000000 is stored after 00000000, but earlier after" in first
    assert "different tokens" in second and "was removed, but it was not stored there" in third
    assert [chain.token_ids for chain in Chains(stream.cache).rows()] == [list(range(8))]


def test_a_stream_that_begins_late_knows_no_beginnings_and_expects_removals() -> None:
    prefixes = prefixes_of(payload(stored([2], range(4, 8), parent=1), removed([1, 5])), first=7)
    (chain,) = prefixes.chains()
    assert chain.is_after_unknown and not chain.is_beginning and chain.reuse.num_hits is None
    assert not prefixes.cache.contradictions and prefixes.cache.num_early_removals == 2
    text = str(prefixes)
    assert "starts with batch 7" in text and "beginning unknown" in text and "hits unknown" in text


def test_blocks_of_which_a_tier_says_the_hash_alone_are_known_by_what_the_device_said() -> None:
    bare: dict[str, Any] = {"block_size": 0, "medium": "CPU", "kv_cache_spec_kind": None}
    stream = streamed(
        payload(stored([1], [], **bare)), payload(stored([1], range(4))), payload(stored([8], [], **bare))
    )
    known, unknown = Chains(stream.cache).rows()
    assert [place.tier.medium for place, _ in known.where] == ["GPU", "CPU"] and known.token_ids == [0, 1, 2, 3]
    assert unknown.token_ids is None and unknown.is_after_unknown


def test_windows_leave_blocks_out_whose_tokens_are_then_unknown() -> None:
    window: dict[str, Any] = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}
    stream = streamed(payload(stored([3], range(12), **window)), payload(stored([1, 2, 3], range(12))))
    assert [chain.token_ids for chain in Chains(streamed(payload(stored([3], range(12), **window))).cache).rows()] == [
        None
    ]
    first, last = Chains(stream.cache).rows()
    assert (first.token_ids, last.token_ids) == ([*range(8)], [*range(8, 12)])
    assert [place.group for place, _ in last.where] == [0, 1]


def test_what_hangs_on_a_loop_is_no_part_of_it() -> None:
    tail = stored([3], [9] * 4, parent=1)
    chains = Chains(streamed(payload(tail, stored([1], range(4), parent=2), stored([2], range(4, 8), parent=1))).cache)
    assert [content.hash for content in chains.tree.loops] == [1] and len(chains.tree.order) == 3


def test_a_chain_that_leads_back_to_itself_is_shown_and_reported() -> None:
    prefixes = prefixes_of(payload(stored([1], range(4), parent=2), stored([2], range(4, 8), parent=1)))
    assert len(prefixes.chains()) == 1 and len(prefixes.chains()[0].contents) == 2
    assert "follows itself" in str(prefixes)


def test_contents_that_are_gone_are_forgotten_above_a_limit() -> None:
    batches = [payload(stored([number], range(4)), removed([number])) for number in range(20)]
    stream = streamed(*batches, payload(stored([100], range(4))), max_blocks=8)
    assert stream.cache.num_forgotten == 21 - len(stream.cache.contents) and len(stream.cache.contents) <= 9
    assert presence(stream, 100) is CACHED


def test_long_chains_take_no_recursion() -> None:
    hashes = list(range(1, 2501))
    (chain,) = prefixes_of(payload(stored(hashes, range(10_000)))).chains()
    assert len(chain.contents) == 2500
