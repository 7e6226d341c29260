"""Random workloads: every token has one cause, and causes hold when the same requests run on a larger pool."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

import labengine
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.events import PrefixHit
from labengine.lab import Lab
from labengine.prefix_doctor.diagnosis import Diagnosis
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.sums import Sums
from recorded_engines import diagnosis_without_runs, recorded_engine

LAYOUTS = {
    "full": [GroupSpec(4, "full")],
    "hybrid": [GroupSpec(4, "full"), GroupSpec(4, "sliding_window", 6)],
    "sizes": [GroupSpec(8, "full"), GroupSpec(4, "sliding_window", 9)],
    "narrow": [GroupSpec(4, "full"), GroupSpec(4, "sliding_window", 1)],
    "windows": [GroupSpec(4, "sliding_window", 6), GroupSpec(4, "sliding_window", 12)],
}
EDITIONS = {"labengine": LAYOUTS, "vllm": LAYOUTS, "nano-vllm": ["full"], "nano-vllm+243": ["full"]}
CASES = [(edition, layout) for edition, layouts in EDITIONS.items() for layout in layouts]

SEEDS = [pytest.param(range(2), id="two"), pytest.param(range(2, 200), id="many", marks=pytest.mark.sweep)]

ENOUGH = 400
"""Blocks in which nothing of a workload is evicted."""


def prompts_of(rng: Random, number: int) -> list[list[int]]:
    """Prompts that begin like earlier ones, and part from them at any token."""
    found: list[list[int]] = []
    for i in range(number):
        begin = list(rng.choice(found))[: rng.randrange(30)] if found and rng.random() < 0.8 else []
        found.append([*begin, *(100 * i + j for j in range(rng.randrange(1, 12)))])
    return found


def lab_of(edition: str, layout: str, num_blocks: int) -> Lab:
    settings = {"max_num_seqs": 3, "max_num_batched_tokens": 64, "check": False}
    return labengine.Lab("simulated", num_blocks=num_blocks, groups=LAYOUTS[layout], edition=edition, **settings)  # type: ignore[arg-type]


def judged(lab: Lab) -> Diagnosis:
    """Return a lab's diagnosis, of which every token has one cause."""
    found = diagnosis_without_runs(lab)
    assert lab.timeline is not None
    hits = [event.num_tokens for event in lab.timeline.of_kind(PrefixHit)]
    assert [one.num_hit for one in found.look_ups] == hits
    for one in found.look_ups:
        places = [(miss.start, miss.end) for miss in one.misses]
        assert all(start < end for start, end in places)
        assert [one.num_hit, *(end for _, end in places)] == [*(start for start, _ in places), one.num_tokens]
    sums = found.sums
    assert sums.num_hit + sum(sums.missed.values()) == sums.num_tokens
    return found


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("edition", "layout"), CASES)
def test_every_token_has_one_cause_and_the_engine_hits_all_that_is_there(
    edition: str, layout: str, seeds: range
) -> None:
    """That nothing is passed over says that the doctor's rule for a hit is the engine's own."""
    for seed in seeds:
        rng, lab = Random(f"{edition} {layout} {seed}"), lab_of(edition, layout, 12 * len(LAYOUTS[layout]))
        for i, token_ids in enumerate(prompts_of(rng, 12)):
            lab.add(token_ids=token_ids, max_tokens=rng.randrange(1, 8), cache_salt=rng.choice((None, None, "s")))
            if rng.random() < 0.1:
                lab.abort(i)
            for _ in range(rng.randrange(3)):
                lab.step()
            if rng.random() < 0.1:
                lab.reset_prefix_cache()
        lab.run()
        found = judged(lab)
        assert not {"passed_over", "unknown"} & found.sums.missed.keys(), found
        assert found.sums.num_tokens == sum(
            lab.snapshot().requests[one.request_id].num_prompt_tokens for one in found.look_ups if one.is_first
        )


def without_tokens(recording: RecordedEngine) -> RecordedEngine:
    """Return the recording as LABENGINE_TAP_TOKENS=0 leaves it: numbers of tokens, and hashes."""
    hidden = list[ev.Event]()
    for event in recording.events:
        if isinstance(event, ev.RequestAdded):
            event = replace(event, token_ids=(ev.UNKNOWN_TOKEN,) * len(event.token_ids))
        hidden.append(replace(event, token_id=ev.UNKNOWN_TOKEN) if isinstance(event, ev.TokenSampled) else event)
    return replace(recording, events=hidden)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("edition", "layout"), CASES)
def test_hashes_alone_show_what_was_evicted(edition: str, layout: str, seeds: range) -> None:
    for seed in seeds:
        rng, lab = Random(f"{edition} {layout} {seed}"), lab_of(edition, layout, 12 * len(LAYOUTS[layout]))
        for token_ids in prompts_of(rng, 12):
            lab.generate([token_ids], max_tokens=rng.randrange(1, 8), cache_salt=rng.choice((None, "s")))
        recording = recorded_engine(lab)
        known, hidden = (Sums.of(examine(one).look_ups) for one in (recording, without_tokens(recording)))
        assert hidden.num_hit == known.num_hit
        assert hidden.num_hit + sum(hidden.missed.values()) == hidden.num_tokens
        for cause in ("evicted", "passed_over", "unknown", "tail"):
            assert hidden.missed.get(cause) == known.missed.get(cause), (cause, known, hidden)
        assert not {"other_salt", "short_of_a_block"} & hidden.missed.keys()


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("edition", "layout"), CASES)
def test_what_was_evicted_is_hit_in_a_pool_that_is_large_enough_and_nothing_else(
    edition: str, layout: str, seeds: range
) -> None:
    """One request at a time, so that a larger pool changes nothing but what stays cached."""
    num_evicted = 0
    for seed in seeds:
        prompts = prompts_of(Random(f"{edition} {layout} {seed}"), 14)
        found = []
        for num_blocks in (12 * len(LAYOUTS[layout]), ENOUGH):
            lab = lab_of(edition, layout, num_blocks)
            for token_ids in prompts:
                lab.generate([token_ids], max_tokens=3)
            found.append(judged(lab))
        small, large = found
        assert "evicted" not in large.sums.missed
        for one, other in zip(small.look_ups, large.look_ups, strict=True):
            lost = sum(miss.num_tokens for miss in one.misses if miss.cause == "evicted")
            assert other.num_hit == one.num_hit + lost, (one, other)
        num_evicted += small.sums.missed.get("evicted", 0)
    if layout == "narrow":  # none of its window's blocks is worth caching, and so nothing is ever hit or evicted
        assert num_evicted == large.sums.num_hit == 0
    else:
        assert num_evicted or len(seeds) < 3, "the pool is too large for this test"
