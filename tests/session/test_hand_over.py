"""Requests that move to another lab with their KV: their tokens do not change, and both labs stay intact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import labengine
from labengine import Lab, Parts
from labengine import events as ev
from labengine.config import ConfigError, GroupSpec
from labengine.core.connector import BlockKV
from labengine.core.hand_over import HandOver
from labengine.core.prefix_lookup import Hit
from labengine.core.proposer import FixedDrafts
from labengine.core.request import Request
from labengine.engine.simulated import default_next_token
from labengine.events import Transfer
from labengine.live_page.session import acts_of
from labengine.record.fold import fold
from labengine.record.snapshot import Snapshot

LAYOUTS = {
    "full": (GroupSpec(4),),
    "window": (GroupSpec(4), GroupSpec(4, "sliding_window", 6)),
    "unlike blocks": (GroupSpec(8), GroupSpec(4, "sliding_window", 5)),
    "states": (GroupSpec(4), GroupSpec(8, "state")),
}
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def small(**settings: Any) -> Lab:
    return Lab(**{"model": "simulated", "num_blocks": 40, "block_size": 4} | settings)  # type: ignore[arg-type]


def assert_sound(*labs: Lab) -> None:
    for lab in labs:
        assert lab.timeline is not None
        assert fold(lab.timeline.events()) == lab.snapshot()
        assert lab.check() == []


@pytest.fixture
def pair() -> Any:
    with small() as left, small() as right:
        left.add(token_ids=PROMPT, max_tokens=8)
        left.step(2)
        yield left, right


@pytest.mark.parametrize(("layout", "editions"), [*product(LAYOUTS, product(("labengine", "vllm"), repeat=2))])
def test_tokens_are_those_of_one_lab_wherever_a_request_moves(layout: str, editions: tuple[str, str]) -> None:
    for seed in range(4):
        rng = Random(seed)
        stem = [rng.randrange(50) for _ in range(30)]
        prompts = [stem[: rng.randint(1, 30)] for _ in range(4)]
        wanted = dict[int, tuple[int, ...]]()
        groups, budget = LAYOUTS[layout], rng.choice((16, 64))
        settings: dict[str, Any] = {"groups": groups, "num_blocks": 80, "max_num_batched_tokens": budget}
        with small(**settings) as alone:
            for number, prompt in enumerate(prompts):
                alone.add(token_ids=prompt, max_tokens=12, seed=number)
            alone.run()
            wanted = {number: alone.output(number).token_ids for number in range(len(prompts))}
        left, right = (small(edition=edition, **settings) for edition in editions)
        with left, right:
            where = {left.add(token_ids=prompt, max_tokens=12, seed=i): i for i, prompt in enumerate(prompts)}
            there = dict[int, int]()
            right.add(token_ids=stem[: rng.randint(1, 20)], max_tokens=6, seed=77)
            for _ in range(14):
                (left if rng.random() < 0.5 else right).step()
                running = [i for i, one in left.snapshot().requests.items() if one.status == "running"]
                if running and rng.random() < 0.5:
                    moving = rng.choice(running)
                    there[left.hand_over(moving, right)] = where[moving]
                    assert left.output(moving).finish_reason == "moved"
                assert_sound(left, right)
            left.run(), right.run()
            assert_sound(left, right)
            for request_id, number in where.items():
                if left.output(request_id).finish_reason != "moved":
                    assert left.output(request_id).token_ids == wanted[number]
            assert {i: right.output(i).token_ids for i in there} == {i: wanted[n] for i, n in there.items()}
            assert right.violations == left.violations == []


def test_a_request_without_a_seed_samples_what_it_would_have_sampled_here(pair: tuple[Lab, Lab]) -> None:
    left, right = pair
    right.add(token_ids=[7], max_tokens=1)
    with small() as alone:
        alone.add(token_ids=PROMPT, max_tokens=8)
        alone.run()
        assert left.hand_over("A", right) == 1
        right.run()
        assert right.output(1).token_ids == alone.output(0).token_ids


def test_blocks_that_the_other_lab_has_are_shared_and_not_copied(pair: tuple[Lab, Lab]) -> None:
    left, right = pair
    right.add(token_ids=PROMPT[:9], max_tokens=4)
    right.step()
    there = left.hand_over(0, right)
    moved = right.snapshot().requests[there]
    (received,) = right.timeline.of_kind(ev.RequestReceived)  # type: ignore[union-attr]
    assert [index for _, index, _, _ in received.transfers] == [2]  # 12 tokens in three blocks, two of them found
    assert [right.snapshot().blocks[i].ref_count for i in moved.block_tables[0]] == [2, 2, 1]
    assert (moved.status, moved.num_computed_tokens, received.num_tokens) == ("waiting", 12, 12)
    assert_sound(left, right)


@pytest.mark.parametrize("num_prompt_tokens", range(5, 9))
def test_a_state_inside_the_block_of_the_one_that_moves_is_not_shared(num_prompt_tokens: int) -> None:
    groups, prompt = LAYOUTS["states"], PROMPT[:num_prompt_tokens]
    with small(groups=groups) as left, small(groups=groups, edition="vllm") as right, small(groups=groups) as alone:
        right.generate([PROMPT[:5]], max_tokens=1)  # leaves a state after four tokens, in a block of eight
        for lab in (left, alone):
            lab.add(token_ids=prompt, max_tokens=8, seed=1)
        alone.run()
        left.step()
        there = left.hand_over(0, right)
        right.run()
        assert right.output(there).token_ids == alone.output(0).token_ids
        assert right.violations == []
        assert_sound(left, right)


def test_blocks_are_held_until_the_other_lab_has_them_and_then_freed(pair: tuple[Lab, Lab]) -> None:
    left, right = pair
    begin = left.timeline.end  # type: ignore[union-attr]
    left.hand_over(0, right)
    told = left.timeline.events(begin)  # type: ignore[union-attr]
    kinds = [type(event).__name__ for event in told]
    assert kinds == ["RequestFinished", "RequestHandedOver", *["BlockFreed"] * 3, "RequestReleased"]
    held = left.timeline.state(begin + 2)  # type: ignore[union-attr]
    assert held.holding == {0} and len(held.requests[0].block_tables[0]) == 3 and not left.snapshot().blocks[0].owners
    assert left.snapshot().requests[0].status == "finished" and len(left.snapshot().free_queue) == 40


def test_a_request_may_move_on_and_come_back(pair: tuple[Lab, Lab]) -> None:
    left, right = pair
    with small() as third, small() as alone:
        alone.add(token_ids=PROMPT, max_tokens=8)
        alone.run()
        there = left.hand_over(0, right)
        right.step()
        further = right.hand_over(there, third)
        third.step()
        back = third.hand_over(further, left)
        left.run()
        assert left.output(back).token_ids == alone.output(0).token_ids
        assert_sound(left, right, third)


def test_a_prefill_in_chunks_moves_in_the_middle_and_goes_on(pair: tuple[Lab, Lab]) -> None:
    with small(max_num_batched_tokens=8) as left, small() as right, small() as alone:
        for lab in (left, alone):
            lab.add(token_ids=range(100, 130), max_tokens=5, seed=1)
        alone.run()
        left.step()
        there = left.hand_over(0, right)
        assert right.snapshot().requests[there].num_computed_tokens == 8
        right.run()
        assert right.output(there).token_ids == alone.output(0).token_ids
        assert_sound(left, right)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_steps", range(1, 7))
def test_drafts_stay_behind_and_the_other_lab_may_guess_on(layout: str, num_steps: int) -> None:
    groups = LAYOUTS[layout]
    right_ones = [default_next_token(3, position) for position in range(40)]
    guesses = FixedDrafts(tuple(one + (position % 5 == 0) for position, one in enumerate(right_ones)), num_drafts=3)
    with (
        small(speculation=guesses, groups=groups) as left,
        small(speculation=replace(guesses, num_drafts=2), groups=groups) as right,
        small(groups=groups) as alone,
    ):
        for lab in (left, alone):
            lab.add(token_ids=[1, 2, 3, 1, 2, 3, 1, 2], max_tokens=20, seed=3)
        alone.run()
        left.step(num_steps)
        there = left.hand_over(0, right)
        right.run()
        assert right.output(there).token_ids == alone.output(0).token_ids
        assert_sound(left, right)


# -- refused, before anything changes ----------------------------------------------------------------------------------


def _waits(left: Lab, right: Lab) -> None:
    left.hand_over(left.add(token_ids=[5, 6], max_tokens=2), right)


def _has_finished(left: Lab, right: Lab) -> None:
    left.run()
    left.hand_over(0, right)


def _to_itself(left: Lab, right: Lab) -> None:
    left.hand_over(0, left)


def _to_no_lab(left: Lab, right: Lab) -> None:
    left.hand_over(0, "right")  # type: ignore[arg-type]


def _to_a_lab_like(**settings: Any) -> Callable[[Lab, Lab], None]:
    def hand_over(left: Lab, right: Lab) -> None:
        with small(**settings) as other:
            before = other.snapshot()
            try:
                left.hand_over(0, other)
            finally:
                assert other.snapshot() == before

    return hand_over


def _to_a_full_lab(left: Lab, right: Lab) -> None:
    right.add(token_ids=range(150), max_tokens=2)
    right.step()
    left.hand_over(0, right)


def _a_beam(left: Lab, right: Lab) -> None:
    beams = left.add(token_ids=[3, 2, 1], beams=2, max_tokens=4)
    left.step(2)
    left.hand_over(beams[0], right)


def _a_leader(left: Lab, right: Lab) -> None:
    left.add(token_ids=range(100), n=2, max_tokens=4)
    left.step()
    left.hand_over(1, right)


REFUSED: dict[str, tuple[Callable[[Lab, Lab], None], str]] = {
    "waits": (_waits, "B is waiting"),
    "finished": (_has_finished, "A has finished"),
    "itself": (_to_itself, "already runs on this lab"),
    "no lab": (_to_no_lab, "got 'right'"),
    "other blocks": (_to_a_lab_like(block_size=8), "full blocks of 4, and lab .* in full blocks of 8"),
    "other groups": (_to_a_lab_like(groups=LAYOUTS["window"]), r"sliding_window blocks of 4 \(window 6\)"),
    "nano": (_to_a_lab_like(edition="nano-vllm"), "edition 'nano-vllm'"),
    "too long": (_to_a_lab_like(max_model_len=15), "shorten the prompt"),
    "never fits": (_to_a_lab_like(num_blocks=3), "needs 5 blocks, and the pool has 3"),
    "no room": (_to_a_full_lab, r"too few free blocks for 12 tokens \(2 are free\)"),
    "beam": (_a_beam, "B is a beam"),
    "leader": (_a_leader, "C waits for B's tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_move_is_refused_in_words(case: str, pair: tuple[Lab, Lab]) -> None:
    left, right = small(max_num_batched_tokens=64), pair[1]
    with left:
        left.add(token_ids=PROMPT, max_tokens=8)
        left.step(2)
        act, words = REFUSED[case]
        with pytest.raises(ConfigError, match=words):
            act(left, right)
        assert_sound(left, right)
        left.run(), right.run()
        assert len(left.output(0).token_ids) == 8
        assert_sound(left, right)


def test_an_unknown_request_is_a_key_error(pair: tuple[Lab, Lab]) -> None:
    with pytest.raises(KeyError, match="there is no request 7"):
        pair[0].hand_over(7, pair[1])


# -- all or nothing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", range(3))
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_breaks_a_copy_off_leaves_both_labs_as_they_were(
    failing: int, error: type[BaseException], pair: tuple[Lab, Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = pair
    right.add(token_ids=[50, 51, 52, 53, 54], max_tokens=2)  # leaves cached blocks in the free queue
    right.run()
    before = [_without_content(lab.snapshot()) for lab in pair]
    runner, written = right.session.model.runner, list[int]()

    def write_block(group: int, block_id: int, kv: BlockKV | None) -> None:
        if len(written) == failing:
            raise error
        written.append(block_id)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "write_block", write_block)
        with pytest.raises(error):
            left.hand_over(0, right)
    assert [_without_content(lab.snapshot()) for lab in pair] == before
    assert all(not right.snapshot().blocks[block_id].block_hashes for block_id in written)
    assert_sound(*pair)
    there = left.hand_over(0, right)
    right.run()
    assert len(right.output(there).token_ids) == 8
    assert_sound(*pair)


def _without_content(snapshot: Snapshot) -> tuple[Any, ...]:
    """Everything but the content of free blocks, since one that was written to is forgotten."""
    refs = tuple(block.ref_count for block in snapshot.blocks)
    return snapshot.step, snapshot.requests, refs, snapshot.free_queue


class LastBlockLeftOut(HandOver):
    def blocks_to_fill(self, request: Request, hit: Hit, num_tokens: int) -> list[Transfer]:
        return [one for one in super().blocks_to_fill(request, hit, num_tokens) if one[3]]


def test_the_oracle_sees_a_block_that_did_not_come() -> None:
    with small() as left, small(parts=Parts(hand_over=LastBlockLeftOut)) as right:
        left.add(token_ids=PROMPT, max_tokens=8)
        left.step()
        left.hand_over(0, right)
        with pytest.warns(UserWarning, match="read"):
            right.step()
        (misread,) = [one for one in right.violations if one.rule == "read"]
        assert "block 2 holds nothing at that slot" in misread.message


class FreedTooEarly(HandOver):
    def refuse_to_give(self, request: Request) -> None:
        self.manager.free(request, "finished")


def test_a_request_whose_blocks_went_too_early_fails_before_anything_is_copied() -> None:
    with small(parts=Parts(hand_over=FreedTooEarly)) as left, small() as right:
        left.add(token_ids=PROMPT, max_tokens=8)
        left.step()
        with pytest.raises(IndexError):
            left.hand_over(0, right)
        assert right.snapshot().requests == {}
        assert_sound(right)


def test_without_checks_on_the_first_lab_the_second_believes_what_it_says() -> None:
    for layout in LAYOUTS.values():
        with small(check=False, groups=layout) as left, small(groups=layout) as right:
            left.add(token_ids=PROMPT, max_tokens=8)
            left.step(2)
            left.hand_over(0, right)
            right.run()
            assert_sound(right)


# -- repeated, saved, explained ----------------------------------------------------------------------------------------


def test_steps_before_are_repeated_and_later_ones_refused(pair: tuple[Lab, Lab]) -> None:
    left, right = pair
    right.step()
    there = left.hand_over(0, right)
    left.add(token_ids=[1, 2], max_tokens=3)
    left.run(), right.run()
    with pytest.raises(ConfigError, match="after step 2 request 0 went to lab"):
        left.fork()
    with pytest.raises(ConfigError, match=f"after step 0 request {there} came from lab .* with its KV"):
        right.fork()
    for lab in pair:
        with pytest.raises(ConfigError, match="one lab cannot repeat that alone"):
            lab.rewind(lab.snapshot().step)
        with pytest.raises(ConfigError, match=r"^[A-Z] (went to|came from) .*: no script of one lab can repeat that$"):
            lab.to_code()
        with pytest.raises(ConfigError, match="one lab cannot repeat that alone"):
            lab.rerun(HandOver)
        with pytest.raises(ConfigError, match=r"input of kind .(HandOver|Receive)"):
            [*acts_of(lab, lab.inputs, 0, 9)]
    with left.fork(1) as earlier:
        assert earlier.snapshot().requests[0].num_computed_tokens == 11
    left.rewind(1)
    assert left.snapshot().step == 1
    assert_sound(*pair)


def test_a_saved_session_shows_where_a_request_went_and_came_from(pair: tuple[Lab, Lab], tmp_path: Path) -> None:
    left, right = pair
    there = left.hand_over(0, right)
    right.run()
    for lab, name in ((left, "left"), (right, "right")):
        lab.save(tmp_path / name)
        with labengine.open(tmp_path / name) as opened:
            assert opened.snapshot() == lab.snapshot()
            with pytest.raises(ConfigError, match="no script of one lab can repeat that"):
                opened.to_code()
    assert f"A moved to {right.lab_id}, where it is A, with 12 computed tokens" in left.why(request=0).answer
    assert (
        f"A came from {left.lab_id}, where it was A, with 12 computed tokens"
        in right.why(request=there, about="hit").answer
    )
