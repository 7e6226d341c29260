"""What an answer cites is what happened: held, in random runs of small pools, against a fold event by event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from driving import ALL_EDITIONS
from labengine import events as ev
from labengine.session.settings import request_id_of
from labengine_widgets.why import Why, why
from widgets.why.busy_runs import BLOCK_SIZE, BusyRun, Truth
from widgets.why.why_runs import numbers

SEEDS = range(8)
EVICTED = re.compile(r"was evicted at event (\d+)")
BLOCK = re.compile(r"ts block (\d+) \(positions")


@cache
def run_of(edition: str, seed: int) -> tuple[BusyRun, Truth]:
    """Return a run and what happened in it: the tests ask of the same ones."""
    run = BusyRun(edition, seed)
    return run, Truth(run.complete)


def cited(reply: Why) -> list[int]:
    """The evictions that an answer names."""
    return [int(number) for number in EVICTED.findall(reply.answer)]


def linked(reply: Why, truth: Truth) -> list[int]:
    """The evictions among its links."""
    return [n for n in numbers(reply) if n is not None and isinstance(truth.events[n], ev.BlockEvicted)]


def lookups(run: BusyRun, truth: Truth) -> Iterator[tuple[int, ev.PrefixHit, Why]]:
    """Every look-up, and why it hit no more, asked just after it."""
    for number, event in enumerate(truth.events):
        if isinstance(event, ev.PrefixHit):
            subject = {"request": event.request_id, "about": "hit"}
            yield number, event, why(run.complete, subject, number + 1)


@pytest.mark.parametrize("edition", ALL_EDITIONS)
def test_the_eviction_of_a_miss_is_the_one_that_took_the_key_out_of_the_map(edition: str) -> None:
    num_cited = num_reused_since = 0
    for seed in SEEDS:
        run, truth = run_of(edition, seed)
        for number, event, reply in lookups(run, truth):
            if not (place := BLOCK.search(reply.answer)):
                continue
            tokens = run.complete.state(number).requests[event.request_id].token_ids
            prefix = tuple(tokens[: (int(place[1]) + 1) * BLOCK_SIZE])
            key = truth.keys.get(prefix)
            left = None if key is None or key in truth.maps[number] else truth.left_at(key, number)
            if left is None:
                assert not cited(reply), (seed, number, reply)
                continue
            assert cited(reply) == linked(reply, truth) == [left], (seed, number, left, reply)
            num_cited += 1
            again = truth.events[left + 1 : number]
            block = truth.events[left].block_id  # type: ignore[attr-defined]  # an eviction
            num_reused_since += any(isinstance(e, ev.BlockEvicted) and e.block_id == block for e in again)
    assert num_cited > 10 and num_reused_since > 5, "the runs must have what this test is about"


@pytest.mark.parametrize("edition", ALL_EDITIONS)
def test_what_the_map_forgot_was_taken_out_of_it_at_that_event(edition: str) -> None:
    num_cited = 0
    for seed in SEEDS:
        run, truth = run_of(edition, seed)
        moment = run.complete.end
        for group, block_hash in set().union(*truth.maps) - set(truth.maps[-1]):
            reply = why(run.complete, {"hash": f"{group}:{block_hash.hex()}"})
            left = truth.left_at((group, block_hash), moment)
            assert cited(reply) == ([] if left is None else [left]), (seed, reply)
            num_cited += bool(cited(reply))
    assert num_cited > 20


def lost_blocks(run: BusyRun) -> Iterator[tuple[int, int]]:
    """(moment, block) at the end of every step: alive, hashed, and nowhere in the map."""
    for moment, event in enumerate(run.complete.events(), 1):
        if not isinstance(event, ev.StepEnded):
            continue
        state = run.complete.state(moment)
        mapped = {block_id for ids in state.prefix_map.values() for block_id in ids}
        for block_id, keys in enumerate(state.block_keys):
            if state.ref_counts[block_id] and keys and block_id not in mapped:
                yield moment, block_id


def test_a_lost_block_names_what_took_its_entry_and_what_became_of_it() -> None:
    num_gone = num_taken = 0
    for seed in range(12):
        run, truth = run_of("nano-vllm", seed)
        for moment, block_id in lost_blocks(run):
            [key] = run.complete.state(moment).block_keys[block_id]
            reply = why(run.complete, {"block": block_id, "about": "lost"}, moment)
            taken = next(n for n in range(moment - 1, -1, -1) if block_id in truth.maps[n].get(key, ()))
            taker = truth.events[taken]
            assert isinstance(taker, ev.BlockCached) and taken in numbers(reply)
            assert f"and #{taker.block_id} overwrote the map's entry." in reply.answer, (seed, moment, reply)
            is_gone = key not in truth.maps[moment]
            assert ("gone altogether" in reply.answer) == is_gone, (seed, moment, reply)
            assert not is_gone or linked(reply, truth)[-1] == truth.left_at(key, moment), (seed, moment, reply)
            for number in linked(reply, truth):
                assert truth.events[number].block_id in truth.maps[number].get(key, ())  # type: ignore[attr-defined]
            num_gone, num_taken = num_gone + is_gone, num_taken + (not is_gone)
    assert num_gone > 3 and num_taken > 10


SHARE = re.compile(r"belongs to ([A-Z]+), but \1 has not computed all of it yet: (\d+) of 4 tokens after this step")
NOW = re.compile(r"was to be computed by ([A-Z]+) in this very step")


@pytest.mark.parametrize("edition", ALL_EDITIONS)
def test_who_computes_a_block_in_this_step_and_how_much_of_it(edition: str) -> None:
    num_shares = num_now = 0
    for seed in (2, 5):  # few look-ups miss so
        run, truth = run_of(edition, seed)
        for number, _, reply in lookups(run, truth):
            share, now, place = (form.search(reply.answer) for form in (SHARE, NOW, BLOCK))
            found = share or now
            if not place or not found:
                continue
            step = truth.events[number:]
            end = next(n for n, e in enumerate(step) if isinstance(e, (ev.StepEnded, ev.StepRolledBack)))
            request = run.complete.state(number + end).requests[request_id_of(found[1])]
            if isinstance(step[end], ev.StepRolledBack) or request.status in ("finished", "preempted"):
                continue
            have = request.num_computed_tokens - int(place[1]) * BLOCK_SIZE
            assert have >= BLOCK_SIZE if share is None else max(0, have) == int(share[2]), (seed, number, reply)
            num_shares, num_now = num_shares + bool(share), num_now + bool(now)
    has_tree = "sglang" in edition or "radix" in edition  # whole prompts of a step are looked up before any has blocks
    assert num_shares + num_now > 0 or has_tree, "the runs must have them"
    assert num_shares > 3 or edition.startswith("nano") or has_tree
