"""Beam search: the beams of a search are forks, which go on, are replaced and end together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import pytest

from check.watched import HYBRID, Watched, watched
from driving import difference, queues
from labengine import events as ev
from labengine.config import ConfigError, GroupSpec, SamplingParams
from labengine.core.beam_searches import BeamSearches
from labengine.core.beams import BeamDecision, BeamPolicy, BeamSearch, EndedText
from labengine.core.parts import Parts
from labengine.core.proposer import NGram
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.session.history.broken_steps import break_off_step_at

PROMPT = (1, 2, 3, 4, 5, 6)
"""One full block and a tail of two tokens."""


def texts(setup: Watched, ids: list[int]) -> list[list[int]]:
    requests = [setup.engine.requests[i] for i in ids]
    return [request.token_ids[request.num_prompt_tokens :] for request in requests]


# -- the rules ---------------------------------------------------------------------------------------------------------


def never(token_id: int, index: int) -> None:
    return None


def test_the_best_continuations_of_all_beams_go_on() -> None:
    search = BeamSearch((7, 8), {7: log(0.6), 8: log(0.4)})
    for beam, chances in ((7, (0.5, 0.4)), (8, (0.9, 0.05))):
        search = search.noted(beam, tuple((10 * beam + i, log(chance)) for i, chance in enumerate(chances)))
    after, going_on, is_over = BeamPolicy().decide(search, {7: (1,), 8: (2,)}, never, 0)
    assert [(one.parent_id, one.token_id) for one in going_on] == [(8, 80), (7, 70)]
    assert going_on[0].score == pytest.approx(log(0.36)) and not is_over and not after.likeliest


def test_a_text_ends_only_from_among_the_best() -> None:
    """Behind the first num_beams places a token that ends a text is passed over."""
    chances = (0.4, 0.3, 0.2, 0.1)
    search = BeamSearch((0, 1), {0: 0.0}).noted(0, tuple((i, log(chance)) for i, chance in enumerate(chances)))
    after, going_on, _ = BeamPolicy().decide(search, {0: ()}, lambda token, _: "stop" if token in (1, 2) else None, 1)
    assert [text.token_ids for text in after.ended] == [(1,)]
    assert [one.token_id for one in going_on] == [0, 3]


@pytest.mark.parametrize(("best", "is_over"), [(-1.9, False), (-2.1, True)])
def test_a_search_is_over_when_no_beam_beats_the_texts_that_have_ended(best: float, is_over: bool) -> None:
    ended = (EndedText((1,), -0.5, "stop"), EndedText((2,), -1.0, "stop"))
    assert BeamPolicy().is_over(BeamSearch((0, 1), {}, {}, ended), best, 2) is is_over


# -- requests and blocks -----------------------------------------------------------------------------------------------


def test_the_first_step_computes_the_prompt_once_and_the_beams_share_its_blocks() -> None:
    setup = watched()
    ids = setup.search(*PROMPT, beams=3, max_tokens=6)
    report = setup.engine.step()
    assert report.scheduled == {ids[0]: 6} and [*report.sampled] == ids and len(set(report.sampled.values())) == 3
    assert all(setup.engine.requests[i].block_tables == [[0, 1]] for i in ids)
    setup.assert_clean()


def test_a_beam_that_does_not_go_on_gives_its_references_back_and_shares_anothers_blocks() -> None:
    setup = watched(24)
    setup.search(*PROMPT, beams=3, max_tokens=7)
    while not setup.timeline.of_kind(ev.BeamReplaced):
        setup.engine.step()
    events = setup.timeline.events()
    (place, replaced), *_ = ((n, event) for n, event in enumerate(events) if isinstance(event, ev.BeamReplaced))
    assert isinstance(events[place - 1], ev.BlockFreed) and events[place - 1].reason == "pruned"
    forked = events[place + 1]
    assert isinstance(forked, ev.RequestForked) and forked.from_request_id == replaced.from_request_id
    beam, parent = (setup.engine.requests[i] for i in (replaced.request_id, forked.from_request_id))
    assert beam.block_tables == parent.block_tables and beam.token_ids[:-1] == parent.token_ids[:-1]
    setup.assert_clean()
    setup.run()
    setup.assert_clean()
    assert setup.engine.num_used_blocks == 0


def undisturbed(max_tokens: int = 9, groups: object = None) -> list[list[int]]:
    setup = watched(60) if groups is None else watched(60, HYBRID)
    ids = setup.search(*PROMPT, beams=4, max_tokens=max_tokens)
    setup.run()
    return texts(setup, ids)


@pytest.mark.parametrize("num_blocks", [4, 5, 6, 8])
@pytest.mark.parametrize("max_num_seqs", [4, 16])
def test_texts_are_the_same_in_a_small_pool(num_blocks: int, max_num_seqs: int) -> None:
    """4 blocks hold one beam at a time: a beam that is computed keeps what may follow, and gives its blocks up."""
    setup = watched(num_blocks, max_num_seqs=max_num_seqs, budget=5)
    ids = setup.search(*PROMPT, beams=4, max_tokens=9)
    others = [setup.add(*range(20, 23 + i), max_tokens=5) for i in range(3)]
    steps = 0
    while setup.engine.step():
        steps += 1
        assert steps < 500, queues(setup.engine)
        setup.assert_clean()
    assert setup.engine.scheduler.is_idle and setup.timeline.of_kind(ev.RequestPreempted)
    assert texts(setup, ids) == undisturbed()
    assert all(len(text) == 5 for text in texts(setup, others))


def test_in_window_groups_texts_are_the_same() -> None:
    setup = watched(20, HYBRID)
    ids = setup.search(*PROMPT, beams=4, max_tokens=20)
    setup.run()
    setup.assert_clean()
    assert texts(setup, ids) == undisturbed(20)


def _known(snapshot: Snapshot) -> Snapshot:
    """Return what a rollback gives back: all but the cached content of blocks that the step has written."""
    blocks = tuple(replace(block, grouped_hashes=(), token_ids=()) for block in snapshot.blocks)
    return replace(snapshot, blocks=blocks, prefix_map={}, cached_free=())


def test_a_beam_that_lacks_a_block_takes_it_from_those_that_wait_for_it() -> None:
    """It would preempt itself for ever: each time it is admitted with three of the four blocks that it needs."""
    groups, chunk = [GroupSpec(8, "state")], {"long_prefill_token_threshold": 8, "retention_interval": 0}
    setup = watched(6, groups, max_num_seqs=2, budget=24, proposer=NGram(2), **chunk)
    _, second = setup.search(*range(20), beams=2, max_tokens=8)
    setup.steps(3)
    setup.engine.scheduler.preempt(setup.engine.requests[second])
    setup.steps(60)
    assert not setup.engine.step()
    setup.assert_clean()


def test_every_step_can_be_broken_off_anywhere_and_taken_again() -> None:
    """A rollback gives a beam its tokens, its blocks and its scores back."""
    num_broken = 0
    for kind in (ev.BeamReplaced, ev.TokenSampled, ev.BlockFreed, ev.RequestForked, ev.RequestFinished):
        setup = watched(24)
        ids = setup.search(*PROMPT, beams=4, max_tokens=9)
        while not setup.engine.scheduler.is_idle:
            for number in (1, 2, 3):
                before, queued = setup.engine.snapshot(), queues(setup.engine)
                break_off_step_at(setup.engine, (kind.__name__, number))
                if setup.engine.step_number == before.step:
                    num_broken += 1
                    assert difference(_known(setup.engine.snapshot()), _known(before)) is None
                    assert queues(setup.engine) == queued
                setup.assert_clean()
            setup.engine.step()
        assert texts(setup, ids) == undisturbed()
    assert num_broken > 20


def test_an_abort_of_a_beam_ends_its_search() -> None:
    for num_steps in (0, 1, 2, 5):
        for wanted in range(3):
            setup = watched(8, budget=4)
            ids = setup.search(*PROMPT, beams=3, max_tokens=9)
            other = setup.add(50, max_tokens=2)
            setup.steps(num_steps)
            assert setup.engine.abort(ids[wanted])
            assert [setup.engine.requests[i].finish_reason for i in ids] == ["abort"] * 3
            setup.assert_clean()
            setup.run()
            assert setup.engine.requests[other].finish_reason == "length" and setup.engine.num_used_blocks == 0
            beams = setup.engine.scheduler.beams
            assert beams is not None and not any(beams.search_of(one) for one in setup.engine.requests.values())


def test_a_beam_cannot_be_branched() -> None:
    setup = watched()
    setup.search(*PROMPT, beams=2, max_tokens=9)
    setup.engine.step()
    with pytest.raises(ConfigError, match="B is a beam"):
        setup.engine.branch(1)


@pytest.mark.parametrize(
    ("sampling", "why"),
    [
        ({"beams": 0}, "beams must be at least 1"),
        ({"beams": 2, "temperature": 0.5}, "omit temperature"),
        ({"beams": 2, "top_k": 5}, "omit top_k"),
        ({"beams": 2, "seed": 0}, "omit seed"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused(sampling: dict[str, float], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SamplingParams(**sampling)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("edition", "why"),
    [
        ("labengine", "beams=5: the beams of a search run together, but max_num_seqs is 4"),
        ("vllm", "edition 'vllm' has no beam search"),
        ("nano-vllm", "this edition has no beam search"),
    ],
)
def test_an_edition_refuses_what_it_lacks(edition: str, why: str) -> None:
    setup = watched(edition=edition, max_num_seqs=4)
    with pytest.raises(ConfigError, match=why):
        setup.add(*PROMPT, beams=5)
    assert not setup.engine.requests


WRONG: dict[str, tuple[Callable[[BeamDecision], Any], str]] = {
    "nothing": (lambda decision: None, "must return a BeamDecision; it returned None"),
    "no beams": (lambda decision: decision._replace(going_on=()), "1 to 2 beams; it continued 0"),
    "too many": (lambda decision: decision._replace(going_on=decision.going_on * 2), "2 beams; it continued 4"),
    "over": (
        lambda decision: decision._replace(is_over=True),
        "2 beams only once as many texts have ended, not after 0",
    ),
    "a stranger": (
        lambda decision: decision._replace(going_on=(decision.going_on[0]._replace(parent_id=9),)),
        "gave request 9 token",
    ),
    "a token": (
        lambda decision: decision._replace(going_on=(decision.going_on[0]._replace(token_id=-1),)),
        "gave request 0 token -1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_decision_that_cannot_be_carried_out_is_refused(name: str) -> None:
    wrong, says = WRONG[name]

    class Odd(BeamPolicy):
        def decide(self, *arguments: Any) -> Any:
            return wrong(super().decide(*arguments))

    class Searches(BeamSearches):
        policy = Odd

    with Lab("simulated", num_blocks=8, block_size=4, parts=Parts(beams=Searches)) as lab:
        lab.add(token_ids=PROMPT, beams=2, max_tokens=4)
        before = lab.snapshot()
        with pytest.raises(ValueError, match=re.escape(says)) as refused:
            lab.step()
        assert str(refused.value).startswith("Odd.decide ")
        assert difference(lab.snapshot(), before) is None and lab.check() == []
