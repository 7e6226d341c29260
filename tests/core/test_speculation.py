"""Speculation: guesses computed in one forward pass; the tokens are those without, and no guess is ever relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest

from check.watched import HYBRID, Watched, watched
from driving import recorded, small_engine
from labengine import events as ev
from labengine.config import ConfigError, GroupSpec, SamplingParams
from labengine.core.drafts import Drafts
from labengine.core.editions import LABENGINE
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.parts import Parts
from labengine.core.proposer import FixedDrafts, NGram
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest
from random_cases import for_random

PROMPT = (1, 2, 3, 4, 5, 6)


def token(request_id: int, position: int) -> int:
    return 100 + position


def text(*wrong: int, length: int = 64) -> tuple[int, ...]:
    """The tokens of every request of `token`, other ones at the wrong positions."""
    right = [*PROMPT, *(token(0, position) for position in range(len(PROMPT), length))]
    return tuple(50 if position in wrong else right[position] for position in range(length))


def guessing(*wrong: int, num_drafts: int = 4, **settings: object) -> Watched:
    proposer = FixedDrafts(text(*wrong), num_drafts)
    return watched(next_token=token, proposer=proposer, **settings)  # type: ignore[arg-type]


def test_a_step_yields_the_accepted_drafts_and_one_token_more() -> None:
    setup = guessing(9)
    setup.add(*PROMPT, max_tokens=12)
    assert setup.engine.step().sampled == {0: (106,)}
    report = setup.engine.step()
    assert (report.scheduled, report.drafted, report.accepted) == ({0: 5}, {0: 4}, {0: 2})
    assert report.sampled == {0: (107, 108, 109)}
    request = setup.engine.requests[0]
    assert (request.num_tokens, request.num_computed_tokens) == (10, 9), "the token that was sampled last has no KV"
    assert request.block_tables == [[0, 1, 2]], "the rejected drafts' slots stay in the table"
    assert setup.engine.step().accepted == {0: 4}
    setup.assert_clean()
    setup.run()
    assert setup.engine.requests[0].token_ids == list(text(length=18))
    setup.assert_clean()


def test_drafts_are_part_of_the_state_before_they_are_judged() -> None:
    setup = guessing(8)
    setup.add(*PROMPT, max_tokens=12)
    setup.engine.step()
    assert setup.engine.snapshot().requests[0].drafts == (107, 50, 109, 110)
    assert setup.engine.snapshot().to_dict()["requests"]["0"]["drafts"] == [107, 50, 109, 110]
    events = recorded(setup.engine.hooks)
    setup.engine.step()
    wanted = (ev.RequestScheduled, ev.DraftsJudged, ev.TokenSampled, ev.TokensComputed, ev.TokensDrafted)
    assert [event for event in events if isinstance(event, wanted)] == [
        ev.RequestScheduled(0, 6, 5, is_prefill=False, status="running", num_drafts=4),
        ev.DraftsJudged(0, 1, 3),
        ev.TokenSampled(0, 107, 7),
        ev.TokenSampled(0, 108, 8),
        ev.TokensComputed(0, 8),
        ev.TokensDrafted(0, (109, 110, 111, 112)),
    ]
    setup.run()
    assert "drafts" not in setup.engine.snapshot().to_dict()["requests"]["0"]


def test_only_blocks_of_known_tokens_are_registered() -> None:
    """The block that drafts fill is registered once all its tokens are accepted."""
    setup = guessing(11)
    setup.add(*PROMPT, max_tokens=12)
    setup.engine.step()
    setup.engine.step()
    pool, request = setup.engine.scheduler.manager.pool, setup.engine.requests[0]
    assert request.num_computed_tokens == 11 and request.block_tables == [[0, 1, 2]]
    assert [pool.blocks[i].token_ids for i in (0, 1, 2)] == [(1, 2, 3, 4), (5, 6, 106, 107), ()]
    setup.engine.step()
    assert pool.blocks[2].token_ids == (108, 109, 110, 111)
    setup.assert_clean()


@pytest.mark.parametrize("max_tokens", (1, 2, 5, 6, 11))
def test_no_draft_goes_beyond_max_tokens(max_tokens: int) -> None:
    setup = guessing()
    setup.add(*PROMPT, max_tokens=max_tokens)
    while report := setup.engine.step():
        assert sum(report.scheduled.values()) <= max_tokens + len(PROMPT)
        assert setup.engine.num_used_blocks <= -(-(len(PROMPT) + max_tokens - 1) // 4)
    request = setup.engine.requests[0]
    assert (request.num_generated_tokens, request.finish_reason) == (max_tokens, "length")
    setup.assert_clean()


def test_an_end_of_text_among_the_drafts_ends_the_request_there() -> None:
    engine = small_engine(eos=frozenset({108}), next_token=token, proposer=FixedDrafts(text()))
    engine.add(PROMPT, SamplingParams(max_tokens=20))
    engine.step()
    report = engine.step()
    assert (report.finished, report.accepted, report.sampled) == ((0,), {0: 4}, {0: (107, 108)})
    assert engine.requests[0].token_ids == [*PROMPT, 106, 107, 108]
    assert engine.requests[0].finish_reason == "stop"


def test_drafts_take_of_the_budget_and_are_cut_to_it() -> None:
    setup = guessing(budget=9)
    for _ in range(2):
        setup.add(*PROMPT, max_tokens=20)
    reports = [setup.engine.step() for _ in range(3)]
    assert [report.scheduled for report in reports] == [{0: 6, 1: 3}, {0: 5, 1: 3}, {0: 5, 1: 4}]
    assert reports[2].drafted == {0: 4, 1: 3}, "the fourth draft of request 1 has no room"
    setup.run()
    setup.assert_clean()


def test_a_draft_preempts_nobody() -> None:
    """vLLM preempts for drafts' blocks; here those that have no block are dropped."""
    setup = guessing(num_blocks=5)
    for _ in range(2):
        setup.add(*PROMPT, max_tokens=3)
    setup.add(*PROMPT, max_tokens=9)
    setup.run()
    assert not setup.timeline.of_kind(ev.RequestPreempted)
    assert {len(request.token_ids) for request in setup.engine.requests.values()} == {9, 15}
    setup.assert_clean()


def test_a_preempted_request_loses_its_drafts_and_keeps_its_tokens() -> None:
    setup = guessing(num_blocks=6)
    for _ in range(3):
        setup.add(*PROMPT, max_tokens=12)
    events = recorded(setup.engine.hooks)
    setup.run()
    assert any(isinstance(event, ev.RequestPreempted) for event in events)
    assert all(request.token_ids == list(text(length=18)) for request in setup.engine.requests.values())
    setup.assert_clean()


def test_siblings_share_blocks_and_no_drafts() -> None:
    setup = guessing(9, 13)
    leader = setup.add(*PROMPT, max_tokens=12)
    setup.add(*PROMPT, max_tokens=12, leader_id=leader)
    setup.engine.step()
    branch = setup.engine.branch(leader)
    assert setup.engine.requests[leader].drafts and setup.engine.requests[branch].drafts == ()
    setup.engine.step()
    assert setup.timeline.of_kind(ev.BlockCopied)
    setup.assert_clean()
    setup.run()
    assert {tuple(request.token_ids) for request in setup.engine.requests.values()} == {text(length=18)}
    setup.assert_clean()


@pytest.mark.parametrize("phase", ["schedule", "forward", "sample"])
def test_a_step_that_is_broken_off_leaves_the_drafts_as_they_were(phase: str) -> None:
    setup = guessing(9)
    setup.add(*PROMPT, max_tokens=12)
    setup.steps(2)
    before = setup.engine.snapshot()
    phases = setup.engine.phases()
    while next(phases) != phase:
        pass
    phases.close()
    assert setup.engine.snapshot() == before and before.requests[0].drafts
    setup.run()
    assert setup.engine.requests[0].token_ids == list(text(length=18))
    setup.assert_clean()


@dataclass
class Failing:
    """Raises at the third question."""

    num_drafts: int = 4
    drafter: str = "lookup"
    num_asked: int = 0

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        self.num_asked += 1
        if self.num_asked == 3:
            raise ZeroDivisionError("no guess")
        return text()[len(token_ids) :][:num_tokens]


def test_a_proposer_that_raises_rolls_the_step_back() -> None:
    setup = watched(next_token=token, proposer=Failing())
    for _ in range(2):
        setup.add(*PROMPT, max_tokens=20)
    setup.engine.step()
    before = setup.engine.snapshot()
    with pytest.raises(ZeroDivisionError):
        setup.engine.step()
    assert setup.engine.snapshot() == before
    (failed,) = setup.timeline.of_kind(ev.StepFailed)
    assert failed.method == "Failing.propose"
    setup.run()
    setup.assert_clean()


# -- with and without ------------------------------------------------------------------------------------------------


def test_the_tokens_are_those_without_speculation() -> None:
    """In small pools, with chunks, windows and hits; the drafts are right, wrong or missing by chance."""

    def play(rng: Random) -> None:
        alphabet = rng.choice((1, 2, 3))
        tokens = [rng.randrange(alphabet) for _ in range(200)]

        def sampled(request_id: int, position: int) -> int:
            return tokens[request_id * 7 + position]

        settings = {"budget": rng.choice((8, 12, 1000)), "max_num_seqs": rng.choice((1, 3, 16))}
        groups = rng.choice(((GroupSpec(rng.choice((1, 3, 4))),), HYBRID))
        num_blocks = rng.randint(20, 30) * len(groups) // groups[0].block_size + 8
        proposer = NGram(rng.randint(1, 6), 1, rng.randint(1, 4))
        with_drafts = watched(num_blocks, groups, next_token=sampled, proposer=proposer, **settings)  # type: ignore[arg-type]
        without = watched(100, groups, next_token=sampled, **settings)  # type: ignore[arg-type]
        for _ in range(rng.randint(1, 5)):
            prompt = tokens[: rng.randint(1, 12)]
            for setup in (with_drafts, without):
                setup.add(*prompt, max_tokens=len(prompt) % 5 + 4)
        for setup in (with_drafts, without):
            setup.run()
            setup.assert_clean()
        texts = [[request.token_ids for request in setup.engine.requests.values()] for setup in (with_drafts, without)]
        assert texts[0] == texts[1]
        assert with_drafts.engine.step_number <= 2 * without.engine.step_number

    for_random(play, examples=40)


# -- wrong decisions are found ---------------------------------------------------------------------------------------


class AcceptsAll(Drafts):
    """Takes every guess for true."""

    def num_accepted(self, drafts: Sequence[int], sampled: Sequence[int]) -> int:
        return len(drafts)


class CountsRejected(Drafts):
    """Counts the KV of rejected drafts as computed."""

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> None:
        super().judge(request, part, sampled)
        self.scheduler.book_computed(request, part.end)


class Forgets(Drafts):
    """Drops accepted tokens' KV: they are computed again."""

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> None:
        super().judge(request, part, sampled)
        self.scheduler.book_computed(request, part.start)


def test_a_report_counts_as_accepted_what_the_event_does() -> None:
    parts = Parts(drafts=AcceptsAll).overriding(LABENGINE)
    engine = small_engine(edition=parts, next_token=token, proposer=FixedDrafts(text(9)))
    events = recorded(engine.hooks)
    engine.add(PROMPT, SamplingParams(max_tokens=12))
    engine.step()
    assert engine.step().accepted == {0: 4} and ev.DraftsJudged(0, 4, 0) in events


@pytest.mark.parametrize(
    ("drafts", "rule"), [(AcceptsAll, "read"), (CountsRejected, "progress"), (Forgets, "progress")]
)
def test_a_wrong_judgement_is_found(drafts: type[Drafts], rule: str) -> None:
    setup = guessing(9, 13, 17, edition=Parts(drafts=drafts).overriding(LABENGINE))
    setup.add(*PROMPT, max_tokens=20)
    for _ in range(4):
        setup.engine.step()
    assert rule in setup.broken_rules()


class RegistersDrafts(KVCacheManager):
    """Registers the block that drafts fill."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        num_slots = len(request.block_tables[0]) * 4
        return num_slots if moment == "computed" and request.num_generated_tokens else num_tokens


def test_a_block_of_drafts_that_is_registered_is_found() -> None:
    setup = guessing(9, 13, edition=Parts(kv_cache_manager=RegistersDrafts).overriding(LABENGINE))
    setup.add(*PROMPT, max_tokens=20)
    setup.steps(3)
    assert "named" in setup.broken_rules()


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243", "nano-vllm-2025-07"])
def test_editions_without_speculation_refuse_it(edition: str) -> None:
    with pytest.raises(ConfigError, match="has no speculation"):
        small_engine(edition=edition, proposer=NGram())


def test_edition_vllm_refuses_what_never_fits_with_the_drafters_slots() -> None:
    """A hit of 24 tokens, a padded decode of 7, and 6 slots for the draft model need 7 + 7 + 8 blocks at once.

    vLLM 0.32 with max_model_len=42 takes the request, and nothing runs any more: what it reserves of a window leaves
    out the slots.
    """
    groups = [GroupSpec(6), GroupSpec(3, "sliding_window", 6), GroupSpec(3, "sliding_window", 9)]
    for num_blocks in (21, 23):
        setup = watched(num_blocks, groups, "vllm", budget=8, proposer=FixedDrafts((0,) * 64, 6, "draft_model"))
        setup.add(*[0] * 24)
        setup.run()
        if num_blocks == 21:
            with pytest.raises(ConfigError, match=r"with 6 drafts .* needs 22 blocks, .* has 20"):
                setup.add(*[0] * 25)
        else:
            setup.add(*[0] * 25)
            setup.run()
            assert setup.engine.scheduler.is_idle
        setup.assert_clean()
