"""Figures derived by hand: guesses, the blocks kept for them, block keys, and groups with different block sizes."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.scenarios import bug

FIGURES = {
    # A: 3 + 1 + 1 tokens, B: 1 + 1 behind its hit of 3. With both in step 1, or B in step 2.
    "vllm-29387": (
        {"states misread": 1, "requests in the first step": 2, "hit of B": 3, "tokens computed": 7},
        {"states misread": 0, "requests in the first step": 1, "hit of B": 3, "tokens computed": 7},
    ),
    # 10 + 1 tokens, and 2 + 1 behind the 8 that the tier brings for both: of the drafter two blocks hold nothing.
    "sglang-21125": (
        {"blocks misread": 2, "tokens from the tier": 8, "tokens computed": 14},
        {"blocks misread": 0, "tokens from the tier": 8, "tokens computed": 14},
    ),
    # Both blocks: the second one in the first one's place, and the kept one in the second one's place.
    "vllm-44151": ({"blocks misread": 2}, {"blocks misread": 0}),
    # 40 tokens: twice, or 8 of them twice. 32 tokens are 16 blocks of 2 and 2 of 16.
    "vllm-ascend-16270": (
        {"blocks registered": 0, "tokens found": 0, "tokens computed": 80},
        {"blocks registered": 18, "tokens found": 32, "tokens computed": 48},
    ),
    # Three prompts of six tokens, of which B and C share four with A.
    "vllm-50438": (
        {"blocks of another next token": 1, "hit of B": 4, "hit of C": 4, "tokens computed": 10},
        {"blocks of another next token": 0, "hit of B": 0, "hit of C": 0, "tokens computed": 18},
    ),
    # Beams B and C give way for A's second block, and C once more for its third: B holds none then.
    "openvino-genai-4332": (
        {"steps that failed": 14, "preemptions": 2, "requests ended": 0},
        {"steps that failed": 0, "preemptions": 3, "requests ended": 3},
    ),
    # One token of the prompt's step, and one of each judged guess: late, the first of them leaves none to compute.
    "openvino-genai-4190": (
        {"tokens": 2, "wrong tokens": 1, "computed too many": 1},
        {"tokens": 4, "wrong tokens": 0, "computed too many": 0},
    ),
}


@pytest.mark.parametrize("id", FIGURES)
def test_the_figures(id: str) -> None:
    verdict = bug(id).verdict()
    assert (dict(verdict.before), dict(verdict.after)) == FIGURES[id]


def test_the_state_is_copied_before_the_step_that_computes_it() -> None:
    with bug("vllm-29387").broken() as lab:
        assert lab.timeline is not None
        events = lab.timeline.events()
        [copied] = [event for event in lab.timeline.of_kind(ev.StateCopied) if event.request_id == 1][:1]
        computed = next(event for event in lab.timeline.of_kind(ev.StateAdvanced) if event.block_id == copied.block_id)
        assert computed.request_id == 0 and events.index(copied) < events.index(computed)


def test_only_a_prompt_that_ends_at_a_blocks_end_is_handed_over_wrongly() -> None:
    lengths = bug("vllm-44151").experiments["other lengths"]
    assert list(lengths.measured("whole table").values()) == [0, 0, 2, 0]
    assert list(lengths.measured("clipped").values()) == list(lengths.measured("no slots").values()) == [0] * 4


def test_only_the_drafters_blocks_are_misread() -> None:
    with bug("sglang-21125").broken() as lab:
        misread = {block_id for one in lab.violations if one.rule == "read" for block_id in one.block_ids}
        assert lab.timeline is not None
        groups = {event.block_id: event.group for event in lab.timeline.of_kind(ev.BlockAllocated)}
        assert {groups[block_id] for block_id in misread} == {1}
    assert bug("sglang-21125").measured("model alone, and asked for both")["tokens computed"] == 22


def test_the_smallest_blocks_have_no_part_in_the_alignment() -> None:
    alignment = bug("vllm-ascend-16270")
    assert alignment.measured("8 and 64")["tokens found"] == 0
    assert alignment.measured("2 and 64, registered per group")["tokens found"] == 0
    reported = alignment.experiments["as reported"]
    found = {column.name: reported.measured(column.name)["tokens found"] for column in reported.columns}
    assert found == {"as reported": 0, "without blocks of 2": 0, "half of all but 2": 2048}


def test_a_key_with_the_next_token_serves_those_that_share_it() -> None:
    keyed = bug("vllm-50438").measured("next token in the key")
    assert keyed == {"blocks of another next token": 0, "hit of B": 0, "hit of C": 4, "tokens computed": 14}


def test_the_token_of_the_second_row_is_taken() -> None:
    """The simulated model's token depends on request and position alone: late, it is that of the next position."""
    scenario = bug("openvino-genai-4190")
    with scenario.broken() as late, scenario.fixed() as right:
        tokens = right.snapshot().requests[0].token_ids
        assert late.snapshot().requests[0].token_ids[6:] == (tokens[6], tokens[8])


def test_a_rejection_of_the_first_of_two_guesses_sets_the_count_right() -> None:
    two = bug("openvino-genai-4190").experiments["two guesses"]
    assert two.measured("one iteration late") == {"tokens": 4, "wrong tokens": 3, "computed too many": 0}
    with two.played("one iteration late") as lab:
        assert {violation.rule for violation in lab.violations} == {"sampled"}
